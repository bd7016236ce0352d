/* SPDX-License-Identifier: Apache-2.0 */
#include "base/whole_file.h"

#include "base/file_lock.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum err whole_file_check(const char *path, bool *ret_exists, struct error *error) {
    struct stat status;
    if (!*path) return err_set(error, ERR_INVALID, "-o: the name is empty");
    if (strcmp(path, "-") == 0)
        return err_set(error, ERR_INVALID,
                       "-o -: this is written to a file, not to standard output; ./- is a file of "
                       "that name");
    bool exists = stat(path, &status) == 0;
    if (!exists && lstat(path, &status) == 0)
        return err_set(error, ERR_INVALID, "cannot write %s: it is a link that leads nowhere",
                       path);
    if (exists && !S_ISREG(status.st_mode))
        return err_set(error, ERR_INVALID, "cannot write %s: it is %s", path,
                       S_ISDIR(status.st_mode) ? "a directory" : "no plain file");
    *ret_exists = exists;
    return OK;
}

static enum err give_name(const char *made, const char *path, bool may_replace,
                          struct error *error) {
    struct stat ignored;
    if (may_replace) return os_rename(made, path, error);
    enum err err = os_link(made, path, error);
    if (err != ERR_DENIED) return err;
    if (lstat(path, &ignored) != 0) return os_rename(made, path, error);
    return err_set(error, ERR_CONFLICT, "%s exists", path);
}

enum err whole_file_place(const char *made, const char *path, bool may_replace,
                          struct error *error) {
    enum err err = give_name(made, path, may_replace, error);
    return err == OK ? os_fsync_parent(path, error) : err;
}

static bool has_text(const char *path, struct str text) {
    char *found;
    size_t bytes;
    struct error ignored;
    if (os_read_file(path, text.bytes, &found, &bytes, &ignored) != OK) return false;
    bool is_same = str_equals((struct str){found, bytes}, text);
    free(found);
    return is_same;
}

/* --- through a file of another name --- */

/* Whether `name` is `file` with ".PID.tmp" behind it. */
static bool is_rest(const char *name, const char *file) {
    const size_t bytes = strlen(file);
    if (strncmp(name, file, bytes) != 0 || name[bytes] != '.') return false;
    const char *pid = name + bytes + 1;
    const size_t digits = strspn(pid, "0123456789");
    return digits > 0 && strcmp(pid + digits, ".tmp") == 0;
}

/* Calls `remove` for each PATH.PID.tmp. */
static enum err each_rest(const char *path, bool (*remove)(int dir_fd, const char *name),
                          struct error *error) {
    char parent[PATH_MAX];
    const struct dirent *entry;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const int bytes = slash && slash > path ? (int)(slash - path) : 1;
    if (snprintf(parent, sizeof parent, "%.*s", bytes, slash ? path : ".") >= (int)sizeof parent)
        return err_set(error, ERR_INVALID, "the name of a file is too long");
    DIR *dir = os_opendir(parent);
    if (!dir) return err_from_errno(error, errno, "cannot read the folder %s", parent);
    enum err err = OK;
    while (err == OK && (entry = readdir(dir)))
        if (is_rest(entry->d_name, name) && !remove(dirfd(dir), entry->d_name))
            err = err_from_errno(error, errno, "cannot remove %s/%s", parent, entry->d_name);
    closedir(dir);
    return err;
}

static bool remove_any(int dir_fd, const char *name) {
    return unlinkat(dir_fd, name, 0) == 0;
}

/* Removes it if no process has its lock. What cannot be locked stays: another user's, or any on a
 * file system without locks. */
static bool remove_dead(int dir_fd, const char *name) {
    struct error ignored;
    int fd;
    if (os_open_at(&fd, dir_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0, &ignored) != OK)
        return true;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) (void)unlinkat(dir_fd, name, 0);
    os_close(fd);
    return true;
}

enum err whole_file_remove_rests(const char *path, struct error *error) {
    return each_rest(path, remove_any, error);
}

/* Makes the file and locks it, so that no other process takes it for a dead one's. One that was
 * removed between the two is made again. */
static enum err create_locked(int *ret_fd, const char *made, struct error *error) {
    struct stat status;
    struct error ignored;
    for (;;) {
        enum err err = os_create(ret_fd, made, 0666, error);
        if (err != OK) return err;
        if (file_lock(*ret_fd, made, false, &ignored) != OK) return OK; /* it has no locks */
        if (fstat(*ret_fd, &status) != 0 || status.st_nlink > 0) return OK;
        os_close(*ret_fd);
    }
}

enum err whole_file_write(const char *path, struct str text, bool may_replace,
                          struct error *error) {
    char made[PATH_MAX];
    bool exists;
    int fd;
    struct error ignored;
    enum err err = whole_file_check(path, &exists, error);
    if (err != OK || (exists && !may_replace && has_text(path, text))) return err;
    int bytes = snprintf(made, sizeof made, "%s.%d.tmp", path, (int)getpid());
    if (bytes >= (int)sizeof made)
        return err_set(error, ERR_INVALID, "the name of the output file is too long");
    (void)(each_rest(path, remove_dead, &ignored) == OK);
    err = create_locked(&fd, made, error);
    if (err != OK) return err;
    err = os_write_all(fd, text.at, text.bytes, error);
    if (err == OK) err = os_fsync(fd, error);
    if (err == OK) err = whole_file_place(made, path, may_replace, error);
    enum err left = os_unlink(made, err == OK ? error : &ignored);
    os_close(fd); /* with it the lock */
    return err == OK ? left : err;
}
