/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/erasure_list.h"

#include "base/mem.h"
#include "base/os.h"
#include "base/utf8.h"
#include "base/whole_file.h"
#include "dossier/erased_file.h"
#include "json/json.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_OBJECT "quern.erasing"
#define LIST_BYTES_MAX ((size_t)1 << 20)

void erasure_list_release(struct erasure_list *list) {
    for (size_t i = 0; i < list->count; i++) free(list->files[i].path);
    for (size_t i = 0; i < list->run_count; i++) free(list->runs[i]);
    free(list->list);
    *list = (struct erasure_list){.count = 0};
}

/* --- making one --- */

size_t erasure_list_find(const struct erasure_list *list, const char *path) {
    char whole[PATH_MAX];
    if (!realpath(path, whole)) return SIZE_MAX;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->files[i].path, whole) == 0) return i;
    return SIZE_MAX;
}

enum err erasure_list_add(struct erasure_list *list, const char *path, struct error *error) {
    struct stat status;
    char whole[PATH_MAX];
    if (list->count == ERASURE_LIST_FILES_MAX)
        return err_set(error, ERR_LIMIT, "more than %d files", ERASURE_LIST_FILES_MAX);
    struct erasure_list_file *file = &list->files[list->count];
    if (!realpath(path, whole)) return err_from_errno(error, errno, "%s cannot be opened", path);
    if (!utf8_is_valid(str_from(whole)))
        return err_set(error, ERR_INVALID, "the name %s is not UTF-8, so no list can have it",
                       path);
    if (stat(whole, &status) != 0 || !file_facts_read(whole, &file->was))
        return err_set(error, ERR_INVALID, "%s is no plain file", path);
    if (status.st_nlink > 1)
        return err_set(error, ERR_INVALID,
                       "%s has %ju names (hard links), of which the others would keep the text; "
                       "remove them first",
                       path, (uintmax_t)status.st_nlink);
    file->path = mem_text(whole);
    list->count++;
    return OK;
}

void erasure_list_add_run(struct erasure_list *list, const char *path) {
    list->runs[list->run_count++] = mem_text(path);
}

static bool name_made(const char *path, char ret_made[PATH_MAX]) {
    return snprintf(ret_made, PATH_MAX, ERASED_FILE_NAME, path) < PATH_MAX;
}

void erasure_list_drop(const struct erasure_list *list) {
    char made[PATH_MAX];
    for (size_t i = 0; i < list->count; i++)
        if (name_made(list->files[i].path, made)) (void)unlink(made);
}

static json_t *facts_json(const struct file_facts *facts) {
    return json_pack("{s:I,s:I,s:I}", "bytes", (json_int_t)facts->bytes, "changed_ns",
                     (json_int_t)facts->changed_ns, "inode", (json_int_t)facts->inode);
}

static json_t *list_json(const struct erasure_list *list) {
    json_t *files = json_array(), *runs = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const struct erasure_list_file *file = &list->files[i];
        json_array_append_new(files,
                              json_pack("{s:s,s:o,s:o}", "path", file->path, "was",
                                        facts_json(&file->was), "made", facts_json(&file->made)));
    }
    for (size_t i = 0; i < list->run_count; i++)
        json_array_append_new(runs, json_string(list->runs[i]));
    return json_pack("{s:s,s:o,s:o}", "object", LIST_OBJECT, "files", files, "runs", runs);
}

static enum err write_json(const char *path, json_t *whole, struct error *error) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, whole);
    enum err err = whole_file_write(path, buf_str(&text), true, error);
    buf_release(&text);
    json_decref(whole);
    return err;
}

/* --- reading one --- */

static bool read_path(const json_t *value, char **ret_path) {
    struct str text = json_str(value);
    if (!json_is_string(value) || text.bytes == 0 || text.at[0] != '/' || text.bytes >= PATH_MAX ||
        str_find_byte(text, '\0', 0) != SIZE_MAX)
        return false;
    *ret_path = mem_str(text);
    return true;
}

static bool read_facts(const json_t *value, struct file_facts *ret_facts) {
    const json_t *bytes = json_object_get(value, "bytes");
    const json_t *changed_ns = json_object_get(value, "changed_ns");
    const json_t *inode = json_object_get(value, "inode");
    *ret_facts = (struct file_facts){.bytes = (uint64_t)json_integer_value(bytes),
                                     .changed_ns = json_integer_value(changed_ns),
                                     .inode = (uint64_t)json_integer_value(inode)};
    return json_is_integer(bytes) && json_is_integer(changed_ns) && json_is_integer(inode);
}

