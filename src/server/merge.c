/* SPDX-License-Identifier: Apache-2.0 */
#include "server/merge.h"

#include "base/buf.h"
#include "base/os.h"
#include "json/json.h"
#include "json/span.h"

#define PIECE_BYTES ((size_t)256 * 1024)
#define LINE_BYTES_MAX ((size_t)256 * 1024 * 1024)

/* The lines of one file, read in pieces. */
struct lines {
    int fd; /* -1: no lines */
    struct buf bytes;
    size_t at;
    bool ended;
    uint64_t number;      /* the current line's, from 1 */
    struct str line;      /* current line without its LF; at is NULL past the end */
    struct buf custom_id; /* the current line's, decoded */
};

static void lines_open(struct lines *lines, int fd) {
    *lines = (struct lines){.fd = fd, .ended = fd < 0};
    buf_init(&lines->bytes, LINE_BYTES_MAX);
    buf_init(&lines->custom_id, LINE_BYTES_MAX);
}

static void lines_close(struct lines *lines) {
    buf_release(&lines->bytes);
    buf_release(&lines->custom_id);
}

static enum err fill(struct lines *lines, struct error *error) {
    size_t count;
    buf_consume(&lines->bytes, lines->at);
    lines->at = 0;
    char *room = buf_reserve(&lines->bytes, PIECE_BYTES);
    if (!room)
        return err_set(error, ERR_LIMIT, "line %llu is too long",
                       (unsigned long long)lines->number);
    enum err err = os_read(lines->fd, room, PIECE_BYTES, &count, error);
    if (err != OK) return err;
    if (count == 0)
        lines->ended = true;
    else
        buf_commit(&lines->bytes, count);
    return OK;
}

/* Moves to the next line that is not blank. */
static enum err next(struct lines *lines, struct error *error) {
    for (;;) {
        struct str rest = str_skip(buf_str(&lines->bytes), lines->at);
        size_t end = str_find_byte(rest, '\n', 0);
        if (end == SIZE_MAX && !lines->ended) {
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
        lines->line = str_trim(lines->line);
        if (lines->line.bytes == 0) continue;
        buf_clear(&lines->custom_id);
        struct str raw = json_span_get(lines->line, "custom_id");
        if (raw.at) json_span_decode(&lines->custom_id, raw);
        return OK;
    }
}

static bool has_id_of(const struct lines *results, const struct lines *input) {
    return results->line.at && str_equals(buf_str(&results->custom_id), buf_str(&input->custom_id));
}

static enum err merge(struct lines *input, struct lines *results[2], struct buf *out, int out_fd,
                      struct error *error) {
    enum err err = next(input, error);
    for (int i = 0; i < 2 && err == OK; i++) err = next(results[i], error);
    while (err == OK && input->line.at) {
        struct lines *from = has_id_of(results[0], input) ? results[0] : results[1];
        if (!has_id_of(from, input))
            return err_set(error, ERR_CORRUPT, "no result for line %llu of the input",
                           (unsigned long long)input->number);
        buf_add_str(out, from->line);
        buf_add_byte(out, '\n');
        if (out->bytes >= PIECE_BYTES) {
            err = os_write_all(out_fd, out->at, out->bytes, error);
            buf_clear(out);
        }
        if (err == OK) err = next(from, error);
        if (err == OK) err = next(input, error);
    }
    if (err == OK) err = os_write_all(out_fd, out->at, out->bytes, error);
    return err;
}

enum err merge_results(int input_fd, int output_fd, int error_fd, int out_fd, struct error *error) {
    struct lines input, output, errors;
    struct buf out;
    lines_open(&input, input_fd);
    lines_open(&output, output_fd);
    lines_open(&errors, error_fd);
    buf_init(&out, 2 * LINE_BYTES_MAX);
    enum err err = merge(&input, (struct lines *[]){&output, &errors}, &out, out_fd, error);
    lines_close(&input);
    lines_close(&output);
    lines_close(&errors);
    buf_release(&out);
    return err;
}
