/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os_pipe.h"

#include "base/mem.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>

#define SLICE_MS 100

static const volatile bool *stop_flag;

void os_pipe_stop_with(const volatile bool *stop) {
    stop_flag = stop;
}

static enum err stopped(struct error *error) {
    return err_set(error, ERR_CANCELLED, "stopped");
}

enum err os_pipe_interrupted(int fd, struct error *error) {
    struct stat status;
    if (!stop_flag || !*stop_flag) return OK;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? OK : stopped(error);
}

bool os_pipe_may_wait(int dir_fd, const char *path) {
    struct stat status;
    return fstatat(dir_fd, path, &status, 0) == 0 && S_ISFIFO(status.st_mode);
}

enum err os_pipe_wait(int fd, struct error *error) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    for (;;) {
        if (stop_flag && *stop_flag) return stopped(error);
        int count = poll(&wanted, 1, SLICE_MS);
        if (count > 0) return OK;
        if (count < 0 && errno != EINTR) return err_from_errno(error, errno, "cannot wait");
    }
}

enum err os_pipe_read_all(int fd, const char *path, size_t bytes_max, char **ret_bytes,
                          size_t *ret_count, struct error *error) {
    char *whole = NULL;
    size_t bytes = 0, room = 0, count = 1;
    enum err err = OK;
    while (err == OK && count > 0 && bytes <= bytes_max) {
        if (room - bytes < 2) whole = mem_resize(whole, room = 2 * room + 4096, 1);
        err = os_read(fd, whole + bytes, room - bytes - 1, &count, error);
        if (err == OK) bytes += count;
    }
    if (err == OK && bytes > bytes_max)
        err = err_set(error, ERR_LIMIT, "%s has more than %zu bytes", path, bytes_max);
    if (err != OK) {
        free(whole);
        return err;
    }
    whole[bytes] = '\0';
    *ret_bytes = whole;
    *ret_count = bytes;
    return OK;
}

enum err os_open_plain(int *ret_fd, const char *path, struct error *error) {
    struct stat status;
    int fd;
    enum err err = os_open(&fd, path, O_RDONLY | O_NONBLOCK, 0, error);
    if (err != OK) return err;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        *ret_fd = fd;
        return OK;
    }
    os_close(fd);
    return err_set(error, ERR_INVALID, "%s is not a file that can be read twice", path);
}
