/* SPDX-License-Identifier: Apache-2.0 */

/* Further names of models, and models that are deleted, by clients. A name stands for a model's own
 * name, so that it does not depend on other names. */

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "hub/catalog_path.h"
#include "node/folder.h"
#include "node/node_internal.h"
#include "store/model_names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SHOWN(name) (int)((name).bytes < 100 ? (name).bytes : 100), (name).at

static void add_name(void *context, struct str name, struct str model) {
    struct node *node = context;
    if (!names_added_put(node->aliased.added, name, model))
        log_warn("event=name_left_out name=\"%.*s\" reason=\"more than %d names\"", SHOWN(name),
                 NAMES_ADDED_MAX);
}

enum err node_names_read(struct node *node, struct error *error) {
    return store_model_names(node->store, add_name, node, error);
}

static void keep_served(void *context, const struct runner_model *model) {
    struct str name = model->served.name;
    char *served = context;
    if (name.bytes >= MODEL_NAME_BYTES) return;
    memcpy(served, name.at, name.bytes);
    served[name.bytes] = '\0';
}

/* The own name of the model that `name` means. */
static bool find(struct node *node, struct str name, char ret_served[MODEL_NAME_BYTES]) {
    ret_served[0] = '\0';
    return runner_model_find(node->runner, name, keep_served, ret_served) && *ret_served;
}

static enum err not_found(struct str name, struct error *error) {
    return err_set(error, ERR_NOT_FOUND, "model '%.*s' not found", SHOWN(name));
}

static bool is_alias(const struct node *node, struct str name) {
    struct str plain = names_added_plain(name);
    for (size_t i = 0; i < node->aliased.alias_count; i++)
        if (str_equals(plain, names_added_plain(str_from(node->aliases[i].name)))) return true;
    return false;
}

/* --- a further name --- */

static enum err copy(struct node *node, struct str source, struct str destination,
                     struct error *error) {
    char served[MODEL_NAME_BYTES], other[MODEL_NAME_BYTES];
    struct names_added *added = node->aliased.added;
    struct str name = names_added_plain(destination);
    if (!find(node, source, served)) return not_found(source, error);
    bool is_copy = names_added_find(added, name, other);
    if (is_alias(node, name))
        return err_set(error, ERR_INVALID, "'%.*s' is an --alias of this server", SHOWN(name));
    if (!is_copy && find(node, name, other)) {
        if (strcmp(served, other) == 0) return OK; /* it has the name already */
        return err_set(error, ERR_INVALID, "'%.*s' is a model of this server already", SHOWN(name));
    }
    if (!is_copy && !names_added_has_room(added))
        return err_set(error, ERR_INVALID, "%d names were given already: delete one of them first",
                       NAMES_ADDED_MAX);
    enum err err = store_model_name_put(node->store, name, str_from(served), clock_unix_s(), error);
    if (err == OK) (void)names_added_put(added, name, str_from(served));
    return err;
}

enum err node_copy(struct node *node, struct str source, struct str destination,
                   struct error *error) {
    pthread_mutex_lock(&node->adopting);
    enum err err = copy(node, source, destination, error);
    pthread_mutex_unlock(&node->adopting);
    return err;
}

/* --- deleting --- */

/* The index of the first engine that serves the model under its own name. */
static size_t engine_of(const struct node *node, const char *served) {
    size_t at = 0;
    while (at < node->worker_count &&
           !node->workers[at]->ops->serves(node->workers[at], str_from(served)))
        at++;
    return at;
}

/* Whether the model lies in quern's own folder, and is this server's to delete. */
static enum err check_own(const struct node *node, struct str name, const char *path,
                          struct error *error) {
    char folder[PATH_MAX], root[PATH_MAX], real[PATH_MAX];
    switch (catalog_source_of(path)) {
    case SOURCE_OLLAMA:
        return err_set(error, ERR_INVALID,
                       "'%.*s' lies in Ollama's store: delete it with 'ollama rm'", SHOWN(name));
    case SOURCE_HUB:
        return err_set(error, ERR_INVALID,
                       "'%.*s' lies in the cache of Hugging Face, which other programs use: delete "
                       "it with 'hf cache rm'",
                       SHOWN(name));
    case SOURCE_FOLDER: break;
    }
    struct stat status;
    bool is_own =
        catalog_folder(folder) && catalog_root(folder, root) && lstat(path, &status) == 0 &&
        (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) &&
        catalog_inside(root, path, S_ISDIR(status.st_mode), real, NULL) && strcmp(real, root) != 0;
    if (!is_own || node_is_chosen(node->options, path))
        return err_set(error, ERR_INVALID,
                       "'%.*s' is no model of quern's own folder, or is one that this server was "
                       "started with",
                       SHOWN(name));
    return OK;
}

static enum err delete_files(const char *path, struct error *error) {
    struct stat status;
    if (lstat(path, &status) != 0) return OK;
    if (!S_ISDIR(status.st_mode)) return os_unlink(path, error);
    folder_remove(path);
    return lstat(path, &status) != 0
               ? OK
               : err_set(error, ERR_IO, "the model's folder cannot be removed");
}

/* Deletes a model's files; its engines leave first. */
static enum err delete_model(struct node *node, struct str name, const char *served,
                             struct error *error) {
    char copy_name[MODEL_NAME_BYTES];
    size_t first = engine_of(node, served);
    if (!node->options || first == node->worker_count)
        return err_set(error, ERR_INVALID,
                       "'%.*s' is one of the models that this server was started with",
                       SHOWN(name));
    const char *path = node->paths[first];
    enum err err = check_own(node, name, path, error);
    if (err != OK) return err;
    if (names_added_of(node->aliased.added, str_from(served), copy_name))
        return err_set(error, ERR_INVALID, "'%.100s' is a copy of '%.*s': delete the copy first",
                       copy_name, SHOWN(name));
    for (size_t i = 0; i < node->worker_count; i++)
        if (strcmp(node->paths[i], path) == 0 && node->workers[i]->ops->retire)
            node->workers[i]->ops->retire(node->workers[i], true);
    log_info("event=model_deleted model=\"%s\"", served);
    err = delete_files(path, error);
    node_models_note(node);
    return err;
}

static enum err remove_name(struct node *node, struct str name, struct error *error) {
    char served[MODEL_NAME_BYTES];
    struct str plain = names_added_plain(name);
    if (is_alias(node, name))
        return err_set(error, ERR_INVALID, "'%.*s' is an --alias of this server", SHOWN(name));
    if (names_added_find(node->aliased.added, plain, served)) {
        enum err err = store_model_name_remove(node->store, plain, error);
        if (err == OK) (void)names_added_remove(node->aliased.added, plain);
        return err;
    }
    if (!find(node, name, served)) return not_found(name, error);
    return delete_model(node, name, served, error);
}

enum err node_remove(struct node *node, struct str name, struct error *error) {
    pthread_mutex_lock(&node->adopting);
    enum err err = remove_name(node, name, error);
    pthread_mutex_unlock(&node->adopting);
    return err;
}
