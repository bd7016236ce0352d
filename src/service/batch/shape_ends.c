/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/shape_ends.h"

#include "grammar/asked_names.h"
#include "json/span.h"

#include <inttypes.h>
#include <string.h>

/* A param of a field that asks for a shape, or of a member inside, names a shape. */
static bool names_shape(struct str param) {
    if (!json_span_is_string(param)) return false;
    struct str name = {param.at + 1, 0};
    while (name.bytes + 2 < param.bytes && !strchr(".[", name.at[name.bytes])) name.bytes++;
    enum asked_name kind = asked_name_find(name);
    return kind == ASKED_NAME_FIELD || kind == ASKED_NAME_FOREIGN;
}

enum shape_end shape_end_of(bool is_success, enum shape_end told, struct str body) {
    if (is_success) return told == SHAPE_NONE ? SHAPE_UNCHECKED : told;
    if (told == SHAPE_MISMATCHED) return SHAPE_MISMATCHED;
    struct str error = json_span_get(body, "error");
    bool is_request = json_span_string_is(json_span_get(error, "type"), "invalid_request_error");
    return is_request && names_shape(json_span_get(error, "param")) ? SHAPE_REFUSED : SHAPE_FAILED;
}

void shape_ends_write(struct buf *buf, const uint64_t ends[SHAPE_END_COUNT]) {
    uint64_t asked = 0;
    for (size_t i = 0; i < SHAPE_END_COUNT; i++) asked += ends[i];
    if (asked == 0) {
        buf_add_text(buf, "null");
        return;
    }
    buf_printf(buf, "{\"asked\":%" PRIu64, asked);
    for (size_t i = SHAPE_NONE + 1; i < SHAPE_END_COUNT; i++) {
        buf_printf(buf, ",\"%s\":%" PRIu64, shape_end_names[i], ends[i]);
        if (i == SHAPE_TRUNCATED) buf_add_text(buf, ",\"repaired\":0");
    }
    buf_add_byte(buf, '}');
}

uint64_t shape_ends_read(const char *quality, uint64_t ret_ends[SHAPE_END_COUNT]) {
    uint64_t asked = 0;
    memset(ret_ends, 0, SHAPE_END_COUNT * sizeof *ret_ends);
    struct str counts = json_span_get(str_from(quality ? quality : "{}"), "shapes");
    if (!json_span_is_object(counts)) return 0;
    for (size_t i = SHAPE_NONE + 1; i < SHAPE_END_COUNT; i++) {
        struct str count = json_span_get(counts, shape_end_names[i]);
        if (!count.at || !str_to_u64(count, &ret_ends[i])) ret_ends[i] = 0;
        asked += ret_ends[i];
    }
    return asked;
}
