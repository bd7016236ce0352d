/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/judged.h"

#include "base/os.h"
#include "base/str.h"
#include "batch/jsonl_file.h"
#include "compare/result_line.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ID_BYTES_MAX ((size_t)64 << 10)
/* Upper bounds of what jansson and malloc take, without the texts. */
#define OBJECT_BYTES 240
#define ARRAY_BYTES 128
#define VALUE_BYTES 64
#define PAIR_BYTES 128 /* with its share of a table that has doubled */
#define COLUMNS_MAX 64
#define NAME_BYTES_MAX 512 /* names of an answer's values are no longer (result_line.c) */

/* {custom_id: {curator: VALUE}}: VALUE is an object of fields, a text, or null: no opinion. */
struct judging {
    struct judged *judged;
    json_t *opinions;
    json_t *answers; /* {custom_id: values}; NULL: not given */
    size_t room;     /* that is left for them */
};

bool judged_is(const char *path) {
    struct jsonl_file file;
    struct str line;
    struct error ignored;
    json_t *first = NULL;
    bool has_line = jsonl_file_open(&file, path, &ignored) == OK && jsonl_file_next(&file, &line) &&
                    json_read(&first, line, &ignored) == OK;
    bool has = has_line && !json_member(first, "response") && !json_member(first, "error") &&
               (json_object_get(first, "judgement") || json_member(first, "verdict"));
    json_decref(first);
    jsonl_file_close(&file);
    return has;
}

/* --- memory --- */

/* The memory of a tree. json_read bounds its depth. */
static size_t bytes_of(const json_t *value) {
    const char *key;
    json_t *member;
    size_t index, bytes, sum = VALUE_BYTES + json_string_length(value);
    if (json_is_object(value)) sum = OBJECT_BYTES;
    if (json_is_array(value)) sum = ARRAY_BYTES;
    json_object_keylen_foreach((json_t *)(uintptr_t)value, key, bytes, member) sum +=
        PAIR_BYTES + bytes + bytes_of(member);
    json_array_foreach(value, index, member) sum += 2 * sizeof member + bytes_of(member);
    return sum;
}

static enum err no_room(const struct judging *judging, struct error *error) {
    return err_set(error, ERR_LIMIT,
                   "the judgements, with the answers that they are about, take more than %zu MiB "
                   "of memory",
                   judging->judged->memory_max >> 20);
}

/* Counts what stays of a line. */
static enum err keep(struct judging *judging, struct str id, const json_t *value,
                     struct error *error) {
    size_t bytes = OBJECT_BYTES + 2 * PAIR_BYTES + id.bytes + bytes_of(value);
    if (bytes > judging->room) return no_room(judging, error);
    judging->room -= bytes;
    return OK;
}

/* Reads a line whose tree is freed, but for what `keep` counts. */
static enum err read_row(const struct judging *judging, struct str line, json_t **ret_row,
                         struct error *error) {
    size_t room = judging->room;
    enum err err = json_read_within(ret_row, line, &room, error);
    return err == ERR_LIMIT ? no_room(judging, error) : err;
}

/* --- answers that judgements are of --- */

static enum err add_answer(struct judging *judging, struct str text, struct buf *id,
                           struct error *error) {
    struct result_line line;
    enum err err = result_line_read(&line, text, true, id, error);
    if (err != OK) return err;
    if (line.values) {
        struct str name = {line.custom_id.at ? line.custom_id.at : "", line.custom_id.bytes};
        err = keep(judging, name, line.values, error);
        if (err == OK) json_object_setn_nocheck(judging->answers, name.at, name.bytes, line.values);
    }
    result_line_release(&line);
    return err;
}

/* The judgements of a project of Label Studio are in no file that has a name. */
static enum err at_line(const char *path, uint64_t number, struct error *error) {
    bool has_name = strncmp(path, "/proc/", 6) != 0;
    return err_prefix(error, "%s%sline %" PRIu64, has_name ? path : "", has_name ? ", " : "",
                      number);
}

static enum err read_answers(struct judging *judging, struct error *error) {
    struct jsonl_file file;
    struct str line;
    struct buf id;
    buf_init(&id, ID_BYTES_MAX);
    judging->answers = json_object();
    enum err err = jsonl_file_open(&file, judging->judged->answers, error);
    while (err == OK && jsonl_file_next(&file, &line)) {
        err = add_answer(judging, line, &id, error);
        if (err != OK) err = at_line(judging->judged->answers, file.lines.number, error);
    }
    buf_release(&id);
    return jsonl_file_end(&file, judging->judged->answers, err, error);
}

