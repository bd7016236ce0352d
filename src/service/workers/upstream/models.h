/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_models: the models of one upstream: fixed by the operator, or as /v1/models lists them.
 *
 * Thread: one at a time.
 * Memory: at most UPSTREAM_MODELS_MAX models in an arena. A name that is no longer listed is kept,
 * because worker_ops.models lends it. */

#include "base/arena.h"
#include "protocol/worker.h"
#include "workers/upstream/spec.h"

#define UPSTREAM_MODELS_MAX 512

struct upstream_models {
    struct arena names;
    struct upstream_model {
        struct str name;    /* for clients */
        const char *theirs; /* the upstream's own name */
        int64_t created_unix_s;
        uint32_t context_tokens_max;
        bool is_listed;
    } models[UPSTREAM_MODELS_MAX];
    size_t count;
    bool is_fixed;
    bool is_known; /* it has been listed once */
};

void upstream_models_init(struct upstream_models *models, const struct upstream_spec *spec);
void upstream_models_release(struct upstream_models *models);
/* Takes the body of a GET /v1/models. A fixed list learns only context lengths from it. ERR_INVALID
 * if it is no list with a model in it; nothing changes then. */
enum err upstream_models_read(struct upstream_models *models, struct str body,
                              struct error *error) MUST_CHECK;
/* NULL if the upstream does not serve it. */
const struct upstream_model *upstream_models_find(const struct upstream_models *models,
                                                  struct str name);
size_t upstream_models_list(const struct upstream_models *models, struct worker_model *ret_models,
                            size_t models_max);
