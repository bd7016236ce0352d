/* SPDX-License-Identifier: Apache-2.0 */
#include "base/whole_file.h"

#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

enum err whole_file_write(const char *path, struct str text, bool may_replace,
                          struct error *error) {
    char made[PATH_MAX];
    bool exists;
    struct error ignored;
    enum err err = whole_file_check(path, &exists, error);
    if (err != OK || (exists && !may_replace && has_text(path, text))) return err;
    int bytes = snprintf(made, sizeof made, "%s.%d.tmp", path, (int)getpid());
    if (bytes >= (int)sizeof made)
        return err_set(error, ERR_INVALID, "the name of the output file is too long");
    err = os_write_file(made, 0666, text.at, text.bytes, error);
    if (err == OK) err = whole_file_place(made, path, may_replace, error);
    enum err left = os_unlink(made, err == OK ? error : &ignored);
    return err == OK ? left : err;
}

/* Whether `name` is `file` with ".PID.tmp" behind it. */
static bool is_rest(const char *name, const char *file) {
    const size_t bytes = strlen(file);
    if (strncmp(name, file, bytes) != 0 || name[bytes] != '.') return false;
    const char *pid = name + bytes + 1;
    const size_t digits = strspn(pid, "0123456789");
    return digits > 0 && strcmp(pid + digits, ".tmp") == 0;
}

enum err whole_file_remove_rests(const char *path, struct error *error) {
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
        if (is_rest(entry->d_name, name) && unlinkat(dirfd(dir), entry->d_name, 0) != 0)
            err = err_from_errno(error, errno, "cannot remove %s/%s", parent, entry->d_name);
    closedir(dir);
    return err;
}