/* --- one judgement --- */

/* Whether a field is inside another one that was corrected: fields has "a" for "a.b". */
static bool is_inside(const json_t *fields, const char *name, size_t bytes) {
    for (size_t i = 0; i < bytes && i < NAME_BYTES_MAX; i++)
        if (name[i] == '.' && json_object_getn(fields, name, i)) return true;
    return false;
}

/* An answer with its corrections, each in the place of the answer's value and of its inner ones; a
 * text that is corrected is a text. */
static json_t *corrected(const json_t *answer, const json_t *fields) {
    json_t *own, *text = json_object_get(fields, ".text"), *value;
    const char *key;
    size_t bytes;
    void *next;
    if (text) return json_incref(text);
    if (json_object_size(answer) == 1 && json_is_string(json_object_get(answer, RESULT_TEXT)))
        return json_incref(json_object_get(answer, RESULT_TEXT));
    if (json_object_size(fields) == 0) return json_incref((json_t *)(uintptr_t)answer);
    own = json_copy((json_t *)(uintptr_t)answer);
    json_object_update(own, (json_t *)(uintptr_t)fields);
    json_object_keylen_foreach_safe(own, next, key, bytes, value) if (is_inside(fields, key, bytes))
        json_object_deln(own, key, bytes);
    return own;
}

/* A verdict on an answer that stands in its own file. */
static enum err from_verdict(const struct judging *judging, const json_t *row,
                             const json_t *verdict_of, json_t **ret_value, struct error *error) {
    struct str verdict = json_member_str(verdict_of, "verdict");
    struct str id = json_member_str(row, "custom_id");
    if (str_is(verdict, "skipped")) return *ret_value = json_null(), OK;
    if (!str_is(verdict, "accepted") && !str_is(verdict, "corrected"))
        return err_set(error, ERR_INVALID,
                       "the verdict is none of accepted, corrected and skipped");
    if (!judging->answers)
        return err_set(error, ERR_INVALID,
                       "the judgement is about an answer that it does not have; name the file of "
                       "these results (--judged-results)");
    const json_t *answer = json_object_getn(judging->answers, id.at, id.bytes);
    if (!answer)
        return err_set(error, ERR_INVALID, "%s has no answer of '%.*s'", judging->judged->answers,
                       (int)(id.bytes < 100 ? id.bytes : 100), id.at);
    *ret_value = corrected(answer, json_member(verdict_of, "fields"));
    return OK;
}

/* A judgement of an export has the right answer next to it. */
static json_t *exported(const json_t *row) {
    json_t *answer = json_member(row, "answer");
    return json_incref(answer ? answer : json_member(row, "text"));
}

static enum err take_value(const struct judging *judging, const json_t *row, json_t **ret_value,
                           struct error *error) {
    json_t *value = json_object_get(row, "judgement");
    const char *field = judging->judged->field;
    if (!value) return from_verdict(judging, row, row, ret_value, error);
    if (json_is_string(json_member(value, "verdict"))) {
        bool is_skipped = str_is(json_member_str(value, "verdict"), "skipped");
        *ret_value = is_skipped ? NULL : exported(row);
        return *ret_value ? OK : from_verdict(judging, row, value, ret_value, error);
    }
    if (json_is_null(value)) return *ret_value = json_null(), OK;
    if (json_is_object(value) || (json_is_string(value) && !field)) {
        *ret_value = json_incref(value);
        return OK;
    }
    if (!field)
        return err_set(error, ERR_INVALID,
                       "the judgement is neither an object nor a text; name the field that it is "
                       "of (--judgement-field)");
    *ret_value = json_object();
    json_object_set_nocheck(*ret_value, field, value);
    return OK;
}

static enum err add_opinion(struct judging *judging, const json_t *row, struct error *error) {
    struct str id = json_member_str(row, "custom_id"), curator = json_member_str(row, "curator");
    json_t *value = NULL, *of_line;
    if (!id.at) return err_set(error, ERR_INVALID, "it has no custom_id");
    if (json_is_object(json_member(row, "judgement")) && !curator.at)
        curator = json_member_str(json_member(row, "judgement"), "curator");
    if (json_object_size(judging->opinions) == JUDGED_MAX)
        return err_set(error, ERR_LIMIT, "more than %d lines are judged", JUDGED_MAX);
    enum err err = take_value(judging, row, &value, error);
    if (err == OK) err = keep(judging, id, value, error);
    if (err != OK) {
        json_decref(value);
        return err;
    }
    of_line = json_object_getn(judging->opinions, id.at, id.bytes);
    if (!of_line) {
        of_line = json_object();
        json_object_setn_new_nocheck(judging->opinions, id.at, id.bytes, of_line);
    }
    json_object_setn_new_nocheck(of_line, curator.at ? curator.at : "", curator.bytes, value);
    return OK;
}

