/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/workload.h"

#include "base/mem.h"
#include "base/no_memory.h"
#include "base/rng.h"
#include "batch/jsonl_file.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- a file --- */

static bool is_streamed(struct str path) {
    return str_is(path, "/chat/completions") || str_is(path, "/completions");
}

static enum err add_line(struct workload *workload, struct str text, struct error *error) {
    json_t *line;
    enum err err = json_read(&line, text, error);
    if (err != OK) return err;
    struct str id = json_member_str(line, "custom_id"), url = json_member_str(line, "url");
    json_t *body = json_member(line, "body");
    if (!json_is_object(body) || !str_starts_with(url, STR("/v1/")) || !id.at) {
        json_decref(line);
        return err_set(error, ERR_INVALID,
                       "no request of a batch: it needs custom_id, a url under /v1/ and a body");
    }
    struct str path = str_skip(url, 3);
    workload->lines =
        vec_grow(workload->lines, workload->count, &workload->capacity, sizeof *workload->lines);
    workload->lines[workload->count++] = (struct workload_line){.custom_id = mem_str(id),
                                                                .path = mem_str(path),
                                                                .body = json_incref(body),
                                                                .is_streamed = is_streamed(path)};
    json_decref(line);
    return OK;
}

enum err workload_read(struct workload *workload, const char *path, size_t count_max,
                       struct error *error) {
    struct jsonl_file file;
    struct str text;
    const char *name = strrchr(path, '/');
    snprintf(workload->name, sizeof workload->name, "%s", name ? name + 1 : path);
    enum err err = jsonl_file_open(&file, path, error);
    while (err == OK && (count_max == 0 || workload->count < count_max) &&
           jsonl_file_next(&file, &text)) {
        err = add_line(workload, text, error);
        if (err != OK) err = err_prefix(error, "%s, line %" PRIu64, path, file.lines.number);
    }
    err = jsonl_file_end(&file, path, err, error);
    if (err == OK && workload->count == 0)
        err = err_set(error, ERR_INVALID, "%s has no line", path);
    return err;
}

/* --- drawn chats --- */

static void add_words(struct buf *text, struct rng *rng, uint32_t count) {
    static const char *const words[] = {
        "the",   "time",  "year",  "people", "way",   "day",   "man",   "thing", "world", "life",
        "hand",  "part",  "child", "eye",    "woman", "place", "work",  "week",  "case",  "point",
        "group", "fact",  "home",  "water",  "room",  "book",  "line",  "city",  "game",  "power",
        "house", "state", "name",  "team",   "level", "night", "money", "story", "month", "study",
        "light", "right", "large", "small",  "early", "young", "great", "white"};
    for (uint32_t i = 0; i < count; i++) {
        if (text->bytes > 0) buf_add_byte(text, ' ');
        buf_add_text(text, words[rng_below(rng, sizeof words / sizeof *words)]);
    }
}

static json_t *chat_of(const struct buf *text, uint32_t output_tokens) {
    /* ignore_eos makes the answers as long as they are asked for, where a server knows it. */
    json_t *body = json_pack("{s:s, s:[{s:s, s:s}], s:i, s:f, s:b}", "model", "bench", "messages",
                             "role", "user", "content", text->at ? text->at : "", "max_tokens",
                             (int)output_tokens, "temperature", 0.0, "ignore_eos", 1);
    if (!body) no_memory();
    return body;
}

void workload_draw(struct workload *workload, const struct workload_draw *draw) {
    struct rng of_prefix = {draw->seed}, rng = {draw->seed ^ 0x9E3779B97F4A7C15u};
    uint32_t shared =
        draw->prefix_words < draw->input_words ? draw->prefix_words : draw->input_words;
    struct buf prefix, text;
    char id[32];
    buf_init(&prefix, BUF_UNLIMITED);
    buf_init(&text, BUF_UNLIMITED);
    add_words(&prefix, &of_prefix, shared);
    snprintf(workload->name, sizeof workload->name, "%" PRIu32 ":%" PRIu32, draw->input_words,
             draw->output_tokens);
    for (uint32_t i = 0; i < draw->count; i++) {
        buf_clear(&text);
        buf_add_str(&text, buf_str(&prefix));
        add_words(&text, &rng, draw->input_words - shared);
        snprintf(id, sizeof id, "drawn-%06" PRIu32, i);
        workload->lines = vec_grow(workload->lines, workload->count, &workload->capacity,
                                   sizeof *workload->lines);
        workload->lines[workload->count++] =
            (struct workload_line){.custom_id = mem_text(id),
                                   .path = mem_text("/chat/completions"),
                                   .body = chat_of(&text, draw->output_tokens),
                                   .is_streamed = true};
    }
    buf_release(&prefix);
    buf_release(&text);
}

void workload_release(struct workload *workload) {
    for (size_t i = 0; i < workload->count; i++) {
        free(workload->lines[i].custom_id);
        free(workload->lines[i].path);
        json_decref(workload->lines[i].body);
    }
    free(workload->lines);
    *workload = (struct workload){.lines = NULL};
}

/* --- bodies --- */

static void set(json_t *object, const char *key, json_t *value) {
    if (!value || json_object_set_new(object, key, value) != 0) no_memory();
}

/* The member of an object, or the element of a list, that is a text. */
static bool put_before(json_t *parent, const char *key, const char *mark) {
    json_t *value = key ? json_object_get(parent, key) : json_array_get(parent, 0);
    struct buf text;
    if (!json_is_string(value)) return false;
    buf_init(&text, BUF_UNLIMITED);
    buf_add_text(&text, mark);
    buf_add_str(&text, json_str(value));
    json_t *marked = json_stringn(text.at, text.bytes);
    buf_release(&text);
    if (!marked || (key ? json_object_set_new(parent, key, marked)
                        : json_array_set_new(parent, 0, marked)) != 0)
        no_memory();
    return true;
}

/* Puts the mark before the first text of the first message. */
static void mark_messages(json_t *messages, const char *mark) {
    json_t *first = json_array_get(messages, 0), *part;
    size_t index;
    if (put_before(first, "content", mark)) return;
    json_array_foreach(json_object_get(first, "content"), index,
                       part) if (put_before(part, "text", mark)) return;
}

/* Puts the mark before the prompt, in whatever member the endpoint has it. */
static void add_mark(json_t *body, const char *mark) {
    static const char *const names[] = {"messages", "prompt", "input"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_deep_copy(json_object_get(body, names[i]));
        if (!value) continue;
        set(body, names[i], value);
        if (i == 0)
            mark_messages(value, mark);
        else if (!put_before(body, names[i], mark))
            put_before(value, NULL, mark);
        return;
    }
}

void workload_write_body(struct buf *out, const struct workload_line *line,
                         const struct workload_form *form) {
    json_t *body = json_copy(line->body);
    if (!body) no_memory();
    if (form->model) set(body, "model", json_string(form->model));
    if (form->mark) add_mark(body, form->mark);
    json_object_del(body, "stream");
    json_object_del(body, "stream_options");
    if (form->is_streamed && line->is_streamed) {
        set(body, "stream", json_true());
        set(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    }
    buf_clear(out);
    json_write(out, body);
    json_decref(body);
}
