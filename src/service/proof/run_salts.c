/* SPDX-License-Identifier: Apache-2.0 */
#include "proof/run_salts.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_TEXT_BYTES 96

bool run_salts_path(const char *manifest, char *ret_path, size_t bytes) {
    struct str name = str_from(manifest);
    if (str_ends_with(name, STR(".json"))) name.bytes -= strlen(".json");
    return (size_t)snprintf(ret_path, bytes, "%.*s.salts.json", STR_ARGS(name)) < bytes;
}

void run_salts_init(struct run_salts *salts) {
    *salts = (struct run_salts){.erasures = json_array()};
}

static struct run_salts_file *add_file(struct run_salts *salts, const char *what) {
    struct run_salts_file *file = &salts->files[salts->file_count++];
    snprintf(file->what, sizeof file->what, "%s", what);
    return file;
}

struct run_salts_file *run_salts_add(struct run_salts *salts, const char *what) {
    struct run_salts_file *file = add_file(salts, what);
    line_salts_make(&file->salts);
    return file;
}

struct run_salts_file *run_salts_find(struct run_salts *salts, const char *what) {
    for (size_t i = 0; i < salts->file_count; i++)
        if (strcmp(salts->files[i].what, what) == 0) return &salts->files[i];
    return NULL;
}

void run_salts_release(struct run_salts *salts) {
    for (size_t i = 0; i < salts->file_count; i++) {
        line_salts_release(&salts->files[i].salts);
        free(salts->files[i].erased);
    }
    json_decref(salts->erasures);
    *salts = (struct run_salts){.file_count = 0};
}

/* --- erased lines --- */

static int by_line(const void *a, const void *b) {
    const struct line_erased *one = a, *other = b;
    return (one->line > other->line) - (one->line < other->line);
}

static void note_lines(struct run_salts_file *file, const struct line_erased *lines, size_t count) {
    file->erased = mem_resize(file->erased, file->erased_count + count + 1, sizeof *file->erased);
    if (count) memcpy(file->erased + file->erased_count, lines, count * sizeof *lines);
    file->erased_count += count;
    qsort(file->erased, file->erased_count, sizeof *file->erased, by_line);
}

void run_salts_erase(struct run_salts_file *file, const struct line_erased *lines, size_t count) {
    uint64_t *numbers = mem_new(count + 1, sizeof *numbers);
    for (size_t i = 0; i < count; i++) numbers[i] = lines[i].line - 1;
    line_salts_remove(&file->salts, numbers, count);
    free(numbers);
    note_lines(file, lines, count);
}

json_t *run_salts_lines_json(const struct line_erased *lines, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_sprintf("%" PRIu64 " %s", lines[i].line, lines[i].leaf));
    return list;
}

static bool read_line(const json_t *value, struct line_erased *ret_line) {
    char again[LINE_TEXT_BYTES];
    struct str text = json_str(value);
    size_t space = json_is_string(value) ? str_find_byte(text, ' ', 0) : SIZE_MAX;
    if (space == SIZE_MAX || text.bytes - space != DIGEST_HEX_BYTES ||
        !str_to_u64((struct str){text.at, space}, &ret_line->line) || ret_line->line == 0)
        return false;
    memcpy(ret_line->leaf, text.at + space + 1, DIGEST_HEX_BYTES - 1);
    ret_line->leaf[DIGEST_HEX_BYTES - 1] = '\0';
    snprintf(again, sizeof again, "%" PRIu64 " %s", ret_line->line, ret_line->leaf);
    return strspn(ret_line->leaf, "0123456789abcdef") == DIGEST_HEX_BYTES - 1 &&
           str_is(text, again);
}

static enum err read_lines(struct run_salts_file *file, const json_t *list, struct error *error) {
    const json_t *value;
    size_t i, count = json_array_size(list);
    if (!json_is_array(list)) return err_set(error, ERR_CORRUPT, "erased lines are no list");
    struct line_erased *lines = mem_new(count + 1, sizeof *lines);
    enum err err = OK;
    json_array_foreach(list, i, value) {
        if (err == OK && !read_line(value, &lines[i]))
            err = err_set(error, ERR_CORRUPT, "erased line %zu of its %s is damaged", i + 1,
                          file->what);
    }
    if (err == OK) note_lines(file, lines, count);
    free(lines);
    return err;
}

