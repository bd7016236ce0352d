/* SPDX-License-Identifier: Apache-2.0 */
#include "store/state_marks.h"

#include "base/file_lock.h"
#include "base/os.h"
#include "store/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MARK_BYTES_MAX ((size_t)64 << 10)

static const struct {
    const char *name;
    const char *sentence; /* with one %s: the directory */
} marks[STATE_MARK_COUNT] = {
    [STATE_MOVED] = {"moved",
                     "the batches of %s were moved to another state directory with `quern backup "
                     "--move`: they go on there. If that backup was never started, remove the file "
                     "'moved' here"},
    [STATE_RESTORING] = {"restoring",
                         "a `quern restore` into %s did not end: repeat the command, and empty "
                         "the directory first if it asks for that"},
};

static enum err mark_path(const char *dir, const char *name, char ret_path[STORE_PATH_BYTES],
                          struct error *error) {
    int bytes = snprintf(ret_path, STORE_PATH_BYTES, "%s/%s", dir, name);
    if (bytes > 0 && bytes < STORE_PATH_BYTES) return OK;
    return err_set(error, ERR_INVALID, "the state directory's name is too long");
}

enum err state_removed(const char *dir, struct error *error) {
    return err_set(error, ERR_CONFLICT,
                   "the state directory %s was removed by another quern process", dir);
}

enum err state_lock(const char *dir, bool read_only, int *ret_fd, struct error *error) {
    char path[STORE_PATH_BYTES];
    int fd, flags = read_only ? O_RDONLY : O_RDWR | O_CREAT | O_NOFOLLOW;
    enum err err = mark_path(dir, STATE_LOCK_NAME, path, error);
    if (err == OK) err = os_open(&fd, path, flags, 0600, error);
    if (err == ERR_NOT_FOUND && read_only)
        return err_set(error, err, "%s is not a state directory of quern", dir);
    if (err == ERR_NOT_FOUND) return state_removed(dir, error); /* the caller has made it */
    if (err != OK) return err;
    struct stat status;
    err = file_lock(fd, path, false, error);
    /* A lock without a name is that of a directory that its owner has just removed. */
    if (err == OK && (fstat(fd, &status) != 0 || status.st_nlink == 0)) err = ERR_CONFLICT;
    if (err == OK) {
        *ret_fd = fd;
        return OK;
    }
    os_close(fd);
    if (err != ERR_CONFLICT) return err;
    return err_set(error, err, "the state directory %s is in use by another quern process", dir);
}

enum err state_mark_set(const char *dir, enum state_mark mark, const char *line,
                        struct error *error) {
    char path[STORE_PATH_BYTES];
    enum err err = mark_path(dir, marks[mark].name, path, error);
    if (err == OK) err = os_write_file(path, 0600, line, strlen(line), error);
    return err == OK ? os_fsync_dir(dir, error) : err;
}

enum err state_mark_read(const char *dir, enum state_mark mark, char **ret_line,
                         struct error *error) {
    char path[STORE_PATH_BYTES];
    size_t bytes;
    enum err err = mark_path(dir, marks[mark].name, path, error);
    if (err == OK) err = os_read_file(path, MARK_BYTES_MAX, ret_line, &bytes, error);
    if (err != OK) return err;
    (*ret_line)[strcspn(*ret_line, "\n")] = '\0';
    return OK;
}

enum err state_mark_clear(const char *dir, enum state_mark mark, struct error *error) {
    char path[STORE_PATH_BYTES];
    enum err err = mark_path(dir, marks[mark].name, path, error);
    if (err == OK) err = os_unlink(path, error);
    return err == OK ? os_fsync_dir(dir, error) : err;
}

enum err state_marks_check(const char *dir, struct error *error) {
    for (size_t i = 0; i < STATE_MARK_COUNT; i++) {
        char path[STORE_PATH_BYTES], sentence[ERROR_TEXT_BYTES];
        struct stat status;
        enum err err = mark_path(dir, marks[i].name, path, error);
        if (err != OK) return err;
        if (lstat(path, &status) != 0) {
            if (errno == ENOENT) continue;
            return err_from_errno(error, errno, "cannot look at %s", path);
        }
        const char *at = strstr(marks[i].sentence, "%s");
        snprintf(sentence, sizeof sentence, "%.*s%.200s%s", (int)(at - marks[i].sentence),
                 marks[i].sentence, dir, at + 2);
        return err_set(error, ERR_CONFLICT, "%s", sentence);
    }
    return OK;
}
