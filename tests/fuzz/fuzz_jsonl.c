/* SPDX-License-Identifier: Apache-2.0 */
/* JSONL and JSON. The splitter gives the same lines for any cut of the bytes, and each line lies
 * inside the file. A text that json_read takes is written by json_write so that it reads back
 * equal. */
#include "json/json.h"
#include "json/jsonl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct lines {
    struct jsonl_line at[256];
    size_t count;
};

static void add_line(void *context, const struct jsonl_line *line) {
    struct lines *lines = context;
    if (lines->count < 256) lines->at[lines->count++] = *line;
}

static void split(struct str whole, size_t piece, struct lines *ret_lines) {
    struct jsonl_splitter splitter;
    jsonl_init(&splitter);
    ret_lines->count = 0;
    for (size_t at = 0; at < whole.bytes; at += piece) {
        struct str part = str_skip(whole, at);
        if (part.bytes > piece) part.bytes = piece;
        jsonl_feed(&splitter, part, add_line, ret_lines);
    }
    jsonl_end(&splitter, add_line, ret_lines);
}

static void check_json(struct str text) {
    struct error error;
    json_t *value, *again;
    if (json_read(&value, text, &error) != OK) return;
    struct buf ascii, canonical;
    buf_init(&ascii, 1u << 24);
    buf_init(&canonical, 1u << 24);
    json_write(&ascii, value);
    for (size_t i = 0; i < ascii.bytes; i++) assert((unsigned char)ascii.at[i] < 0x80);
    enum err err = json_read(&again, buf_str(&ascii), &error);
    assert(err == OK);
    assert(json_equal(value, again));
    json_write_canonical(&canonical, value);
    json_decref(value);
    json_decref(again);
    buf_release(&ascii);
    buf_release(&canonical);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    struct str whole = {copy, bytes};
    struct lines one, other;
    split(whole, bytes ? bytes : 1, &one);
    split(whole, 1 + bytes % 7, &other);
    assert(one.count == other.count);
    for (size_t i = 0; i < one.count; i++) {
        assert(memcmp(&one.at[i], &other.at[i], sizeof one.at[i]) == 0);
        assert(one.at[i].offset + one.at[i].bytes <= bytes);
        check_json((struct str){copy + one.at[i].offset, (size_t)one.at[i].bytes});
    }
    free(copy);
    return 0;
}