static enum err read_erasure(struct run_salts *salts, const json_t *erasure, struct error *error) {
    const char *what;
    const json_t *list;
    enum err err = OK;
    if (!json_is_integer(json_object_get(erasure, "erased_at")) ||
        !json_is_string(json_object_get(erasure, "reason")) ||
        !json_is_integer(json_object_get(erasure, "requests")) ||
        !json_is_object(json_object_get(erasure, "files")))
        return err_set(error, ERR_CORRUPT, "the record of an erasure lacks a member");
    json_object_foreach(json_object_get(erasure, "files"), what, list) {
        struct run_salts_file *file = run_salts_find(salts, what);
        if (!file) return err_set(error, ERR_CORRUPT, "it has no salts of an erased file");
        err = read_lines(file, list, error);
        if (err != OK) return err;
    }
    return OK;
}

static enum err check_twice(const struct run_salts *salts, struct error *error) {
    for (size_t i = 0; i < salts->file_count; i++) {
        const struct run_salts_file *file = &salts->files[i];
        for (size_t k = 1; k < file->erased_count; k++)
            if (file->erased[k].line == file->erased[k - 1].line)
                return err_set(error, ERR_CORRUPT, "line %" PRIu64 " of its %s was erased twice",
                               file->erased[k].line, file->what);
    }
    return OK;
}

/* --- the file --- */

void run_salts_write(struct buf *out, const struct run_salts *salts, const struct ssh_key *key) {
    json_t *lists = json_object();
    for (size_t i = 0; i < salts->file_count; i++)
        json_object_set_new(lists, salts->files[i].what, line_salts_json(&salts->files[i].salts));
    json_t *content = json_pack("{s:s,s:i,s:s,s:o,s:O}", "object", RUN_SALTS_OBJECT, "version",
                                RUN_SALTS_VERSION, "manifest_sha256", salts->manifest_sha256,
                                "salts", lists, "erasures", salts->erasures);
    manifest_write(out, content, key);
    json_decref(content);
}

static enum err read_members(struct run_salts *salts, json_t *lists, json_t *erasures,
                             struct error *error) {
    const char *what;
    const json_t *list;
    size_t i;
    if (!json_is_object(lists) || json_object_size(lists) > RUN_SALTS_FILES_MAX ||
        !json_is_array(erasures))
        return err_set(error, ERR_CORRUPT, "it lacks a member");
    json_object_foreach(lists, what, list) {
        if (strlen(what) >= RUN_SALTS_NAME_BYTES)
            return err_set(error, ERR_CORRUPT, "it has salts of an unknown file");
        enum err err = line_salts_read(&add_file(salts, what)->salts, list, error);
        if (err != OK) return err;
    }
    json_decref(salts->erasures);
    salts->erasures = json_incref(erasures);
    json_array_foreach(erasures, i, list) {
        enum err err = read_erasure(salts, list, error);
        if (err != OK) return err;
    }
    return check_twice(salts, error);
}

enum err run_salts_take(struct run_salts *ret_salts, json_t *lists, json_t *erasures,
                        struct error *error) {
    run_salts_init(ret_salts);
    enum err err = read_members(ret_salts, lists, erasures, error);
    if (err != OK) run_salts_release(ret_salts);
    return err;
}

static enum err read_content(struct run_salts *salts, const json_t *content, struct error *error) {
    const char *sum = json_string_value(json_object_get(content, "manifest_sha256"));
    if (!sum || strlen(sum) != SHA256_HEX_BYTES - 1)
        return err_set(error, ERR_CORRUPT, "it lacks a member");
    memcpy(salts->manifest_sha256, sum, SHA256_HEX_BYTES);
    return read_members(salts, json_object_get(content, "salts"),
                        json_object_get(content, "erasures"), error);
}

bool run_salts_is_one(struct str text) {
    return manifest_begins_as(text, RUN_SALTS_OBJECT);
}

enum err run_salts_read(struct run_salts *ret_salts, struct str text, struct error *error) {
    struct manifest whole;
    run_salts_init(ret_salts);
    enum err err = manifest_read_as(&whole, RUN_SALTS_OBJECT, RUN_SALTS_VERSION, text, error);
    if (err == OK) {
        ret_salts->is_signed = whole.is_signed;
        memcpy(ret_salts->public, whole.public, SSH_PUBLIC_BYTES);
        err = read_content(ret_salts, whole.content, error);
        manifest_release(&whole);
    }
    if (err != OK) run_salts_release(ret_salts);
    return err;
}
