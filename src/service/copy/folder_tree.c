/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/folder_tree.h"

#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 4

typedef enum err (*entry_fn)(int dir_fd, const char *name, const struct stat *status,
                             const void *context, struct error *error);

/* Calls `each` for the entries of a folder, which may remove them. */
static enum err each_entry(int parent_fd, const char *folder, entry_fn each, const void *context,
                           struct error *error) {
    int fd = openat(parent_fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? OK : err_from_errno(error, errno, "cannot read %s", folder);
    DIR *dir = fdopendir(fd);
    if (!dir) {
        os_close(fd);
        return err_from_errno(error, errno, "cannot read %s", folder);
    }
    enum err err = OK;
    for (struct dirent *entry; err == OK && (entry = readdir(dir));) {
        struct stat status;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
        err = each(fd, entry->d_name, &status, context, error);
    }
    closedir(dir);
    return err;
}

static enum err remove_entry(int dir_fd, const char *name, const struct stat *status,
                             const void *context, struct error *error) {
    const int depth = *(const int *)context, next = depth + 1;
    bool is_folder = S_ISDIR(status->st_mode);
    enum err err = OK;
    if (is_folder && depth < DEPTH_MAX) err = each_entry(dir_fd, name, remove_entry, &next, error);
    if (err == OK && unlinkat(dir_fd, name, is_folder ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT)
        err = err_from_errno(error, errno, "cannot remove %s", name);
    return err;
}

static enum err remove_top(int dir_fd, const char *name, const struct stat *status,
                           const void *context, struct error *error) {
    bool stays = strcmp(name, "LOCK") == 0 || strcmp(name, "restoring") == 0 ||
                 strncmp(name, "copied_as", 9) == 0;
    return stays ? OK : remove_entry(dir_fd, name, status, context, error);
}

enum err folder_tree_empty(const char *state_dir, struct error *error) {
    const int depth = 0;
    return each_entry(AT_FDCWD, state_dir, remove_top, &depth, error);
}

bool folder_tree_has_any(const char *state_dir, char *ret_name, size_t name_bytes) {
    DIR *dir = os_opendir(state_dir);
    bool has_any = false;
    if (!dir) return false;
    for (struct dirent *entry; !has_any && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        has_any = strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "LOCK") != 0 &&
                  strcmp(name, "lost+found") != 0 && strncmp(name, "copied_as", 9) != 0;
        if (has_any) snprintf(ret_name, name_bytes, "%s", name);
    }
    closedir(dir);
    return has_any;
}

/* A file that a row names is closed to writing by then. */
static enum err drop_open_file(int dir_fd, const char *name, const struct stat *status,
                               const void *context, struct error *error) {
    (void)context;
    if (!(status->st_mode & 0200) || unlinkat(dir_fd, name, 0) == 0) return OK;
    return err_from_errno(error, errno, "cannot remove %s", name);
}

static enum err drop_open_files(int dir_fd, const char *name, const struct stat *status,
                                const void *context, struct error *error) {
    if (!S_ISDIR(status->st_mode)) return OK;
    return each_entry(dir_fd, name, drop_open_file, context, error);
}

static enum err drop_batch(int dir_fd, const char *name, const struct stat *status,
                           const void *context, struct error *error) {
    const int depth = 0;
    if (map_get(context, str_from(name), NULL)) return OK;
    return remove_entry(dir_fd, name, status, &depth, error);
}

enum err folder_tree_drop_unnamed(const char *state_dir, const struct map *kept,
                                  struct error *error) {
    int fd;
    enum err err = os_open_dir(&fd, state_dir, error);
    if (err != OK) return err;
    err = each_entry(fd, "files", drop_open_files, NULL, error);
    if (err == OK) err = each_entry(fd, "parts", drop_open_file, NULL, error);
    if (err == OK) err = each_entry(fd, "batches", drop_batch, kept, error);
    os_close(fd);
    return err;
}
