/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/json_text.h"

#include "json/json.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_SAFE 15 /* every decimal with this number of digits survives a double */
#define DIGITS_MAX 17  /* digits that tell any two doubles apart */

static struct json_size add(struct json_size sum, struct json_size inner) {
    sum.values += inner.values;
    if (inner.depth + 1 > sum.depth) sum.depth = inner.depth + 1;
    return sum;
}

struct json_size json_size_of(const json_t *value, uint32_t depth_max) {
    struct json_size size = {.values = 1};
    bool is_object = json_is_object(value), is_array = json_is_array(value);
    if (!is_object && !is_array) return size;
    size.depth = 1;
    if (depth_max == 0) return size;
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        size = add(size, json_size_of(member, depth_max - 1));
    }
    for (size_t i = 0; is_array && i < json_array_size(value); i++)
        size = add(size, json_size_of(json_array_get(value, i), depth_max - 1));
    return size;
}

void json_text_write_number(struct buf *buf, double number) {
    char text[40];
    assert(isfinite(number));
    for (int digits = DIGITS_SAFE; digits <= DIGITS_MAX; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    buf_add_text(buf, text);
    if (!strpbrk(text, ".e")) buf_add_text(buf, ".0");
}

/* The bytes between members or elements, and behind a key. */
struct separators {
    const char *comma, *colon;
};

static void write_value(struct buf *buf, const json_t *value, const struct separators *with);

static void write_object(struct buf *buf, const json_t *object, const struct separators *with) {
    bool is_first = true;
    const char *key;
    json_t *value;
    buf_add_byte(buf, '{');
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (!is_first) buf_add_text(buf, with->comma);
        is_first = false;
        json_write_utf8_string(buf, str_from(key));
        buf_add_text(buf, with->colon);
        write_value(buf, value, with);
    }
    buf_add_byte(buf, '}');
}

static void write_value(struct buf *buf, const json_t *value, const struct separators *with) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: write_object(buf, value, with); break;
    case JSON_ARRAY:
        buf_add_byte(buf, '[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (i > 0) buf_add_text(buf, with->comma);
            write_value(buf, json_array_get(value, i), with);
        }
        buf_add_byte(buf, ']');
        break;
    case JSON_STRING: json_write_utf8_string(buf, json_str(value)); break;
    case JSON_INTEGER: buf_printf(buf, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); break;
    case JSON_REAL: json_text_write_number(buf, json_real_value(value)); break;
    case JSON_TRUE: buf_add_text(buf, "true"); break;
    case JSON_FALSE: buf_add_text(buf, "false"); break;
    case JSON_NULL: buf_add_text(buf, "null"); break;
    }
}

void json_text_write(struct buf *buf, const json_t *value) {
    write_value(buf, value, &(struct separators){",", ":"});
}

void json_text_write_spaced(struct buf *buf, const json_t *value) {
    write_value(buf, value, &(struct separators){", ", ": "});
}
