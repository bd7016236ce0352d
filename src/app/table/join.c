/* SPDX-License-Identifier: Apache-2.0 */
#include "table/join.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/os_pipe.h"
#include "json/json.h"
#include "json/lines.h"
#include "json/span.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define FLUSH_BYTES ((size_t)256 << 10)
#define NO_RESULT                                                                                  \
    STR("{\"error\":{\"code\":\"no_result\",\"message\":\"No file of results has this line.\"}}")

struct join_place {
    uint64_t offset, number; /* place of the line */
    size_t bytes;
    size_t file;
    bool is_readable, is_used;
};

struct join {
    const struct table_join *is;
    struct table_join_report report;
    int fds[TABLE_JOIN_FILES_MAX], rest_fd;
    struct map by_id; /* numbers of places by custom_id */
    struct map asked; /* custom_ids of requests without a result, to find one that occurs twice */
    struct join_place *places;
    size_t count, capacity;
    size_t ids; /* lines of results with a custom_id */
    struct buf id, line, made, out, rest;
};

static const char *name_of(const struct join *join, size_t file) {
    return join->is->name ? join->is->name : join->is->results[file];
}

/* Decodes the custom_id of the current line, if one stands before any damage. */
static bool read_id(struct join *join, struct str line) {
    struct str raw = json_span_get(line, "custom_id");
    buf_clear(&join->id);
    if (!json_span_is_string(raw)) return false;
    json_span_decode(&join->id, raw);
    return true;
}

/* --- the results --- */

/* Says why a line is no result. */
static void say_why(struct str line, struct error *ret_why) {
    json_t *value = NULL;
    if (json_read(&value, line, ret_why) != OK) return;
    (void)err_set(ret_why, ERR_INVALID,
                  json_is_object(value) ? "it has no custom_id" : "JSON, but no object");
    json_decref(value);
}

static void add_unreadable(struct join *join, const struct lines *lines, size_t file) {
    struct error why;
    if (join->report.unreadable++ > 0) return;
    say_why(lines->line, &why);
    snprintf(join->report.unreadable_at, sizeof join->report.unreadable_at,
             "%.100s: line %" PRIu64 ": %.150s", name_of(join, file), lines->number, why.text);
}

/* Makes the place findable by the custom_id that was read. Of two lines of an id, one of which
 * cannot be read, the other one counts. */
static enum err put_place(struct join *join, const struct lines *lines,
                          const struct join_place *place, struct error *error) {
    uint64_t earlier;
    if (!map_get(&join->by_id, buf_str(&join->id), &earlier) ||
        (place->is_readable && !join->places[earlier].is_readable)) {
        map_put(&join->by_id, buf_str(&join->id), join->count);
        return OK;
    }
    if (!place->is_readable) return OK;
    return err_set(error, ERR_INVALID, "%s: line %" PRIu64 ": an earlier result has its custom_id",
                   name_of(join, place->file), lines->number);
}

static enum err index_line(struct join *join, const struct lines *lines, size_t file,
                           struct error *error) {
    struct join_place place = {
        .offset = lines->offset, .number = lines->number, .bytes = lines->line.bytes, .file = file};
    bool has_id = read_id(join, lines->line);
    join->ids += has_id;
    place.is_readable =
        has_id && json_span_is_utf8(lines->line) && json_span_read(lines->line, NULL);
    if (!place.is_readable) add_unreadable(join, lines, file);
    enum err err = has_id ? put_place(join, lines, &place, error) : OK;
    if (err != OK) return err;
    join->places = vec_grow(join->places, join->count, &join->capacity, sizeof *join->places);
    join->places[join->count++] = place;
    return OK;
}

static enum err index_file(struct join *join, size_t file, struct error *error) {
    size_t before = join->count, ids = join->ids;
    struct lines lines;
    lines_init(&lines, join->fds[file]);
    enum err err = lines_next(&lines, error);
    while (err == OK && lines.line.at) {
        err = index_line(join, &lines, file, error);
        if (err == OK) err = lines_next(&lines, error);
    }
    lines_release(&lines);
    if (err != OK || join->count == before || join->ids > ids) return err;
    return err_set(error, ERR_INVALID, "%s: line %" PRIu64 " has no custom_id", name_of(join, file),
                   join->places[before].number);
}

static enum err read_place(struct join *join, const struct join_place *place, struct error *error) {
    buf_clear(&join->line);
    char *room = buf_reserve(&join->line, place->bytes);
    if (!room) return err_set(error, ERR_LIMIT, "a result is too long");
    enum err err = os_pread_all(join->fds[place->file], room, place->bytes, place->offset, error);
    if (err == OK) buf_commit(&join->line, place->bytes);
    return err;
}

/* --- the rest --- */

static enum err flush(struct buf *out, size_t least, int fd, struct error *error) {
    if (out->bytes < least || out->bytes == 0) return OK;
    enum err err = fd < 0 ? OK : os_write_all(fd, out->at, out->bytes, error);
    buf_clear(out);
    return err;
}

static enum err add_to_rest(struct join *join, struct error *error) {
    buf_add_str(&join->rest, buf_str(&join->line));
    buf_add_byte(&join->rest, '\n');
    return flush(&join->rest, FLUSH_BYTES, join->rest_fd, error);
}