static enum err read_judgements(struct judging *judging, const char *from, struct error *error) {
    struct jsonl_file file;
    struct str line;
    enum err err = jsonl_file_open(&file, from, error);
    while (err == OK && jsonl_file_next(&file, &line)) {
        json_t *row = NULL;
        err = read_row(judging, line, &row, error);
        if (err == OK) err = add_opinion(judging, row, error);
        if (err != OK) err = at_line(from, file.lines.number, error);
        json_decref(row);
    }
    return jsonl_file_end(&file, from, err, error);
}

/* --- columns --- */

/* Whether the schema that a request asks for says that the field is a text. */
static bool is_text(const json_t *body, struct str field) {
    const json_t *form = json_member(json_member(body, "response_format"), "json_schema");
    const json_t *properties = json_member(json_member(form, "schema"), "properties");
    const json_t *own = json_object_getn(properties, field.at, field.bytes);
    return str_is(json_member_str(own, "type"), "string") || json_member(own, "enum");
}

/* A cell as the value that an answer would have: tables know texts alone. */
static json_t *value_of(const json_t *cell, bool is_wanted_text) {
    struct error ignored;
    json_t *value = NULL;
    struct str text = json_str(cell);
    if (!json_is_string(cell) || is_wanted_text) return json_incref((json_t *)(uintptr_t)cell);
    if (json_read(&value, text, &ignored) == OK &&
        (json_is_number(value) || json_is_boolean(value)))
        return value;
    json_decref(value);
    return json_incref((json_t *)(uintptr_t)cell);
}

static bool is_empty(const json_t *cell) {
    return !cell || json_is_null(cell) || (json_is_string(cell) && json_str(cell).bytes == 0);
}

bool judged_has_cell(const struct judged *judged, struct str line) {
    struct error ignored;
    json_t *request = NULL;
    bool has_any = false;
    if (json_read(&request, line, &ignored) != OK) return false;
    const json_t *row = json_member(request, "row");
    for (size_t i = 0; i < judged->column_count && !has_any; i++)
        has_any =
            !is_empty(json_object_getn(row, judged->columns[i], strcspn(judged->columns[i], "=")));
    json_decref(request);
    return has_any;
}

/* Adds the cells of one request; counts the columns that it has. */
static enum err add_cells(struct judging *judging, const json_t *request, size_t *found,
                          struct error *error) {
    const struct judged *judged = judging->judged;
    const json_t *row = json_member(request, "row");
    struct str id = json_member_str(request, "custom_id");
    json_t *right = json_object();
    for (size_t i = 0; i < judged->column_count; i++) {
        size_t bytes = strcspn(judged->columns[i], "=");
        const char *after = judged->columns[i] + bytes;
        struct str field = *after ? str_from(after + 1) : (struct str){judged->columns[i], bytes};
        json_t *cell = json_object_getn(row, judged->columns[i], bytes);
        found[i] += cell != NULL;
        if (is_empty(cell)) continue;
        json_object_setn_new_nocheck(right, field.at, field.bytes,
                                     value_of(cell, is_text(json_member(request, "body"), field)));
    }
    bool is_judged = json_object_size(right) > 0 && id.at;
    enum err err = keep(judging, id, right, error);
    json_t *of_line = json_object();
    json_object_set_new(of_line, "", is_judged ? json_incref(right) : json_null());
    if (id.at && err == OK) json_object_setn_nocheck(judging->opinions, id.at, id.bytes, of_line);
    json_decref(of_line);
    json_decref(right);
    return err;
}

