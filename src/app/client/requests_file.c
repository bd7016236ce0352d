/* SPDX-License-Identifier: Apache-2.0 */
#include "client/requests_file.h"

#include "base/os.h"
#include "base/os_pipe.h"
#include "batch/jsonl_file.h"
#include "client/objects.h"
#include "json/json.h"
#include "table/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES 65536

enum err requests_file_scratch(int *ret_fd, struct error *error) {
    const char *folder = getenv("TMPDIR");
    char path[PATH_MAX];
    if (!folder || !*folder) folder = "/tmp";
    snprintf(path, sizeof path, "%.*s/quern-XXXXXX", PATH_MAX - 16, folder);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) return err_from_errno(error, errno, "cannot make a file in %s", folder);
    (void)unlink(path);
    *ret_fd = fd;
    return OK;
}

static enum err keep_standard_input(int *ret_fd, struct error *error) {
    char piece[PIECE_BYTES];
    size_t count = 1;
    int fd;
    enum err err = requests_file_scratch(&fd, error);
    if (err != OK) return err;
    while (err == OK && count > 0) {
        err = os_pipe_wait(STDIN_FILENO, error);
        if (err == OK) err = os_read(STDIN_FILENO, piece, sizeof piece, &count, error);
        if (err == OK && count > 0) err = os_write_all(fd, piece, count, error);
    }
    if (err != OK) {
        os_close(fd);
        return err;
    }
    *ret_fd = fd;
    return OK;
}

static enum err open_file(int *ret_fd, const char *path, struct error *error) {
    struct stat status;
    enum err err = os_open(ret_fd, path, O_RDONLY | O_NONBLOCK, 0, error);
    if (err != OK) return err;
    if (fstat(*ret_fd, &status) == 0 && S_ISREG(status.st_mode)) return OK;
    os_close(*ret_fd);
    return err_set(error, ERR_INVALID, "%s is no plain file; - reads standard input", path);
}

/* A table is a common mistake: quern run takes one. */
static enum err refuse_first(const char *name, struct error *error) {
    enum table_kind kind = table_kind_of(name);
    bool is_table = kind != TABLE_NONE && kind != TABLE_JSONL;
    if (is_table)
        return err_set(error, ERR_INVALID,
                       "%.150s is a table, and a batch is made of requests: quern table %.150s "
                       "--prompt PROMPT.jinja -o requests.jsonl makes them",
                       name, name);
    return err_set(error, ERR_INVALID,
                   "the first line of %s is no JSON object, as a request of the Batch API is",
                   name);
}

static enum err read_first(struct requests_file *input, struct str line, struct error *error) {
    json_t *object;
    struct error why = {0};
    if (object_read(line, &object, &why) != OK) return refuse_first(input->name, error);
    object_copy_text(json_member_str(object, "url"), input->endpoint, sizeof input->endpoint);
    json_decref(object);
    return OK;
}

/* Looks at the first line, and at as many as are wanted. */
static enum err look(struct requests_file *input, uint64_t lines_max, struct error *error) {
    struct jsonl_file file;
    struct str line;
    uint64_t lines = 0, wanted = lines_max ? lines_max : 1;
    enum err err = OK;
    jsonl_file_init(&file);
    jsonl_file_borrow(&file, input->fd, input->bytes);
    while (err == OK && lines < wanted && jsonl_file_next(&file, &line))
        if (lines++ == 0) err = read_first(input, line, error);
    uint64_t passed = file.lines.base + file.lines.at;
    err = jsonl_file_end(&file, input->name, err, error);
    if (err == OK && lines == 0)
        err = err_set(error, ERR_INVALID, "%s has no requests: it is empty", input->name);
    if (err == OK && lines_max > 0 && lines == lines_max) input->bytes = passed;
    if (err == OK && lines_max > 0) input->lines = lines;
    return err;
}

enum err requests_file_open(struct requests_file *ret_input, const char *path, const char *name,
                            uint64_t lines_max, struct error *error) {
    bool is_standard = strcmp(path, "-") == 0;
    struct requests_file input = {.fd = -1, .name = is_standard ? "standard input" : name};
    enum err err =
        is_standard ? keep_standard_input(&input.fd, error) : open_file(&input.fd, path, error);
    if (err != OK) return err;
    err = os_file_bytes(input.fd, &input.bytes, error);
    if (err == OK) err = look(&input, lines_max, error);
    if (err != OK) {
        requests_file_close(&input);
        return err;
    }
    *ret_input = input;
    return OK;
}

void requests_file_close(struct requests_file *input) {
    os_close(input->fd);
    input->fd = -1;
}
