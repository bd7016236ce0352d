/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/input.h"

#include "base/buf.h"
#include "batch/parameters.h"
#include "json/jsonl.h"
#include "json/span.h"

#include <stdlib.h>

#define PIECE_BYTES ((size_t)64 << 10)

struct first_line {
    bool found;
    struct jsonl_line line;
};

static void take_first(void *context, const struct jsonl_line *line) {
    struct first_line *first = context;
    if (!first->found) *first = (struct first_line){true, *line};
}

static enum err refuse_input(struct error *error, const char *why) {
    return err_set(error, ERR_INVALID, "Invalid file format for Batch API. Must be .jsonl: %s",
                   why);
}

/* Reads on until the first line is whole, the file ends, or the line is too long to be one. */
static enum err find_first(struct store_spool *spool, uint64_t bytes, struct buf *text,
                           struct first_line *first, struct error *error) {
    struct jsonl_splitter splitter;
    jsonl_init(&splitter);
    enum err err = OK;
    for (uint64_t at = 0; at < bytes && !first->found && err == OK;) {
        size_t count = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        char *room = buf_reserve(text, count);
        if (!room) return refuse_input(error, "its first line is too long.");
        err = store_spool_read(spool, room, count, at, error);
        if (err != OK) return err;
        buf_commit(text, count);
        jsonl_feed(&splitter, (struct str){text->at + at, count}, take_first, first);
        at += count;
    }
    if (!first->found) jsonl_end(&splitter, take_first, first);
    return err;
}

enum err batch_spool_look(struct store_spool *spool, struct error *error) {
    uint64_t bytes = store_spool_bytes(spool);
    if (bytes == 0) return refuse_input(error, "the file is empty.");
    struct buf text;
    struct first_line first = {0};
    buf_init(&text, (size_t)BATCH_LINE_BYTES_MAX + PIECE_BYTES);
    enum err err = find_first(spool, bytes, &text, &first, error);
    if (err == OK && !first.found) err = refuse_input(error, "it has only blank lines.");
    if (err == OK) {
        struct str line = {text.at + first.line.offset, (size_t)first.line.bytes};
        if (!json_span_is_utf8(line) || !json_span_read(line, NULL))
            err = err_set(error, ERR_INVALID,
                          "Invalid file format for Batch API. Must be .jsonl: line %llu is not "
                          "valid JSON.",
                          (unsigned long long)first.line.number);
    }
    buf_release(&text);
    return err;
}
