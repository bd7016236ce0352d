/* SPDX-License-Identifier: Apache-2.0 */
#include "table/join.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/os.h"
#include "json/lines.h"
#include "json/span.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>

#define FLUSH_BYTES ((size_t)256 << 10)
#define NO_RESULT                                                                                  \
    STR("{\"error\":{\"code\":\"no_result\",\"message\":\"No file of results has this line.\"}}")

struct place {
    uint64_t offset;
    size_t bytes;
    size_t file;
};

struct join {
    int fds[TABLE_JOIN_FILES_MAX];
    struct map by_id; /* numbers of places by custom_id */
    struct place *places;
    size_t count, capacity;
    struct buf id, line, out;
    uint64_t missing;
};

/* Decodes the custom_id of the current line. */
static enum err read_id(struct join *join, const struct lines *lines, const char *path,
                        struct error *error) {
    struct str raw = json_span_get(lines->line, "custom_id");
    buf_clear(&join->id);
    if (!json_span_is_string(raw))
        return err_set(error, ERR_INVALID, "%s: line %" PRIu64 " has no custom_id", path,
                       lines->number);
    json_span_decode(&join->id, raw);
    return OK;
}

static enum err index_file(struct join *join, size_t file, const char *path, struct error *error) {
    struct lines lines;
    lines_init(&lines, join->fds[file]);
    enum err err = lines_next(&lines, error);
    while (err == OK && lines.line.at) {
        err = read_id(join, &lines, path, error);
        if (err == OK && !map_put_new(&join->by_id, buf_str(&join->id), join->count, NULL))
            err = err_set(error, ERR_INVALID,
                          "%s: line %" PRIu64 ": an earlier result has its custom_id", path,
                          lines.number);
        if (err != OK) break;
        join->places = vec_grow(join->places, join->count, &join->capacity, sizeof *join->places);
        join->places[join->count++] = (struct place){lines.offset, lines.line.bytes, file};
        err = lines_next(&lines, error);
    }
    lines_release(&lines);
    return err;
}

/* The result of the request whose custom_id was read. */
static enum err find_result(struct join *join, struct str *ret_result, struct error *error) {
    uint64_t number;
    if (!map_get(&join->by_id, buf_str(&join->id), &number)) {
        *ret_result = NO_RESULT;
        join->missing++;
        return OK;
    }
    const struct place *place = &join->places[number];
    buf_clear(&join->line);
    char *room = buf_reserve(&join->line, place->bytes);
    if (!room) return err_set(error, ERR_LIMIT, "a result is too long");
    enum err err = os_pread_all(join->fds[place->file], room, place->bytes, place->offset, error);
    if (err == OK) buf_commit(&join->line, place->bytes);
    *ret_result = buf_str(&join->line);
    return err;
}

static enum err flush(struct join *join, size_t least, int out_fd, struct error *error) {
    if (join->out.bytes < least || join->out.bytes == 0) return OK;
    enum err err = os_write_all(out_fd, join->out.at, join->out.bytes, error);
    buf_clear(&join->out);
    return err;
}

static enum err write_rows(struct join *join, const char *requests, struct lines *lines,
                           struct table_answers *answers, int out_fd, struct error *error) {
    enum err err = lines_next(lines, error);
    while (err == OK && lines->line.at) {
        struct str result = {NULL, 0};
        err = read_id(join, lines, requests, error);
        if (err == OK) err = find_result(join, &result, error);
        if (err == OK) {
            err = table_answers_write(answers, lines->line, result, &join->out, error);
            if (err != OK) err = err_prefix(error, "%s: line %" PRIu64, requests, lines->number);
        }
        if (err == OK) err = flush(join, FLUSH_BYTES, out_fd, error);
        if (err == OK) err = lines_next(lines, error);
    }
    return err == OK ? flush(join, 0, out_fd, error) : err;
}

enum err table_join_write(const char *requests, const char *const *results, size_t result_count,
                          const struct table_answers_form *form, int out_fd, uint64_t *ret_missing,
                          struct error *error) {
    struct join join = {.fds = {-1, -1}};
    struct lines lines;
    int fd = -1;
    assert(result_count <= TABLE_JOIN_FILES_MAX);
    map_init(&join.by_id);
    buf_init(&join.id, LINES_BYTES_MAX);
    buf_init(&join.line, LINES_BYTES_MAX);
    buf_init(&join.out, 4 * LINES_BYTES_MAX);
    enum err err = os_open(&fd, requests, O_RDONLY, 0, error);
    if (err != OK) fd = -1;
    for (size_t i = 0; i < result_count && err == OK; i++) {
        err = os_open(&join.fds[i], results[i], O_RDONLY, 0, error);
        if (err != OK) join.fds[i] = -1;
        if (err == OK) err = index_file(&join, i, results[i], error);
    }
    lines_init(&lines, fd);
    struct table_answers *answers = table_answers_open(form);
    if (err == OK) err = write_rows(&join, requests, &lines, answers, out_fd, error);
    *ret_missing = join.missing;
    table_answers_close(answers);
    lines_release(&lines);
    os_close(fd);
    for (size_t i = 0; i < TABLE_JOIN_FILES_MAX; i++) os_close(join.fds[i]);
    map_release(&join.by_id);
    free(join.places);
    buf_release(&join.id);
    buf_release(&join.line);
    buf_release(&join.out);
    return err;
}
