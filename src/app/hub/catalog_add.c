/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/catalog_add.h"

#include "base/os.h"
#include "hub/catalog.h"
#include "hub/catalog_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Checks that the path is a model. *ret_ending is the ending of the link: ".gguf" for a file, empty
 * for a folder. */
static enum err check_model(const char *path, const char **ret_ending, struct error *error) {
    char magic[4], config[PATH_MAX + 16], real[PATH_MAX];
    int fd;
    *ret_ending = "";
    snprintf(config, sizeof config, "%s/config.json", path);
    if (catalog_root(path, real)) {
        if (access(config, R_OK) == 0) return OK;
        return err_set(error, ERR_INVALID, "%.300s has no config.json", path);
    }
    *ret_ending = ".gguf";
    enum err err = os_open(&fd, path, O_RDONLY, 0, error);
    if (err != OK) return err;
    err = os_pread_all(fd, magic, sizeof magic, 0, error);
    os_close(fd);
    if (err != OK || memcmp(magic, "GGUF", sizeof magic) != 0)
        return err_set(error, ERR_INVALID, "%.300s is no GGUF file", path);
    return OK;
}

/* The last part of a path, without ".gguf". */
static struct str stem_of(const char *path) {
    struct str stem = str_from(path);
    while (stem.bytes > 1 && stem.at[stem.bytes - 1] == '/') stem.bytes--;
    for (size_t i = stem.bytes; i > 0; i--)
        if (stem.at[i - 1] == '/') {
            stem = str_skip(stem, i);
            break;
        }
    if (str_ends_with(stem, STR(".gguf"))) stem.bytes -= strlen(".gguf");
    return stem;
}

enum err catalog_add(const char *path, const char *name, struct error *error) {
    char real[PATH_MAX], folder[PATH_MAX], link[PATH_MAX + 200];
    struct str stem = stem_of(name ? name : path);
    if (name && strchr(name, '/')) stem = str_from(name); /* refused below, in full */
    if (!catalog_is_part(stem))
        return err_set(error, ERR_INVALID,
                       "'%.*s' is no name: letters, digits, '-', '_' and '.'; say one with --name",
                       (int)(stem.bytes < 100 ? stem.bytes : 100), stem.at);
    if (!realpath(path, real)) return err_from_errno(error, errno, "%.300s", path);
    const char *ending;
    enum err err = check_model(real, &ending, error);
    if (err != OK) return err;
    if (!catalog_folder(folder))
        return err_set(error, ERR_INVALID, "neither XDG_CACHE_HOME nor HOME is set");
    err = os_mkdirs(folder, error);
    if (err != OK) return err;
    snprintf(link, sizeof link, "%s/%.*s%s", folder, STR_ARGS(stem), ending);
    if (symlink(real, link) == 0) return OK;
    if (errno == EEXIST)
        return err_set(error, ERR_CONFLICT, "%.300s is there already: remove it first", link);
    return err_from_errno(error, errno, "cannot make %.300s", link);
}
