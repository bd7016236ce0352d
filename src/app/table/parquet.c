/* SPDX-License-Identifier: Apache-2.0 */
#include "table/parquet.h"

#include "base/os.h"
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "quern-parquet"
#define KILL_MS 5000

static bool is_program(char ret_path[PATH_MAX], const char *folder, size_t bytes) {
    int length = snprintf(ret_path, PATH_MAX, "%.*s/" PROGRAM, (int)bytes, folder);
    return length < PATH_MAX && access(ret_path, X_OK) == 0;
}

static enum err find_program(char ret_path[PATH_MAX], struct error *error) {
    char own[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof own - 1);
    if (bytes > 0) {
        own[bytes] = '\0';
        const char *slash = strrchr(own, '/');
        if (slash && is_program(ret_path, own, (size_t)(slash - own))) return OK;
    }
    for (const char *folder = getenv("PATH"); folder && *folder;) {
        size_t length = strcspn(folder, ":");
        if (length > 0 && is_program(ret_path, folder, length)) return OK;
        folder += length + (folder[length] == ':');
    }
    return err_set(error, ERR_NOT_FOUND,
                   "a Parquet file needs the program " PROGRAM
                   ", which is neither next to quern nor "
                   "in PATH: pip install 'quern[parquet]', or convert the table to .csv or .jsonl");
}

static enum err start(pid_t *ret_pid, const char *const *arguments, int out, struct error *error) {
    char program[PATH_MAX];
    enum err err = find_program(program, error);
    if (err != OK) return err;
    const struct spawn_options options = {.program = program,
                                          .arguments = arguments,
                                          .fds = {SPAWN_NULL, out, STDERR_FILENO},
                                          .fd_count = 3};
    return spawn_start(ret_pid, &options, error);
}

/* Waits for the end of the program, however long it works. */
static enum err await(pid_t pid, const char *path, struct error *error) {
    char end[128];
    int status = -1;
    while (!spawn_await(pid, INT32_MAX, &status, end, sizeof end)) continue;
    if (status == 0) return OK;
    return err_set(error, ERR_INVALID, "%s: " PROGRAM " %s", path, end);
}

enum err parquet_read(struct parquet_reading *ret_reading, const char *path, struct error *error) {
    int pipe[2];
    *ret_reading = (struct parquet_reading){.fd = -1};
    if (pipe2(pipe, O_CLOEXEC) != 0) return err_from_errno(error, errno, "cannot make a pipe");
    enum err err =
        start(&ret_reading->pid, (const char *[]){PROGRAM, "rows", path, NULL}, pipe[1], error);
    os_close(pipe[1]);
    if (err == OK)
        ret_reading->fd = pipe[0];
    else
        os_close(pipe[0]);
    return err;
}

enum err parquet_read_end(struct parquet_reading *reading, struct error *error) {
    char end[128];
    enum err err = OK;
    if (reading->pid == 0) return OK;
    if (error) {
        err = await(reading->pid, "the table", error);
    } else {
        os_close(reading->fd);
        reading->fd = -1;
        (void)spawn_end(reading->pid, 0, KILL_MS, NULL, end, sizeof end);
    }
    os_close(reading->fd);
    *reading = (struct parquet_reading){.fd = -1};
    return err;
}

enum err parquet_write(const char *rows, const char *path, const char *like, struct error *error) {
    pid_t pid;
    const char *arguments[] = {PROGRAM, "table", rows, path, like ? "--like" : NULL, like, NULL};
    enum err err = start(&pid, arguments, STDERR_FILENO, error);
    return err == OK ? await(pid, path, error) : err;
}
