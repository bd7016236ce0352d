/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/jsonl_file.h"

#include "base/os.h"
#include "base/os_pipe.h"

void jsonl_file_init(struct jsonl_file *file) {
    *file = (struct jsonl_file){.failed = false};
    lines_init(&file->lines, -1);
}

void jsonl_file_take(struct jsonl_file *file, int fd, uint64_t bytes) {
    jsonl_file_borrow(file, fd, bytes);
    file->is_owner = true;
}

void jsonl_file_borrow(struct jsonl_file *file, int fd, uint64_t bytes) {
    lines_init_part(&file->lines, fd, 0, bytes);
}

enum err jsonl_file_open(struct jsonl_file *ret_file, const char *path, struct error *error) {
    int fd;
    uint64_t bytes = 0;
    jsonl_file_init(ret_file);
    /* A pipe has no size: it would be an empty file. */
    enum err err = os_open_plain(&fd, path, error);
    if (err != OK) return err;
    err = os_file_bytes(fd, &bytes, error);
    jsonl_file_take(ret_file, fd, bytes);
    return err;
}

void jsonl_file_skip_to(struct jsonl_file *file, uint64_t offset) {
    file->lines.base = offset;
}

void jsonl_file_close(struct jsonl_file *file) {
    if (file->is_owner) os_close(file->lines.fd);
    lines_release(&file->lines);
    jsonl_file_init(file);
}

enum err jsonl_file_end(struct jsonl_file *file, const char *name, enum err err,
                        struct error *error) {
    if (err == OK && file->failed)
        err = err_set(error, file->why.code, "%s: %s", name, file->why.text);
    jsonl_file_close(file);
    return err;
}

bool jsonl_file_next(struct jsonl_file *file, struct str *ret_line) {
    if (!file->failed) file->failed = lines_next(&file->lines, &file->why) != OK;
    if (file->failed || !file->lines.line.at) return false;
    *ret_line = file->lines.line;
    return true;
}
