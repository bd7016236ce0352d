/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/regular.h"

#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_BYTES 256

/* Opens one name below a folder. A link gives ELOOP, or ENOTDIR where a folder is wanted. */
static enum err step(int *ret_fd, int dir_fd, const char *name, int flags, const char *dir,
                     const char *path, struct error *error) {
    *ret_fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags);
    if (*ret_fd >= 0) return OK;
    if (errno == ELOOP || errno == ENOTDIR)
        return err_set(error, ERR_CORRUPT,
                       "%s/%s: '%s' is a link or no folder, which is not followed in a backup", dir,
                       path, name);
    return err_from_errno(error, errno, "cannot open %s/%s", dir, path);
}

enum err regular_open(int *ret_fd, const char *dir, const char *path, struct error *error) {
    const char *at = path;
    char name[NAME_BYTES];
    struct stat status;
    int fd;
    enum err err = os_open(&fd, dir, O_RDONLY | O_DIRECTORY, 0, error);
    while (err == OK) {
        size_t bytes = strcspn(at, "/");
        bool is_last = at[bytes] == '\0';
        int next = -1;
        if (bytes == 0 || bytes >= sizeof name)
            err = err_set(error, ERR_CORRUPT, "%s/%s is no name of a backup", dir, path);
        if (err == OK) {
            memcpy(name, at, bytes);
            name[bytes] = '\0';
            err = step(&next, fd, name, is_last ? 0 : O_DIRECTORY, dir, path, error);
        }
        os_close(fd);
        fd = next;
        if (err != OK || is_last) break;
        at += bytes + 1;
    }
    if (err != OK) return err;
    if (fstat(fd, &status) != 0)
        err = err_from_errno(error, errno, "cannot look at %s/%s", dir, path);
    else if (!S_ISREG(status.st_mode))
        err = err_set(error, ERR_CORRUPT, "%s/%s is no regular file", dir, path);
    if (err == OK)
        *ret_fd = fd;
    else
        os_close(fd);
    return err;
}

enum err regular_read(const char *dir, const char *file, size_t bytes_max, char **ret_bytes,
                      size_t *ret_count, struct error *error) {
    int fd;
    size_t dir_bytes = strlen(dir);
    assert(strncmp(file, dir, dir_bytes) == 0 && file[dir_bytes] == '/');
    enum err err = regular_open(&fd, dir, file + dir_bytes + 1, error);
    if (err != OK) return err;
    err = os_read_opened(fd, file, bytes_max, ret_bytes, ret_count, error);
    os_close(fd);
    return err;
}
