/* SPDX-License-Identifier: Apache-2.0 */

/* Models that come to this machine while the node runs. The names and sizes in the stores tell
 * whether one has come; only then the files are read, by a process of their own (shelf.h). */

#include "base/log.h"
#include "node/node_internal.h"

#include <assert.h>
#include <string.h>

static void ignore_model(void *context, const struct runner_model *model) {
    (void)context, (void)model;
}

static bool is_served(struct node *node, const char *name) {
    return runner_model_find(node->runner, str_from(name), ignore_model, NULL);
}

/* Serves a model that was deleted, and has come back, by the engines that it had. */
static bool take_back(struct node *node, const char *path) {
    bool is_found = false;
    for (size_t i = 0; i < node->worker_count; i++) {
        if (strcmp(node->paths[i], path) != 0 || !node->workers[i]->ops->retire) continue;
        node->workers[i]->ops->retire(node->workers[i], false);
        is_found = true;
    }
    return is_found;
}

/* Gives the names to the engine that has the model's files already; false if none has. */
static bool share(struct node *node, const struct model_choice *choice, bool *ret_is_new) {
    for (size_t i = 0; i < node->worker_count; i++) {
        struct worker_model own;
        if (strcmp(node->paths[i], choice->path) != 0) continue;
        if (node->workers[i]->ops->models(node->workers[i], &own, 1) == 0) continue;
        for (size_t j = 0; j < choice->name_count; j++)
            if (!is_served(node, choice->names[j]))
                *ret_is_new |=
                    names_added_put(node->aliased.added, str_from(choice->names[j]), own.name);
        return true;
    }
    return false;
}

/* Serves a model under all its names. The lock `adopting` is held. */
static enum err adopt(struct node *node, const struct shelf_model *model, bool *ret_is_new,
                      struct error *error) {
    *ret_is_new = false;
    if (share(node, &model->choice, ret_is_new)) return OK;
    *ret_is_new = !is_served(node, model->choice.names[0]);
    if (!*ret_is_new || take_back(node, model->choice.path)) return OK;
    return node_open_model(node, &model->choice, model, node->options, error);
}

enum err node_adopt(struct node *node, const char *name, struct error *error) {
    struct shelf *shelf = NULL;
    bool is_new;
    assert(node->options);
    pthread_mutex_lock(&node->adopting);
    enum err err = OK;
    if (!is_served(node, name)) {
        err = shelf_open_one(&shelf, name, error);
        if (err == OK && shelf_count(shelf) == 0)
            err = err_set(error, ERR_INVALID, "'%.100s' is there, and cannot be served", name);
        else if (err == OK)
            err = adopt(node, shelf_at(shelf, 0), &is_new, error);
        shelf_close(shelf);
    }
    pthread_mutex_unlock(&node->adopting);
    return err;
}

/* --- looking --- */

static void add_file(void *context, const struct model_file *file) {
    struct sha256 *hash = context;
    sha256_add(hash, file->path, strlen(file->path) + 1);
    sha256_add(hash, &file->bytes, sizeof file->bytes);
}

/* The sum of the models that lie on this machine now. False if they cannot be listed. */
static bool sum_models(unsigned char ret_sum[SHA256_BYTES]) {
    struct sha256 hash;
    struct error error;
    sha256_init(&hash);
    enum err err = catalog_list(add_file, &hash, &error);
    sha256_end(&hash, ret_sum);
    return err == OK;
}

void node_models_note(struct node *node) {
    unsigned char sum[SHA256_BYTES];
    if (sum_models(sum)) memcpy(node->seen, sum, sizeof sum);
}

/* Reads all models, and serves those that are new; true if there is one. */
static bool read_models(struct node *node) {
    static const volatile bool never = false;
    struct shelf *shelf;
    struct error error;
    bool has_new = false;
    if (shelf_open(&shelf, &never, &error) != OK) {
        log_warn("event=models_not_read error=\"%s\"", error.text);
        return false;
    }
    for (size_t i = 0; i < shelf_count(shelf); i++) {
        const struct shelf_model *model = shelf_at(shelf, i);
        bool is_new;
        if (adopt(node, model, &is_new, &error) != OK) {
            log_warn("event=model_left_out model=\"%s\" error=\"%s\"", model->choice.names[0],
                     error.text);
            continue;
        }
        if (is_new) log_info("event=model_found model=\"%s\"", model->choice.names[0]);
        has_new |= is_new;
    }
    shelf_close(shelf);
    return has_new;
}

bool node_models_look(void *context) {
    struct node *node = context;
    unsigned char sum[SHA256_BYTES];
    bool has_new = false;
    pthread_mutex_lock(&node->adopting);
    if (sum_models(sum) && memcmp(sum, node->seen, sizeof sum) != 0) {
        has_new = read_models(node);
        memcpy(node->seen, sum, sizeof sum);
    }
    pthread_mutex_unlock(&node->adopting);
    return has_new;
}
