/* SPDX-License-Identifier: Apache-2.0 */
#include "json/lines.h"

#include "base/os.h"
#include "json/span.h"

#define PIECE_BYTES ((size_t)256 << 10)

void lines_init(struct lines *lines, int fd) {
    *lines = (struct lines){.fd = fd, .has_ended = fd < 0};
    buf_init(&lines->bytes, LINES_BYTES_MAX);
}

void lines_release(struct lines *lines) {
    buf_release(&lines->bytes);
}

static enum err fill(struct lines *lines, struct error *error) {
    size_t count;
    buf_consume(&lines->bytes, lines->at);
    lines->base += lines->at;
    lines->at = 0;
    char *room = buf_reserve(&lines->bytes, PIECE_BYTES);
    if (!room)
        return err_set(error, ERR_LIMIT, "line %llu is too long",
                       (unsigned long long)lines->number + 1);
    enum err err = os_read(lines->fd, room, PIECE_BYTES, &count, error);
    if (err != OK) return err;
    if (count == 0)
        lines->has_ended = true;
    else
        buf_commit(&lines->bytes, count);
    return OK;
}

enum err lines_next(struct lines *lines, struct error *error) {
    for (;;) {
        struct str rest = str_skip(buf_str(&lines->bytes), lines->at);
        size_t end = str_find_byte(rest, '\n', 0);
        if (end == SIZE_MAX && !lines->has_ended) {
            enum err err = fill(lines, error);
            if (err != OK) return err;
            continue;
        }
        if (end == SIZE_MAX && rest.bytes == 0) {
            lines->line = (struct str){NULL, 0};
            return OK;
        }
        lines->line = (struct str){rest.at, end == SIZE_MAX ? rest.bytes : end};
        lines->at += lines->line.bytes + (end != SIZE_MAX);
        lines->number++;
        if (lines->number == 1 && str_starts_with(lines->line, STR("\xEF\xBB\xBF")))
            lines->line = str_skip(lines->line, 3);
        lines->line = json_span_trim(lines->line);
        lines->offset = lines->base + (uint64_t)(lines->line.at - lines->bytes.at);
        if (lines->line.bytes > 0) return OK;
    }
}
