/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/erasure_list.h"

#include "base/os.h"
#include "base/utf8.h"
#include "base/whole_file.h"
#include "dossier/erased_file.h"
#include "json/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_OBJECT "quern.erasing"
#define LIST_BYTES_MAX ((size_t)1 << 20)

enum err erasure_list_add(struct erasure_list *list, const char *path, struct error *error) {
    struct stat status;
    if (list->count == ERASURE_LIST_FILES_MAX)
        return err_set(error, ERR_LIMIT, "more than %d files", ERASURE_LIST_FILES_MAX);
    char *whole = list->paths[list->count];
    if (!realpath(path, whole)) return err_from_errno(error, errno, "%s cannot be opened", path);
    if (!utf8_is_valid(str_from(whole)))
        return err_set(error, ERR_INVALID, "the name %s is not UTF-8, so no list can have it",
                       path);
    if (stat(whole, &status) != 0 || !file_facts_read(whole, &list->facts[list->count]))
        return err_set(error, ERR_INVALID, "%s is no plain file", path);
    if (status.st_nlink > 1)
        return err_set(error, ERR_INVALID,
                       "%s has %ju names (hard links), of which the others would keep the text; "
                       "remove them first",
                       path, (uintmax_t)status.st_nlink);
    list->count++;
    return OK;
}

static json_t *list_json(const struct erasure_list *list) {
    json_t *files = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const struct file_facts *facts = &list->facts[i];
        json_array_append_new(files, json_pack("{s:s,s:I,s:I,s:I}", "path", list->paths[i], "bytes",
                                               (json_int_t)facts->bytes, "changed_ns",
                                               (json_int_t)facts->changed_ns, "inode",
                                               (json_int_t)facts->inode));
    }
    return json_pack("{s:s,s:o}", "object", LIST_OBJECT, "files", files);
}

/* Gives one new file its name, if an earlier call has not. */
static enum err end_one(const json_t *file, struct error *error) {
    char made[PATH_MAX];
    struct file_facts facts;
    const char *path = json_string_value(json_object_get(file, "path"));
    const struct file_facts was = {
        .bytes = (uint64_t)json_integer_value(json_object_get(file, "bytes")),
        .changed_ns = json_integer_value(json_object_get(file, "changed_ns")),
        .inode = (uint64_t)json_integer_value(json_object_get(file, "inode"))};
    if (!path || snprintf(made, sizeof made, ERASED_FILE_NAME, path) >= (int)sizeof made)
        return err_set(error, ERR_CORRUPT, "it names no file");
    if (access(made, F_OK) == 0) {
        if (!file_facts_read(path, &facts) || !file_facts_are_same(&facts, &was))
            return err_set(error, ERR_CONFLICT,
                           "%s was changed since an erasure was cut short, and %s is without the "
                           "erased lines; keep one of them, and remove the other",
                           path, made);
        enum err err = os_rename(made, path, error);
        if (err != OK) return err;
    }
    return os_fsync_parent(path, error);
}

static enum err end_all(const json_t *files, const char *path, struct error *error) {
    const json_t *file;
    size_t i;
    json_array_foreach(files, i, file) {
        enum err err = end_one(file, error);
        if (err != OK) return err;
    }
    enum err err = os_unlink(path, error);
    return err == OK ? os_fsync_parent(path, error) : err;
}

enum err erasure_list_commit(const struct erasure_list *list, const char *path,
                             struct error *error) {
    struct buf text;
    json_t *whole = list_json(list);
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, whole);
    enum err err = OK;
    for (size_t i = 0; i < list->count && err == OK; i++)
        err = os_fsync_parent(list->paths[i], error);
    if (err == OK) err = whole_file_write(path, buf_str(&text), false, error);
    if (err == OK) err = end_all(json_object_get(whole, "files"), path, error);
    buf_release(&text);
    json_decref(whole);
    return err;
}

enum err erasure_list_end(const char *path, struct error *error) {
    char *text;
    size_t bytes;
    json_t *whole;
    enum err err = os_read_file(path, LIST_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    err = json_read(&whole, (struct str){text, bytes}, error);
    free(text);
    if (err != OK) return err_set(error, ERR_CORRUPT, "%s is damaged", path);
    if (!str_is(json_member_str(whole, "object"), LIST_OBJECT) ||
        json_array_size(json_object_get(whole, "files")) == 0)
        err = err_set(error, ERR_CORRUPT, "%s is no list of an erasure", path);
    else
        err = end_all(json_object_get(whole, "files"), path, error);
    json_decref(whole);
    return err;
}

void erasure_list_drop(const struct erasure_list *list) {
    char made[PATH_MAX];
    for (size_t i = 0; i < list->count; i++)
        if (snprintf(made, sizeof made, ERASED_FILE_NAME, list->paths[i]) < (int)sizeof made)
            (void)unlink(made);
}
