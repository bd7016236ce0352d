/* SPDX-License-Identifier: Apache-2.0 */

/* The multipart reader over hostile bytes. The first line of the input is the Content-Type, the
 * next byte is the size of the pieces the rest is fed in. The same body fed whole must give the
 * same events. */

#include "base/buf.h"
#include "http/multipart.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool begin(void *context, const struct multipart_part *part) {
    buf_printf(context, "[%s|%s|%d|%s]", part->name, part->filename, part->has_filename,
               part->content_type);
    return true;
}

static bool add(void *context, struct str bytes) {
    buf_add_str(context, bytes);
    return true;
}

static bool end(void *context) {
    buf_add_text(context, "[end]");
    return true;
}

static enum err read_in_pieces(struct str type, struct str body, size_t piece_bytes,
                               struct buf *log) {
    struct multipart multipart;
    struct multipart_events events = {log, begin, add, end};
    struct error error;
    enum err err = multipart_init(&multipart, type, &events, &error);
    while (err == OK && body.bytes > 0) {
        size_t count = body.bytes < piece_bytes ? body.bytes : piece_bytes;
        /* An exact-size copy, so that a read past the piece is seen. */
        char *piece = malloc(count);
        if (!piece) abort();
        memcpy(piece, body.at, count);
        err = multipart_feed(&multipart, (struct str){piece, count}, &error);
        free(piece);
        body = str_skip(body, count);
    }
    return err == OK ? multipart_end(&multipart, &error) : err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct str input = {(const char *)data, bytes};
    size_t line = str_find_byte(input, '\n', 0);
    if (line == SIZE_MAX || line + 1 >= bytes) return 0;
    struct str type = {input.at, line};
    size_t piece_bytes = (size_t)data[line + 1] + 1;
    struct str body = str_skip(input, line + 2);
    struct buf whole, pieces;
    buf_init(&whole, BUF_UNLIMITED);
    buf_init(&pieces, BUF_UNLIMITED);
    enum err whole_err = read_in_pieces(type, body, body.bytes + 1, &whole);
    enum err pieces_err = read_in_pieces(type, body, piece_bytes, &pieces);
    assert(whole_err == pieces_err);
    assert(str_equals(buf_str(&whole), buf_str(&pieces)));
    buf_release(&whole);
    buf_release(&pieces);
    return 0;
}
