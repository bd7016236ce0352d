/* SPDX-License-Identifier: Apache-2.0 */
#include "redis/reply.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_KEPT ((size_t)1 << 20) /* a larger buffer is given back once it is empty */

void reply_reader_init(struct reply_reader *reader, size_t bytes_max) {
    *reader = (struct reply_reader){0};
    buf_init(&reader->bytes, bytes_max);
}

void reply_reader_release(struct reply_reader *reader) {
    buf_release(&reader->bytes);
    free(reader->values);
    *reader = (struct reply_reader){0};
}

void reply_reader_clear(struct reply_reader *reader) {
    size_t bytes_max = reader->bytes.bytes_max;
    reply_reader_release(reader);
    reply_reader_init(reader, bytes_max);
}

static enum err refuse(struct reply_reader *reader, const char *what, struct error *error) {
    reader->is_bad = true;
    return err_set(error, ERR_CORRUPT, "a reply of the queue's server %s", what);
}

/* The line at `at` without its end; false if it is not whole yet. */
static bool take_line(const struct reply_reader *reader, struct str *ret_line) {
    struct str rest = str_skip(buf_str(&reader->bytes), reader->at);
    if (rest.bytes > REPLY_LINE_BYTES + 2) rest.bytes = REPLY_LINE_BYTES + 2;
    size_t end = str_find(rest, STR("\r\n"), 0);
    if (end == SIZE_MAX) return false;
    *ret_line = (struct str){rest.at, end};
    return true;
}

/* Appends the value. Texts are kept as offsets until the reply is whole, because the buffer
 * moves. */
static void add(struct reply_reader *reader, struct reply_value value) {
    if (reader->value_count == reader->value_capacity)
        reader->values = vec_grow(reader->values, reader->value_count, &reader->value_capacity,
                                  sizeof *reader->values);
    reader->values[reader->value_count++] = value;
    if (reader->depth > 0) reader->open[reader->depth - 1]--;
    if (value.kind == REPLY_LIST && value.count > 0) reader->open[reader->depth++] = value.count;
    while (reader->depth > 0 && reader->open[reader->depth - 1] == 0) reader->depth--;
}

/* A text begins at an offset, which `number` holds until the reply is whole. */
static struct reply_value text_at(enum reply_kind kind, size_t offset, size_t bytes) {
    return (struct reply_value){.kind = kind, .number = (int64_t)offset, .text = {NULL, bytes}};
}

/* Values that open lists still want, which a further list may not pass with its own. */
static size_t wanted(const struct reply_reader *reader) {
    size_t sum = 0;
    for (size_t i = 0; i < reader->depth; i++) sum += reader->open[i];
    return sum;
}

static enum err read_counted(struct reply_reader *reader, char mark, struct str line,
                             bool *ret_whole, struct error *error) {
    int64_t count;
    size_t behind = reader->at + line.bytes + 2, held = reader->bytes.bytes;
    if (!str_to_i64(str_skip(line, 1), &count) || count < -1)
        return refuse(reader, "has a length that is no number", error);
    if (count == -1) {
        add(reader, (struct reply_value){.kind = REPLY_NONE});
        reader->at = behind;
        return OK;
    }
    if (mark == '*') {
        if (count > REPLY_VALUES_MAX ||
            (size_t)count + reader->value_count + wanted(reader) > REPLY_VALUES_MAX ||
            reader->depth == REPLY_DEPTH_MAX)
            return refuse(reader, "has too many values", error);
        add(reader, (struct reply_value){.kind = REPLY_LIST, .count = (uint32_t)count});
        reader->at = behind;
        return OK;
    }
    if ((uint64_t)count > reader->bytes.bytes_max)
        return refuse(reader, "has too many bytes", error);
    if (held - behind < (size_t)count + 2) {
        *ret_whole = false;
        return OK;
    }
    if (memcmp(reader->bytes.at + behind + count, "\r\n", 2) != 0)
        return refuse(reader, "has a text of another length than it says", error);
    add(reader, text_at(REPLY_TEXT, behind, (size_t)count));
    reader->at = behind + (size_t)count + 2;
    return OK;
}

/* Reads one value; *ret_whole is false if its bytes have not all come. */
static enum err read_value(struct reply_reader *reader, bool *ret_whole, struct error *error) {
    struct str line;
    if (!take_line(reader, &line)) {
        *ret_whole = false;
        if (reader->bytes.bytes - reader->at >= REPLY_LINE_BYTES + 2)
            return refuse(reader, "has a line without an end", error);
        return OK;
    }
    char mark = line.bytes > 0 ? *line.at : '\0';
    if (mark == '$' || mark == '*') return read_counted(reader, mark, line, ret_whole, error);
    size_t offset = reader->at + 1;
    if (mark == ':') {
        struct reply_value value = {.kind = REPLY_NUMBER};
        if (!str_to_i64(str_skip(line, 1), &value.number))
            return refuse(reader, "has a number that is none", error);
        add(reader, value);
    } else if (mark == '+' || mark == '-') {
        add(reader, text_at(mark == '+' ? REPLY_STATUS : REPLY_ERROR, offset, line.bytes - 1));
    } else {
        return refuse(reader, "is of no known kind", error);
    }
    reader->at += line.bytes + 2;
    return OK;
}

static void drop_consumed(struct reply_reader *reader) {
    if (reader->consumed == 0) return;
    buf_consume(&reader->bytes, reader->consumed);
    reader->at -= reader->consumed;
    reader->consumed = 0;
    reader->value_count = 0;
    if (reader->bytes.bytes == 0 && reader->bytes.capacity > BUFFER_KEPT) {
        size_t bytes_max = reader->bytes.bytes_max;
        buf_release(&reader->bytes);
        buf_init(&reader->bytes, bytes_max);
    }
}

enum err reply_next(struct reply_reader *reader, const struct reply_value **ret_values,
                    size_t *ret_count, bool *ret_found, struct error *error) {
    *ret_found = false;
    if (reader->is_bad) return refuse(reader, "is damaged", error);
    drop_consumed(reader);
    do {
        bool is_whole = true;
        enum err err = read_value(reader, &is_whole, error);
        if (err != OK || !is_whole) return err;
    } while (reader->depth > 0);
    for (size_t i = 0; i < reader->value_count; i++) {
        struct reply_value *value = &reader->values[i];
        if (value->kind == REPLY_STATUS || value->kind == REPLY_ERROR ||
            value->kind == REPLY_TEXT) {
            value->text.at = reader->bytes.at + value->number;
            value->number = 0;
        }
    }
    reader->consumed = reader->at;
    *ret_values = reader->values;
    *ret_count = reader->value_count;
    *ret_found = true;
    return OK;
}

char *reply_room(struct reply_reader *reader, size_t count) {
    drop_consumed(reader);
    return buf_reserve(&reader->bytes, count);
}

const struct reply_value *reply_behind(const struct reply_value *value) {
    for (size_t left = 1; left > 0; value++) {
        left--;
        if (value->kind == REPLY_LIST) left += value->count;
    }
    return value;
}
