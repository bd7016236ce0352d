/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table_file.h"

#include "base/os.h"
#include "base/whole_file.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

enum err table_file_check(const struct table_file *file, struct error *error) {
    bool exists = false;
    if (!file->path) return OK;
    enum err err = whole_file_check(file->path, &exists, error);
    if (err != OK || !exists || file->overwrite) return err;
    return err_set(error, ERR_CONFLICT, "%s exists; name another file, or --overwrite it",
                   file->path);
}

enum err table_file_make(const struct table_file *file,
                         enum err (*write)(void *context, int fd, struct error *error),
                         void *context, struct error *error) {
    char part[PATH_MAX], rows[PATH_MAX];
    struct error ignored;
    int fd;
    bool is_parquet = file->form.kind == TABLE_PARQUET;
    if (!file->path) return write(context, STDOUT_FILENO, error);
    if (snprintf(part, sizeof part, "%s.part", file->path) >= (int)sizeof part - 8)
        return err_set(error, ERR_INVALID, "-o: the name is too long");
    snprintf(rows, sizeof rows, "%.*s%s", PATH_MAX - 8, part, is_parquet ? ".rows" : "");
    enum err err = table_file_check(file, error);
    if (err == OK) err = os_create(&fd, rows, 0644, error);
    if (err != OK) return err;
    err = write(context, fd, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    if (err == OK && is_parquet) err = parquet_write(rows, part, NULL, error);
    if (err == OK) err = whole_file_place(part, file->path, file->overwrite, error);
    enum err left = os_unlink(part, err == OK ? error : &ignored);
    if (is_parquet && os_unlink(rows, &ignored) != OK) return err;
    return err == OK ? left : err;
}

struct joining {
    const struct table_file *file;
    const char *requests;
    const char *const *results;
    size_t result_count;
    uint64_t *ret_missing;
};

static enum err write_joined(void *context, int fd, struct error *error) {
    const struct joining *is = context;
    return table_join_write(is->requests, is->results, is->result_count, &is->file->form, fd,
                            is->ret_missing, error);
}

enum err table_file_join(const struct table_file *file, const char *requests,
                         const char *const *results, size_t result_count, uint64_t *ret_missing,
                         struct error *error) {
    struct joining joining = {file, requests, results, result_count, ret_missing};
    return table_file_make(file, write_joined, &joining, error);
}