/* Keeps the results that no row has. */
static enum err add_unused(struct join *join, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < join->count && err == OK; i++) {
        const struct join_place *place = &join->places[i];
        if (place->is_used) continue;
        err = read_place(join, place, error);
        if (err == OK && place->is_readable && join->report.foreign++ == 0) {
            (void)read_id(join, buf_str(&join->line));
            snprintf(join->report.foreign_at, sizeof join->report.foreign_at,
                     "%.100s: line %" PRIu64 ": custom_id '%.100s'", name_of(join, place->file),
                     place->number, join->id.bytes ? join->id.at : "");
        }
        if (err == OK) err = add_to_rest(join, error);
    }
    return err;
}

/* --- the rows --- */

/* Stands for a result that cannot be read. */
static struct str make_unreadable(struct join *join, const struct join_place *place) {
    struct error why;
    struct buf sentence;
    buf_init(&sentence, BUF_UNLIMITED);
    say_why(buf_str(&join->line), &why);
    buf_printf(&sentence, "Line %" PRIu64 " of %s: %s", place->number, name_of(join, place->file),
               why.text);
    buf_clear(&join->made);
    buf_add_text(&join->made, "{\"error\":{\"code\":\"unreadable_result\",\"message\":");
    json_write_utf8_string(&join->made, buf_str(&sentence));
    buf_add_text(&join->made, "}}");
    buf_release(&sentence);
    return buf_str(&join->made);
}

/* The result of the request whose custom_id was read; *ret_place is NULL if it has none. */
static enum err find_result(struct join *join, struct str *ret_result,
                            struct join_place **ret_place, struct error *error) {
    uint64_t number;
    *ret_place = NULL;
    if (!map_get(&join->by_id, buf_str(&join->id), &number)) {
        *ret_result = NO_RESULT;
        join->report.missing++;
        return map_put_new(&join->asked, buf_str(&join->id), 0, NULL)
                   ? OK
                   : err_set(error, ERR_INVALID, "an earlier request has its custom_id");
    }
    struct join_place *place = &join->places[number];
    if (place->is_used) return err_set(error, ERR_INVALID, "an earlier request has its custom_id");
    place->is_used = true;
    enum err err = read_place(join, place, error);
    if (err != OK) return err;
    *ret_result = place->is_readable ? buf_str(&join->line) : make_unreadable(join, place);
    *ret_place = place;
    return OK;
}

static enum err write_row(struct join *join, struct str request, struct table_answers *answers,
                          struct error *error) {
    struct str result = {NULL, 0};
    struct join_place *place = NULL;
    if (!read_id(join, request)) return err_set(error, ERR_INVALID, "it has no custom_id");
    enum err err = find_result(join, &result, &place, error);
    if (err == OK) err = table_answers_write(answers, request, result, &join->out, error);
    if (err != OK || !place) return err;
    if (place->is_readable && table_answers_showed_all(answers)) return OK;
    join->report.partial += place->is_readable;
    return add_to_rest(join, error);
}

static enum err write_rows(struct join *join, struct lines *lines, struct table_answers *answers,
                           int out_fd, struct error *error) {
    enum err err = lines_next(lines, error);
    while (err == OK && lines->line.at) {
        err = write_row(join, lines->line, answers, error);
        if (err != OK)
            return err_prefix(error, "%s: line %" PRIu64, join->is->requests, lines->number);
        err = flush(&join->out, FLUSH_BYTES, out_fd, error);
        if (err == OK) err = lines_next(lines, error);
    }
    if (err == OK) err = add_unused(join, error);
    if (err == OK) err = flush(&join->rest, 0, join->rest_fd, error);
    return err == OK ? flush(&join->out, 0, out_fd, error) : err;
}

static void open_join(struct join *join) {
    map_init(&join->by_id);
    map_init(&join->asked);
    buf_init(&join->id, LINES_BYTES_MAX);
    buf_init(&join->line, LINES_BYTES_MAX);
    buf_init(&join->made, LINES_BYTES_MAX);
    buf_init(&join->out, 4 * LINES_BYTES_MAX);
    buf_init(&join->rest, 2 * LINES_BYTES_MAX);
}

static void close_join(struct join *join) {
    for (size_t i = 0; i < TABLE_JOIN_FILES_MAX; i++) os_close(join->fds[i]);
    map_release(&join->by_id);
    map_release(&join->asked);
    free(join->places);
    buf_release(&join->id);
    buf_release(&join->line);
    buf_release(&join->made);
    buf_release(&join->out);
    buf_release(&join->rest);
}

enum err table_join_write(const struct table_join *wish, int out_fd, int rest_fd,
                          struct table_join_report *ret_report, struct error *error) {
    struct join join = {.is = wish, .fds = {-1, -1}, .rest_fd = rest_fd};
    struct lines lines;
    int fd = -1;
    assert(wish->result_count <= TABLE_JOIN_FILES_MAX);
    open_join(&join);
    enum err err = os_open(&fd, wish->requests, O_RDONLY, 0, error);
    if (err != OK) fd = -1;
    for (size_t i = 0; i < wish->result_count && err == OK; i++) {
        err = os_open_plain(&join.fds[i], wish->results[i], error);
        if (err != OK) join.fds[i] = -1;
        if (err == OK) err = index_file(&join, i, error);
    }
    lines_init(&lines, fd);
    struct table_answers *answers = table_answers_open(&wish->form);
    if (err == OK) err = write_rows(&join, &lines, answers, out_fd, error);
    *ret_report = join.report;
    table_answers_close(answers);
    lines_release(&lines);
    os_close(fd);
    close_join(&join);
    return err;
}
