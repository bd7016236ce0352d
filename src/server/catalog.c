/* SPDX-License-Identifier: Apache-2.0 */
#include "server/catalog.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Models quern knows by name: the file in the model folder, and all names it answers to. */
static const struct known_model {
    const char *file;
    const char *names[MODEL_NAMES_MAX];
    const char *how_to_get;
} known_models[] = {
    {"SmolLM2-135M-Instruct.Q4_1.gguf",
     {"smollm2", "smollm2:135m", "HuggingFaceTB/SmolLM2-135M-Instruct"},
     "tools/fetch-model fetches it once"},
};
#define KNOWN_COUNT (sizeof known_models / sizeof *known_models)

bool catalog_folder(char ret_path[PATH_MAX]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache) return snprintf(ret_path, PATH_MAX, "%s/quern/models", cache) < PATH_MAX;
    if (home && *home)
        return snprintf(ret_path, PATH_MAX, "%s/.cache/quern/models", home) < PATH_MAX;
    return false;
}

static bool is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static void add_name(struct model_choice *choice, const char *name) {
    for (size_t i = 0; i < choice->name_count; i++)
        if (strcmp(choice->names[i], name) == 0) return;
    if (choice->name_count == MODEL_NAMES_MAX) return;
    snprintf(choice->names[choice->name_count++], MODEL_NAME_BYTES, "%.*s", MODEL_NAME_BYTES - 1,
             name);
}

static const struct known_model *find_known(const char *name) {
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        for (size_t j = 0; j < MODEL_NAMES_MAX && known_models[i].names[j]; j++)
            if (strcasecmp(known_models[i].names[j], name) == 0) return &known_models[i];
    return NULL;
}

static enum err choose_known(const struct known_model *known, const char *name,
                             struct model_choice *choice, struct error *error) {
    char folder[PATH_MAX];
    if (!catalog_folder(folder))
        return err_set(error, ERR_NOT_FOUND, "model '%s': neither XDG_CACHE_HOME nor HOME is set",
                       name);
    int bytes = snprintf(choice->path, sizeof choice->path, "%s/%s", folder, known->file);
    if (bytes >= (int)sizeof choice->path || !is_file(choice->path))
        return err_set(error, ERR_NOT_FOUND, "model '%s' is not in %.200s; %s", name, folder,
                       known->how_to_get);
    for (size_t j = 0; j < MODEL_NAMES_MAX && known->names[j]; j++)
        add_name(choice, known->names[j]);
    return OK;
}

/* The file name without folder and ".gguf" names a model that is given by its path. */
static void add_stem(struct model_choice *choice) {
    const char *slash = strrchr(choice->path, '/');
    char stem[MODEL_NAME_BYTES];
    snprintf(stem, sizeof stem, "%.*s", MODEL_NAME_BYTES - 1, slash ? slash + 1 : choice->path);
    char *dot = strrchr(stem, '.');
    if (dot && strcmp(dot, ".gguf") == 0) *dot = '\0';
    add_name(choice, stem);
}

static enum err choose_in_folder(const char *name, struct model_choice *choice,
                                 struct error *error) {
    char folder[PATH_MAX] = "";
    if (catalog_folder(folder) && !strchr(name, '/')) {
        static const char *const endings[] = {"", ".gguf"};
        for (size_t i = 0; i < 2; i++) {
            int bytes =
                snprintf(choice->path, sizeof choice->path, "%s/%s%s", folder, name, endings[i]);
            if (bytes < (int)sizeof choice->path && is_file(choice->path)) {
                add_stem(choice);
                return OK;
            }
        }
    }
    return err_set(
        error, ERR_NOT_FOUND,
        "model '%s' is neither a file, nor a known name, nor in %.200s; `quern models` lists "
        "what is there",
        name, folder);
}

enum err catalog_choose(const char *argument, struct model_choice *ret_choice,
                        struct error *error) {
    struct model_choice choice = {.name_count = 0};
    const char *equals = strchr(argument, '='), *name = argument;
    if (equals && !is_file(argument)) {
        char alias[MODEL_NAME_BYTES];
        if (equals == argument || equals - argument >= MODEL_NAME_BYTES)
            return err_set(error, ERR_INVALID,
                           "--model '%s': the alias before '=' has %d bytes, not 1 to %d", argument,
                           (int)(equals - argument), MODEL_NAME_BYTES - 1);
        snprintf(alias, sizeof alias, "%.*s", (int)(equals - argument), argument);
        add_name(&choice, alias);
        name = equals + 1;
    }
    const struct known_model *known = find_known(name);
    enum err err = OK;
    if (strcmp(name, "echo") == 0) {
        choice.is_echo = true;
        add_name(&choice, "echo");
    } else if (known) {
        err = choose_known(known, name, &choice, error);
    } else if (is_file(name) && strlen(name) < PATH_MAX) {
        snprintf(choice.path, sizeof choice.path, "%s", name);
        add_stem(&choice);
    } else {
        err = choose_in_folder(name, &choice, error);
    }
    if (err == OK) *ret_choice = choice;
    return err;
}

static int is_gguf(const struct dirent *entry) {
    return str_ends_with(str_from(entry->d_name), STR(".gguf"));
}

static bool describe(const char *folder, const char *file_name, struct model_file *ret_file) {
    struct stat status;
    int bytes = snprintf(ret_file->path, sizeof ret_file->path, "%s/%s", folder, file_name);
    if (bytes >= (int)sizeof ret_file->path || stat(ret_file->path, &status) != 0) return false;
    ret_file->bytes = (uint64_t)status.st_size;
    snprintf(ret_file->name, sizeof ret_file->name, "%.*s", MODEL_NAME_BYTES - 1, file_name);
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        if (strcmp(known_models[i].file, file_name) == 0)
            snprintf(ret_file->name, sizeof ret_file->name, "%s", known_models[i].names[0]);
    return true;
}

enum err catalog_list(model_file_fn found, void *context, struct error *error) {
    char folder[PATH_MAX];
    if (!catalog_folder(folder)) return OK;
    struct dirent **entries;
    int count = scandir(folder, &entries, is_gguf, alphasort);
    if (count < 0)
        return errno == ENOENT ? OK : err_from_errno(error, errno, "cannot list %s", folder);
    struct model_file file;
    for (int i = 0; i < count; i++) {
        if (describe(folder, entries[i]->d_name, &file)) found(context, &file);
        free(entries[i]);
    }
    free(entries);
    return OK;
}