/* False if a member is not as it is written. */
static bool read_members(struct erasure_list *list, const json_t *whole) {
    const json_t *value, *files = json_object_get(whole, "files");
    const json_t *runs = json_object_get(whole, "runs");
    size_t i;
    if (!str_is(json_member_str(whole, "object"), LIST_OBJECT)) return false;
    if (!files) return read_path(json_object_get(whole, "list"), &list->list);
    if (json_array_size(files) == 0 || json_array_size(files) > ERASURE_LIST_FILES_MAX ||
        !json_is_array(runs) || json_array_size(runs) > ERASURE_LIST_RUNS_MAX)
        return false;
    json_array_foreach(files, i, value) {
        struct erasure_list_file *file = &list->files[i];
        if (!read_path(json_object_get(value, "path"), &file->path)) return false;
        list->count++;
        if (!read_facts(json_object_get(value, "was"), &file->was) ||
            !read_facts(json_object_get(value, "made"), &file->made))
            return false;
    }
    json_array_foreach(runs, i, value) {
        if (!read_path(value, &list->runs[i])) return false;
        list->run_count++;
    }
    return true;
}

enum err erasure_list_read(struct erasure_list *ret_list, struct str text, struct error *error) {
    json_t *whole;
    *ret_list = (struct erasure_list){.count = 0};
    enum err err = json_read(&whole, text, error);
    if (err != OK) return err_set(error, ERR_CORRUPT, "it is damaged");
    bool is_one = read_members(ret_list, whole);
    json_decref(whole);
    if (is_one) return OK;
    erasure_list_release(ret_list);
    return err_set(error, ERR_CORRUPT, "it is no list of an erasure");
}

static enum err read_file(struct erasure_list *ret_list, const char *path, struct error *error) {
    char *text;
    size_t bytes;
    struct file_facts facts;
    enum err err = file_facts_find(path, &facts, error);
    if (err == OK) err = os_read_file(path, LIST_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    err = erasure_list_read(ret_list, (struct str){text, bytes}, error);
    free(text);
    return err == OK ? OK : err_prefix(error, "%s", path);
}

/* --- ending one --- */

/* Gives one new file its name, if an earlier call has not. */
static enum err end_one(const struct erasure_list_file *file, struct error *error) {
    char made[PATH_MAX];
    struct file_facts now, new;
    if (!name_made(file->path, made)) return err_set(error, ERR_CORRUPT, "a name is too long");
    if (access(made, F_OK) == 0) {
        if (!file_facts_read(file->path, &now) || !file_facts_are_same(&now, &file->was) ||
            !file_facts_read(made, &new) || !file_facts_are_same(&new, &file->made))
            return err_set(error, ERR_CONFLICT,
                           "%s was changed since an erasure was cut short, or %s was, which is "
                           "without the erased lines; keep one of them, and remove the other",
                           file->path, made);
        enum err err = os_rename(made, file->path, error);
        if (err != OK) return err;
    }
    /* A run that was killed while it wrote salts has left those of all lines. */
    enum err err = whole_file_remove_rests(file->path, error);
    return err == OK ? os_fsync_parent(file->path, error) : err;
}

static enum err remove_one(const char *path, struct error *error) {
    if (access(path, F_OK) != 0) return OK;
    enum err err = os_unlink(path, error);
    return err == OK ? os_fsync_parent(path, error) : err;
}

static enum err end_all(const struct erasure_list *list, const char *path, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < list->count && err == OK; i++) err = end_one(&list->files[i], error);
    if (err == OK) err = remove_one(path, error);
    for (size_t i = 0; i < list->run_count && err == OK; i++)
        err = remove_one(list->runs[i], error);
    return err;
}

enum err erasure_list_commit(struct erasure_list *list, const char *path, struct error *error) {
    char made[PATH_MAX];
    enum err err = OK;
    for (size_t i = 0; i < list->count && err == OK; i++) {
        struct erasure_list_file *file = &list->files[i];
        if (!name_made(file->path, made) || !file_facts_read(made, &file->made))
            err = err_set(error, ERR_CONFLICT, "the new file of %s has gone", file->path);
        else
            err = os_fsync_parent(file->path, error);
    }
    for (size_t i = 0; i < list->run_count && err == OK; i++)
        err = write_json(list->runs[i], json_pack("{s:s,s:s}", "object", LIST_OBJECT, "list", path),
                         error);
    if (err == OK) err = write_json(path, list_json(list), error);
    return err == OK ? end_all(list, path, error) : err;
}

/* A note whose list has gone is of an erasure that was not committed, or that has ended. */
static enum err follow(const struct erasure_list *note, const char *path, bool *ret_was_one,
                       struct error *error) {
    struct erasure_list list;
    enum err err = read_file(&list, note->list, error);
    if (err == ERR_NOT_FOUND) return remove_one(path, error);
    if (err != OK) return err;
    *ret_was_one = !list.list;
    err = list.list ? err_set(error, ERR_CORRUPT, "%s is no list of an erasure", note->list)
                    : end_all(&list, note->list, error);
    erasure_list_release(&list);
    return err;
}

enum err erasure_list_end(const char *path, bool *ret_was_one, struct error *error) {
    struct erasure_list list;
    enum err err = read_file(&list, path, error);
    *ret_was_one = false;
    if (err != OK) return err;
    if (list.list) {
        err = follow(&list, path, ret_was_one, error);
    } else {
        *ret_was_one = true;
        err = end_all(&list, path, error);
    }
    erasure_list_release(&list);
    return err;
}
