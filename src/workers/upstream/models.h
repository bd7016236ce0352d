/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_models: the models of one upstream: fixed by its user, or as its /v1/models lists them.
 *
 * Names are kept for as long as the upstream lives, also when it no longer lists them: others hold
 * on to them.  Thread: one at a time.  Memory: bounded by UPSTREAM_MODELS_MAX names in an arena. */

#include "base/arena.h"
#include "protocol/worker.h"
#include "workers/upstream/spec.h"

#define UPSTREAM_MODELS_MAX 512

struct upstream_models {
    struct arena names;
    struct upstream_model {
        struct str name;    /* as clients call it */
        const char *theirs; /* as the upstream does */
        int64_t created_unix_s;
        uint32_t context_tokens_max;
        bool is_listed;
    } models[UPSTREAM_MODELS_MAX];
    size_t count;
    bool is_fixed;
    bool is_known; /* there is a list */
};

void upstream_models_init(struct upstream_models *models, const struct upstream_spec *spec);
void upstream_models_release(struct upstream_models *models);
/* Takes the body of a GET /v1/models. A fixed list only learns context lengths from it. ERR_INVALID
 * when it is not a list with a model in it; then all stays as it was. */
enum err upstream_models_read(struct upstream_models *models, struct str body,
                              struct error *error) MUST_CHECK;
/* NULL when it is not served. */
const struct upstream_model *upstream_models_find(const struct upstream_models *models,
                                                  struct str name);
size_t upstream_models_list(const struct upstream_models *models, struct worker_model *ret_models,
                            size_t models_max);
