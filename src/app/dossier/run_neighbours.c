/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/run_neighbours.h"

#include "base/os.h"
#include "base/str.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The files that runs may have in common. */
enum { FILES_OF_RUN = 3 };
static const char *file_of(const struct run_proof *proof, int which) {
    const char *const paths[FILES_OF_RUN] = {proof->input, proof->output, proof->rest};
    return paths[which];
}

static bool are_same(const char *a, const char *b) {
    struct stat one, other;
    return *a && *b && stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* Whether a run has one of the files of another. */
static const char *common_file(const struct run_proof *proof, const struct run_proof *other) {
    for (int i = 0; i < FILES_OF_RUN; i++)
        for (int k = 0; k < FILES_OF_RUN; k++)
            if (are_same(file_of(proof, i), file_of(other, k))) return file_of(proof, i);
    return NULL;
}

static enum err check_manifest(const struct run_proof *proofs, size_t count, const char *path,
                               struct error *error) {
    struct run_proof other;
    struct error ignored;
    enum err err = OK;
    for (size_t i = 0; i < count; i++)
        if (are_same(path, proofs[i].path)) return OK;
    const struct run_proof_options options = {.run = path};
    if (run_proof_read(&other, &options, &ignored) != OK) return OK;
    for (size_t i = 0; i < count && err == OK; i++) {
        const char *file = common_file(&proofs[i], &other);
        if (file)
            err = err_set(error, ERR_INVALID,
                          "%.300s is a file of the run of %.300s as well, which would no longer be "
                          "proven; name both runs, or remove that manifest",
                          file, path);
    }
    run_proof_release(&other);
    return err;
}

static enum err check_folder(const struct run_proof *proofs, size_t count, const char *file,
                             struct error *error) {
    char folder[PATH_MAX], path[PATH_MAX];
    struct dirent *entry;
    const char *slash = strrchr(file, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - file) + 1 : 2,
             slash ? file : "./");
    DIR *entries = os_opendir(folder);
    enum err err = OK;
    if (!entries) return OK;
    while (err == OK && (entry = readdir(entries)) != NULL)
        if (str_ends_with(str_from(entry->d_name), STR(".manifest.json")) &&
            snprintf(path, sizeof path, "%s%s", folder, entry->d_name) < (int)sizeof path)
            err = check_manifest(proofs, count, path, error);
    closedir(entries);
    return err;
}

enum err run_neighbours_check(const struct run_proof *proofs, size_t count, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < FILES_OF_RUN && err == OK; k++)
            if (*file_of(&proofs[i], k))
                err = check_folder(proofs, count, file_of(&proofs[i], k), error);
    return err;
}