static enum err read_columns(struct judging *judging, const char *requests, struct error *error) {
    struct jsonl_file file;
    struct str line;
    size_t found[COLUMNS_MAX] = {0};
    const struct judged *judged = judging->judged;
    if (judged->column_count > COLUMNS_MAX)
        return err_set(error, ERR_LIMIT, "--compare-to-column: at most %d columns", COLUMNS_MAX);
    enum err err = jsonl_file_open(&file, requests, error);
    while (err == OK && jsonl_file_next(&file, &line)) {
        json_t *request = NULL;
        err = read_row(judging, line, &request, error);
        if (err == OK) err = add_cells(judging, request, found, error);
        if (err != OK) err = err_prefix(error, "line %" PRIu64, file.lines.number);
        json_decref(request);
    }
    err = jsonl_file_end(&file, requests, err, error);
    for (size_t i = 0; err == OK && i < judged->column_count; i++)
        if (found[i] == 0)
            err = err_set(error, ERR_INVALID,
                          "--compare-to-column: no request has a row with the column '%.*s'; "
                          "requests of a table (quern table) have their rows",
                          (int)strcspn(judged->columns[i], "="), judged->columns[i]);
    return err;
}

/* --- results --- */

/* The value on which all who have one agree; NULL: none. */
static const json_t *agreed(struct judged *judged, const json_t *of_line) {
    const char *curator;
    const json_t *found = NULL;
    json_t *value;
    bool is_disputed = false;
    json_object_foreach((json_t *)(uintptr_t)of_line, curator, value) {
        if (json_is_null(value)) continue;
        is_disputed |= found && !json_equal(found, value);
        found = value;
    }
    judged->skipped += !found;
    judged->disputed += is_disputed;
    return is_disputed ? NULL : found;
}

static void write_result(struct buf *out, struct str id, const json_t *value) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    if (json_is_string(value))
        buf_add_str(&text, json_str(value));
    else
        json_write(&text, value);
    buf_add_text(out, "{\"id\":\"judged\",\"custom_id\":");
    json_write_string(out, id);
    buf_add_text(out, ",\"response\":{\"status_code\":200,\"body\":{\"choices\":[{\"index\":0,"
                      "\"message\":{\"role\":\"assistant\",\"content\":");
    json_write_string(out, buf_str(&text));
    buf_add_text(out, "},\"finish_reason\":\"stop\"}]}},\"error\":null}\n");
    buf_release(&text);
}

static enum err write_all(struct judging *judging, const char *path, struct error *error) {
    struct judged *judged = judging->judged;
    char part[PATH_MAX + 8];
    const char *id;
    size_t bytes;
    json_t *of_line;
    struct buf out;
    int fd = -1;
    snprintf(part, sizeof part, "%s.part", path);
    buf_init(&out, BUF_UNLIMITED);
    enum err err = os_create(&fd, part, 0644, error);
    json_object_keylen_foreach(judging->opinions, id, bytes, of_line) {
        const json_t *value = err == OK ? agreed(judged, of_line) : NULL;
        if (!value) continue;
        buf_clear(&out);
        write_result(&out, (struct str){id, bytes}, value);
        judged->lines++;
        err = os_write_all(fd, out.at, out.bytes, error);
    }
    os_close(fd);
    buf_release(&out);
    if (err == OK && judged->lines == 0)
        err = err_set(error, ERR_INVALID, "no line has a judgement that all agree on");
    if (err == OK) err = os_rename(part, path, error);
    judged->is_made = err == OK;
    snprintf(judged->path, sizeof judged->path, "%s", path);
    return err;
}

/* --- the whole --- */

static struct judging begin(struct judged *judged) {
    if (judged->memory_max == 0) judged->memory_max = JUDGED_MEMORY_MAX;
    return (struct judging){judged, .opinions = json_object(), .room = judged->memory_max};
}

static void release(struct judging *judging) {
    json_decref(judging->opinions);
    json_decref(judging->answers);
}

enum err judged_from_file(struct judged *judged, const char *from, const char *path,
                          struct error *error) {
    struct judging judging = begin(judged);
    enum err err = judged->answers ? read_answers(&judging, error) : OK;
    if (err == OK) err = read_judgements(&judging, from, error);
    if (err == OK) err = write_all(&judging, path, error);
    release(&judging);
    return err;
}

enum err judged_from_columns(struct judged *judged, const char *requests, const char *path,
                             struct error *error) {
    struct judging judging = begin(judged);
    size_t used = (size_t)snprintf(judged->name, sizeof judged->name, "%s",
                                   judged->column_count > 1 ? "columns" : "column");
    for (size_t i = 0; i < judged->column_count && used < sizeof judged->name; i++)
        used += (size_t)snprintf(judged->name + used, sizeof judged->name - used, "%s %.*s",
                                 i > 0 ? "," : "", (int)strcspn(judged->columns[i], "="),
                                 judged->columns[i]);
    enum err err = read_columns(&judging, requests, error);
    if (err == OK) err = write_all(&judging, path, error);
    release(&judging);
    return err;
}
