/* SPDX-License-Identifier: Apache-2.0 */
#include "json/lines.h"

#include "base/os.h"
#include "json/span.h"

#include <inttypes.h>

#define PIECE_BYTES ((size_t)256 << 10)

void lines_init(struct lines *lines, int fd) {
    lines_init_part(lines, fd, 0, LINES_STREAM);
}

void lines_init_part(struct lines *lines, int fd, uint64_t begin, uint64_t end) {
    *lines = (struct lines){.fd = fd, .base = begin, .end = end, .has_ended = fd < 0};
    buf_init(&lines->bytes, LINES_BYTES_MAX + 2 * PIECE_BYTES);
}

void lines_release(struct lines *lines) {
    buf_release(&lines->bytes);
}

/* Reads the bytes that follow those in the buffer; none at the end. */
static enum err read_piece(const struct lines *lines, char *room, size_t *ret_count,
                           struct error *error) {
    if (lines->end == LINES_STREAM) return os_read(lines->fd, room, PIECE_BYTES, ret_count, error);
    uint64_t at = lines->base + lines->bytes.bytes;
    uint64_t left = at < lines->end ? lines->end - at : 0;
    *ret_count = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    return os_pread_all(lines->fd, room, *ret_count, at, error);
}

static enum err fill(struct lines *lines, struct error *error) {
    size_t count;
    buf_consume(&lines->bytes, lines->at);
    lines->base += lines->at;
    lines->at = 0;
    char *room = buf_reserve(&lines->bytes, PIECE_BYTES);
    if (!room)
        return err_set(error, ERR_LIMIT, "line %" PRIu64 " has more than %zu bytes",
                       lines->number + 1, LINES_BYTES_MAX);
    enum err err = read_piece(lines, room, &count, error);
    if (err != OK) return err;
    if (count == 0)
        lines->has_ended = true;
    else
        buf_commit(&lines->bytes, count);
    return OK;
}

/* A long line comes in many pieces, of which each is searched once. */
enum err lines_next_whole(struct lines *lines, struct error *error) {
    size_t searched = 0, end;
    for (;;) {
        struct str rest = str_skip(buf_str(&lines->bytes), lines->at);
        end = str_find_byte(rest, '\n', searched);
        lines->line = (struct str){rest.at, end == SIZE_MAX ? rest.bytes : end + 1};
        if (end != SIZE_MAX || lines->has_ended) break;
        searched = rest.bytes;
        enum err err = fill(lines, error);
        if (err != OK) return err;
    }
    lines->offset = lines->base + lines->at;
    if (lines->line.bytes == 0) {
        lines->line.at = NULL;
        return OK;
    }
    lines->at += lines->line.bytes;
    lines->number++;
    return OK;
}

enum err lines_next(struct lines *lines, struct error *error) {
    for (;;) {
        enum err err = lines_next_whole(lines, error);
        if (err != OK || !lines->line.at) return err;
        const char *whole = lines->line.at;
        if (lines->offset == 0 && str_starts_with(lines->line, STR("\xEF\xBB\xBF")))
            lines->line = str_skip(lines->line, 3);
        lines->line = json_span_trim(lines->line);
        lines->offset += (uint64_t)(lines->line.at - whole);
        if (lines->line.bytes > 0) return OK;
    }
}
