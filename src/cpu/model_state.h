/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_state: what model_open makes; private to the files of model.h: model.c, and model_logits.c,
 * which runs a prompt without a scheduler. */

#include "checkpoint/checkpoint.h"
#include "cpu/embed.h"
#include "cpu/forward.h"
#include "cpu/model.h"
#include "cpu/sampler.h"

/* Where a step is computed; one that passes another has a lane of its own. */
struct lane {
    struct forward *forward;
    uint32_t logit_rows_max;
    uint32_t *wanted;       /* (rows_max) rows of the step that have logits */
    struct sample *samples; /* (rows_max) of the step under way */
    const struct step *step;
    bool is_computed; /* all layers; the head is left */
    uint32_t sampled; /* of step.logit_rows */
};

enum { LANE_PLAIN, LANE_URGENT, LANE_COUNT };

struct model {
    struct checkpoint *checkpoint;
    struct model_config config;
    struct kv_layout layout;
    const struct kernels *kernels;
    struct pool *pool;
    struct weights *weights;
    struct lane lanes[LANE_COUNT];
    struct sampler
        *samplers; /* (threads); NULL when it does not generate, as the lanes are empty */
    struct embedder *embedder; /* NULL when it does not embed */
    uint64_t peak_rss_bytes;
    struct backend backend;
};

static inline bool model_generates(const struct model *model) {
    return !model->config.is_bidirectional;
}
