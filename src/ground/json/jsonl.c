/* SPDX-License-Identifier: Apache-2.0 */
#include "json/jsonl.h"

#include <string.h>

static const unsigned char byte_order_mark[3] = {0xEF, 0xBB, 0xBF};

void jsonl_init(struct jsonl_splitter *splitter) {
    *splitter = (struct jsonl_splitter){.line_number = 1, .blank = true};
}

static void end_line(struct jsonl_splitter *splitter, uint64_t end, jsonl_line_fn line,
                     void *context) {
    if (!splitter->blank) {
        struct jsonl_line found = {.number = splitter->line_number,
                                   .offset = splitter->line_start,
                                   .bytes = end - splitter->line_start - splitter->ends_with_cr};
        line(context, &found);
    }
    splitter->line_number++;
    splitter->blank = true;
    splitter->ends_with_cr = false;
}

/* Takes the bytes of a byte-order mark at the start of the file, one at a time. */
static size_t skip_mark(struct jsonl_splitter *splitter, struct str bytes) {
    size_t at = 0;
    while (!splitter->started && at < bytes.bytes) {
        if ((unsigned char)bytes.at[at] != byte_order_mark[splitter->bom_seen]) {
            /* Not a mark after all: the bytes that looked like its start belong to line 1. */
            splitter->started = true;
            if (splitter->bom_seen > 0) splitter->blank = false;
            break;
        }
        at++;
        if (++splitter->bom_seen == sizeof byte_order_mark) {
            splitter->started = true;
            splitter->line_start = sizeof byte_order_mark;
        }
    }
    return at;
}

static bool is_blank(struct str part) {
    for (size_t i = 0; i < part.bytes; i++)
        if (part.at[i] != ' ' && part.at[i] != '\t' && part.at[i] != '\r') return false;
    return true;
}

void jsonl_feed(struct jsonl_splitter *splitter, struct str bytes, jsonl_line_fn line,
                void *context) {
    uint64_t base = splitter->at;
    size_t at = skip_mark(splitter, bytes);
    while (at < bytes.bytes) {
        size_t end = str_find_byte(bytes, '\n', at);
        bool ended = end != SIZE_MAX;
        struct str part = {bytes.at + at, (ended ? end : bytes.bytes) - at};
        if (splitter->blank) splitter->blank = is_blank(part);
        if (part.bytes > 0) splitter->ends_with_cr = part.at[part.bytes - 1] == '\r';
        if (!ended) break;
        end_line(splitter, base + end, line, context);
        at = end + 1;
        splitter->line_start = base + at;
    }
    splitter->at = base + bytes.bytes;
}

void jsonl_end(struct jsonl_splitter *splitter, jsonl_line_fn line, void *context) {
    if (!splitter->started && splitter->bom_seen > 0) splitter->blank = false;
    if (splitter->at > splitter->line_start) end_line(splitter, splitter->at, line, context);
}
