/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline_input.h"

#include "base/mem.h"
#include "base/os.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20)

static enum err copy_all(int fd, const struct table_sink *sink, struct error *error) {
    char *piece = mem_alloc(PIECE_BYTES);
    size_t count = 1;
    enum err err = OK;
    while (err == OK && count > 0) {
        err = os_read(fd, piece, PIECE_BYTES, &count, error);
        if (err == OK) err = sink->take(sink->context, piece, count, error);
    }
    free(piece);
    return err;
}

/* Copies the first lines, and as many ends of lines as give each its number. */
static enum err copy_lines(int fd, uint64_t limit, const struct table_sink *sink,
                           struct error *error) {
    struct lines lines;
    struct buf text;
    uint64_t ended = 0;
    lines_init(&lines, fd);
    buf_init(&text, LINES_BYTES_MAX + PIECE_BYTES);
    enum err err = OK;
    for (uint64_t i = 0; i < limit && err == OK; i++) {
        err = lines_next(&lines, error);
        if (err != OK || !lines.line.at) break;
        buf_clear(&text);
        for (; ended + 1 < lines.number; ended++) buf_add_byte(&text, '\n');
        buf_add_str(&text, lines.line);
        buf_add_byte(&text, '\n');
        ended++;
        err = sink->take(sink->context, text.at, text.bytes, error);
    }
    lines_release(&lines);
    buf_release(&text);
    return err;
}

enum err offline_input_write(const struct offline_input *input, const struct table_sink *sink,
                             struct error *error) {
    int fd;
    if (input->table)
        return table_requests_write(input->table, input->path, input->limit, sink, error);
    enum err err = os_open(&fd, input->path, O_RDONLY, 0, error);
    if (err != OK) return err;
    err = input->limit ? copy_lines(fd, input->limit, sink, error) : copy_all(fd, sink, error);
    os_close(fd);
    return err;
}

static enum err add_to_hash(void *context, const void *bytes, size_t count, struct error *error) {
    (void)error;
    sha256_add(context, bytes, count);
    return OK;
}

enum err offline_input_sha256(const struct offline_input *input,
                              unsigned char ret_digest[SHA256_BYTES], struct error *error) {
    struct sha256 hash;
    struct table_sink sink = {&hash, add_to_hash};
    sha256_init(&hash);
    enum err err = offline_input_write(input, &sink, error);
    if (err == OK) sha256_end(&hash, ret_digest);
    return err;
}

void offline_input_mark(const struct offline_input *input, const unsigned char sha256[SHA256_BYTES],
                        unsigned char ret_mark[SHA256_BYTES]) {
    const struct table_answers_form *form = &input->form;
    if (form->kind == TABLE_NONE) {
        memcpy(ret_mark, sha256, SHA256_BYTES);
        return;
    }
    char text[64];
    struct sha256 hash;
    int bytes = snprintf(text, sizeof text, "table %d %d %d %d", (int)form->kind,
                         form->csv.separator, form->csv.is_excel_safe, form->has_tokens);
    sha256_init(&hash);
    sha256_add(&hash, sha256, SHA256_BYTES);
    sha256_add(&hash, text, (size_t)bytes);
    sha256_end(&hash, ret_mark);
}
