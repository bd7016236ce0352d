/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/verify.h"

#include "base/str.h"
#include "hub/catalog.h"
#include "hub/catalog_path.h"
#include "hub/hub_internal.h"
#include "hub/pull_plan.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 8

struct verify {
    const struct verify_options *options;
    size_t count, bad;
    bool is_stopped;
};

/* Reads the sum in the name of a blob; empty if the name is no sum. */
static void read_wanted(const char *blob, char ret_wanted[PULL_SUM_BYTES]) {
    const char *slash = strrchr(blob, '/'), *name = slash ? slash + 1 : blob;
    if (strncmp(name, "sha256-", 7) == 0) name += 7;
    ret_wanted[0] = '\0';
    if (catalog_is_hex(str_from(name), 64) || catalog_is_hex(str_from(name), 40))
        snprintf(ret_wanted, PULL_SUM_BYTES, "%s", name);
}

/* The name of `blob` has the sum: it is the file itself, or the target of its link. */
static void check_file(struct verify *verify, const char *path, const char *blob) {
    const struct verify_options *options = verify->options;
    struct verified file = {.path = path};
    struct error error = {0};
    read_wanted(blob, file.wanted);
    file.err = pull_sum_file(path, strlen(file.wanted) == 40, file.sum, options->progress,
                             options->context, &error);
    if (file.err == ERR_CANCELLED) verify->is_stopped = true;
    if (verify->is_stopped) return;
    file.is_good = file.err == OK && (!*file.wanted || strcmp(file.sum, file.wanted) == 0);
    file.why = error.text;
    verify->count++;
    if (!file.is_good) verify->bad++;
    options->file(options->context, &file);
}

static int is_no_dot(const struct dirent *entry) {
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* Checks all files and links below a folder, at most DEPTH_MAX levels deep. */
static void check_folder(struct verify *verify, const char *folder, int depth) {
    struct dirent **entries;
    int count = depth < DEPTH_MAX ? scandir(folder, &entries, is_no_dot, alphasort) : -1;
    if (count < 0) return;
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX], target[PATH_MAX];
        int bytes = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        struct stat status;
        free(entries[i]);
        if (verify->is_stopped || bytes >= (int)sizeof path || lstat(path, &status) != 0) continue;
        ssize_t target_bytes = readlink(path, target, sizeof target - 1);
        target[target_bytes > 0 ? target_bytes : 0] = '\0';
        if (S_ISDIR(status.st_mode))
            check_folder(verify, path, depth + 1);
        else if (S_ISREG(status.st_mode) || S_ISLNK(status.st_mode))
            check_file(verify, path, target);
    }
    free(entries);
}

static void check_path(struct verify *verify, const char *path) {
    char real[PATH_MAX], target[PATH_MAX];
    if (catalog_root(path, real)) {
        check_folder(verify, path, 0);
        return;
    }
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    target[bytes > 0 ? bytes : 0] = '\0';
    check_file(verify, path, bytes > 0 ? target : path);
}

/* The snapshot of the commit that refs/main names; false if the cache has none. */
static bool find_snapshot(const char *name, char ret_path[PATH_MAX]) {
    char repository[MODEL_NAME_BYTES], hub[PATH_MAX], root[PATH_MAX];
    char folder_name[CATALOG_FOLDER_BYTES], folder[PATH_MAX], commit[CATALOG_COMMIT_BYTES];
    struct str quantisation;
    struct error error;
    if (catalog_repository(name, repository, &quantisation, &error) != OK ||
        !pull_is_repository(str_from(repository)) || !catalog_hub_root(hub) ||
        !catalog_root(hub, root))
        return false;
    catalog_hub_folder_name(repository, folder_name);
    return snprintf(folder, PATH_MAX, "%s/%s", hub, folder_name) < PATH_MAX &&
           catalog_hub_commit(root, folder, commit) &&
           snprintf(ret_path, PATH_MAX, "%s/snapshots/%s", folder, commit) < PATH_MAX &&
           access(ret_path, F_OK) == 0;
}

enum err verify_model(const struct verify_options *options, struct error *error) {
    struct verify verify = {.options = options};
    struct model_choice choice;
    char path[PATH_MAX];
    if (catalog_is_model_path(options->name)) {
        check_path(&verify, options->name);
    } else if (find_snapshot(options->name, path)) {
        check_folder(&verify, path, 0);
    } else {
        enum err err = catalog_choose(options->name, &choice, error);
        if (err != OK) return err;
        if (choice.is_echo) return err_set(error, ERR_INVALID, "echo is no file");
        check_path(&verify, choice.path);
    }
    if (verify.is_stopped) return err_set(error, ERR_CANCELLED, "stopped");
    if (verify.bad > 0)
        return err_set(error, ERR_CORRUPT,
                       "%zu of %zu files %s not what was fetched: remove %s and pull again",
                       verify.bad, verify.count, plural(verify.bad, "is", "are"),
                       plural(verify.bad, "it", "them"));
    return OK;
}
