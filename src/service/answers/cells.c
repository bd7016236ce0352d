/* SPDX-License-Identifier: Apache-2.0 */
#include "answers/cells.h"

#include "answers/answers_internal.h"
#include "json/span.h"
#include "store/seglog.h"

#include <inttypes.h>

void cells_init(struct cells *cells, const struct str *names, size_t count) {
    *cells = (struct cells){.count = count};
    for (size_t i = 0; i < count; i++) {
        cells->names[i] = names[i];
        buf_init(&cells->texts[i], SEGLOG_TEXT_BYTES_MAX);
    }
    record_init(&cells->record);
}

void cells_release(struct cells *cells) {
    for (size_t i = 0; i < cells->count; i++) buf_release(&cells->texts[i]);
    record_release(&cells->record);
}

static void put(struct cells *cells, struct str name, struct str text) {
    for (size_t i = 0; i < cells->count; i++) {
        if (!str_equals(cells->names[i], name)) continue;
        buf_clear(&cells->texts[i]);
        buf_add_str(&cells->texts[i], text);
        cells->has[i] = true;
    }
}

static void put_number(struct cells *cells, struct str name, double number) {
    char text[40];
    struct buf buf;
    buf_init(&buf, sizeof text);
    number_write(&buf, number);
    put(cells, name, buf_str(&buf));
    buf_release(&buf);
}

static void put_value(struct cells *cells, struct str name, const struct record_value *value) {
    switch (value->kind) {
    case RECORD_NUMBER:
        if (value->raw.at)
            put(cells, name, value->raw);
        else
            put_number(cells, name, value->number);
        break;
    case RECORD_BOOL: put(cells, name, value->number != 0 ? STR("true") : STR("false")); break;
    case RECORD_TEXT: put(cells, name, value->text); break;
    }
}

static void take_fixed(void *context, unsigned field, const struct record_value *value) {
    put_value(context, str_from(table_fixed_names[field]), value);
}

static void take_field(void *context, struct str name, const struct record_value *value) {
    struct cells *cells = context;
    cells->has_fields = true;
    /* The length of an array is a number of the index, and no JSON. */
    put_value(cells, name, value);
}

static void take_array(void *context, struct str name, struct str array) {
    struct cells *cells = context;
    cells->has_fields = true;
    put(cells, name, array);
}

/* The reason of the line's error, or of the one in its response; empty without one. */
static struct str reason_of(struct record *record) {
    struct str error = record->error;
    if (!json_span_is_object(error)) error = json_span_get(record->body, "error");
    struct str message = json_span_get(error, "message");
    return json_span_is_string(message) ? json_span_text(message, &record->scratch)
                                        : (struct str){NULL, 0};
}

bool cells_read(struct cells *cells, struct str result) {
    struct record *record = &cells->record;
    struct record_walk walk = {cells, take_fixed, take_field, take_array};
    for (size_t i = 0; i < cells->count; i++) cells->has[i] = false;
    cells->has_fields = false;
    if (!record_read(record, result)) return false;
    record_each(record, &walk);
    put_number(cells, STR(".line"), (double)record->line + 1);
    struct str reason = reason_of(record);
    if (reason.at)
        put(cells, STR(".answer"), reason);
    else if (!cells->has_fields)
        put(cells, STR(".answer"), record_answer(record));
    return true;
}
