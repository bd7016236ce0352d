/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/models.h"

#include "json/json.h"

#include <stdlib.h>
#include <string.h>

#define NAMES_BYTES_MAX ((size_t)2 * UPSTREAM_MODELS_MAX * UPSTREAM_MODEL_BYTES)

static struct upstream_model *add_model(struct upstream_models *models, struct str name,
                                        struct str theirs) {
    if (models->count == UPSTREAM_MODELS_MAX) return NULL;
    struct str kept = arena_copy(&models->names, name);
    struct str kept_theirs = arena_copy(&models->names, theirs);
    if (!kept.at || !kept_theirs.at) return NULL;
    struct upstream_model *model = &models->models[models->count++];
    *model = (struct upstream_model){.name = kept, .theirs = kept_theirs.at};
    return model;
}

void upstream_models_init(struct upstream_models *models, const struct upstream_spec *spec) {
    *models = (struct upstream_models){.is_fixed = spec->model_count > 0};
    models->is_known = models->is_fixed;
    arena_init(&models->names, NAMES_BYTES_MAX);
    for (size_t i = 0; i < spec->model_count; i++) {
        struct upstream_model *model =
            add_model(models, str_from(spec->models[i].name), str_from(spec->models[i].theirs));
        if (!model) abort();
        model->is_listed = true;
    }
}

void upstream_models_release(struct upstream_models *models) {
    arena_release(&models->names);
}

/* As vLLM names it, or llama-server. */
static uint32_t context_of(const json_t *one) {
    json_int_t tokens = json_integer_value(json_member(one, "max_model_len"));
    if (tokens <= 0) tokens = json_integer_value(json_member(json_member(one, "meta"), "n_ctx"));
    return tokens > 0 && tokens < UINT32_MAX ? (uint32_t)tokens : 0;
}

static void learn(struct upstream_model *model, const json_t *one) {
    json_int_t created = json_integer_value(json_member(one, "created"));
    model->context_tokens_max = context_of(one);
    if (created > 0) model->created_unix_s = created;
}

/* Takes one model of the list. */
static void take_model(struct upstream_models *models, const json_t *one) {
    struct str id = json_member_str(one, "id");
    struct upstream_model *found = NULL;
    if (id.bytes == 0 || id.bytes >= UPSTREAM_MODEL_BYTES || memchr(id.at, 0, id.bytes)) return;
    for (size_t i = 0; i < models->count; i++) {
        if (!str_is(id, models->models[i].theirs)) continue;
        found = &models->models[i];
        learn(found, one);
        found->is_listed = true;
    }
    if (found || models->is_fixed) return;
    found = add_model(models, id, id);
    if (!found) return;
    learn(found, one);
    found->is_listed = true;
}

enum err upstream_models_read(struct upstream_models *models, struct str body,
                              struct error *error) {
    json_t *list;
    enum err err = json_read(&list, body, error);
    if (err != OK) return err;
    const json_t *data = json_member(list, "data");
    if (json_array_size(data) == 0) {
        json_decref(list);
        return err_set(error, ERR_INVALID, "no model in the list");
    }
    if (!models->is_fixed)
        for (size_t i = 0; i < models->count; i++) models->models[i].is_listed = false;
    for (size_t i = 0; i < json_array_size(data); i++) take_model(models, json_array_get(data, i));
    models->is_known = true;
    json_decref(list);
    return OK;
}

const struct upstream_model *upstream_models_find(const struct upstream_models *models,
                                                  struct str name) {
    for (size_t i = 0; i < models->count; i++)
        if (models->models[i].is_listed && str_equals(models->models[i].name, name))
            return &models->models[i];
    return NULL;
}

size_t upstream_models_list(const struct upstream_models *models, struct worker_model *ret_models,
                            size_t models_max) {
    size_t count = 0;
    for (size_t i = 0; i < models->count && count < models_max; i++)
        if (models->models[i].is_listed)
            ret_models[count++] =
                (struct worker_model){.name = models->models[i].name,
                                      .created_unix_s = models->models[i].created_unix_s,
                                      .context_tokens_max = models->models[i].context_tokens_max};
    return count;
}
