/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/echo/vectors.h"

#include "base/base64.h"
#include "base/crc.h"
#include "base/rng.h"
#include "json/json.h"
#include "json/span.h"

#include <math.h>

/* The form of every vector, as the request asks for it. */
struct form {
    uint32_t dimensions;
    bool is_base64;
};

static struct form read_form(struct str body) {
    struct form form = {ECHO_DIMENSIONS_DEFAULT,
                        json_span_string_is(json_span_get(body, "encoding_format"), "base64")};
    uint64_t dimensions;
    if (str_to_u64(json_span_get(body, "dimensions"), &dimensions) && dimensions > 0 &&
        dimensions <= ECHO_DIMENSIONS_MAX)
        form.dimensions = (uint32_t)dimensions;
    return form;
}

static void make_vector(struct str text, uint32_t dimensions, float ret_vector[]) {
    uint64_t seed = crc32c(0, text.at, text.bytes);
    double squares = 0;
    for (uint32_t i = 0; i < dimensions; i++) {
        double value = rng_unit_at(seed, i) - 0.5;
        ret_vector[i] = (float)value;
        squares += value * value;
    }
    for (uint32_t i = 0; i < dimensions; i++)
        ret_vector[i] = (float)((double)ret_vector[i] / sqrt(squares));
}

static void write_vector(struct buf *buf, struct str text, uint32_t index,
                         const struct form *form) {
    float vector[ECHO_DIMENSIONS_MAX];
    make_vector(text, form->dimensions, vector);
    buf_printf(buf, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", index ? "," : "",
               index);
    if (form->is_base64) {
        buf_add_byte(buf, '"');
        base64_add(buf, vector, form->dimensions * sizeof *vector);
        buf_add_byte(buf, '"');
    }
    for (uint32_t i = 0; i < form->dimensions && !form->is_base64; i++) {
        buf_add_byte(buf, i > 0 ? ',' : '[');
        json_write_float(buf, vector[i]);
    }
    buf_add_text(buf, form->is_base64 ? "}" : "]}");
}

/* Whether the array is one text, as token ids. */
static bool is_ids(struct str input) {
    struct json_span_iter iter;
    struct str first;
    return json_span_enter(&iter, input) && json_span_element(&iter, &first) && first.bytes > 0 &&
           *first.at != '"' && *first.at != '[';
}

void echo_write_vectors(struct buf *buf, struct str body) {
    struct form form = read_form(body);
    struct json_span_iter iter;
    struct str text, input = json_span_get(body, "input");
    uint32_t count = 0;
    bool is_list = input.bytes > 0 && *input.at == '[' && !is_ids(input);
    buf_add_byte(buf, '[');
    if (!is_list) write_vector(buf, input, 0, &form);
    if (is_list && json_span_enter(&iter, input))
        while (json_span_element(&iter, &text)) write_vector(buf, text, count++, &form);
    buf_add_byte(buf, ']');
}
