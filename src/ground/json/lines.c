/* SPDX-License-Identifier: Apache-2.0 */
#include "json/lines.h"

#include "base/os.h"
#include "json/span.h"

#include <inttypes.h>

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
        return err_set(error, ERR_LIMIT, "line %" PRIu64 " has more than %zu bytes",
                       lines->number + 1, LINES_BYTES_MAX);
    enum err err = os_read(lines->fd, room, PIECE_BYTES, &count, error);
    if (err != OK) return err;
    if (count == 0)
        lines->has_ended = true;
    else
        buf_commit(&lines->bytes, count);
    return OK;
}

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
        if (lines->number == 1 && str_starts_with(lines->line, STR("\xEF\xBB\xBF")))
            lines->line = str_skip(lines->line, 3);
        lines->line = json_span_trim(lines->line);
        lines->offset += (uint64_t)(lines->line.at - whole);
        if (lines->line.bytes > 0) return OK;
    }
}
