/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_state: the struct behind model.h, for model.c, and for model_logits.c, which runs a prompt
 * without a scheduler. Only these two files include it. */

#include "checkpoint/checkpoint.h"
#include "cpu/embed.h"
#include "cpu/forward.h"
#include "cpu/model.h"
#include "cpu/sampler.h"
#include "cpu/tile_store.h"
#include "weights/weights.h"

/* The place where a step is computed. An urgent step that passes another has a lane of its own. */
struct lane {
    struct forward *forward;
    uint32_t logit_rows_max;
    uint32_t *wanted;       /* (rows_max) rows of the step that have logits */
    struct sample *samples; /* (rows_max) samples of the step under way */
    const struct step *step;
    bool is_computed; /* all layers are computed; only the head is left */
    uint32_t sampled; /* entries of step.logit_rows that are sampled */
};

enum { LANE_PLAIN, LANE_URGENT, LANE_COUNT };

struct model {
    struct checkpoint *checkpoint;
    struct model_config config;
    struct kv_layout layout;
    const struct kernels *kernels;
    struct pool *pool;
    struct tile_store *store;
    struct weights *weights;
    struct lane lanes[LANE_COUNT];
    struct sampler *samplers;  /* (threads); NULL, and no lane is open, if it does not generate */
    struct embedder *embedder; /* NULL when it does not embed */
    uint64_t peak_rss_bytes;
    struct backend backend;
};

static inline bool model_generates(const struct model *model) {
    return !model->config.is_bidirectional;
}
