/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_internal: the struct behind model.h, for model.c; for model_form.c, which chooses
 * the form of its weights on a device; and for model_logits.c, which runs a prompt without a
 * scheduler.
 *
 * Thread: as model.h says.
 * Memory: model_close closes all members, in the reverse order of their opening. */

#include "checkpoint/checkpoint.h"
#include "cpu/tile_store.h"
#include "gpu/gpu_store.h"
#include "kernels/pool.h"
#include "model/model.h"
#include "program/executor.h"
#include "program/kv_layout.h"
#include "weights/weights.h"

struct model {
    struct checkpoint *checkpoint;
    struct model_config config;
    struct kv_layout layout;
    const struct kernels *kernels;
    struct pool *pool;
    bool borrows_pool;
    struct tile_store *store;    /* NULL with a device */
    struct gpu_store *gpu_store; /* NULL on the CPU */
    enum gpu_form weight_form;   /* argument for gpu_store */
    bool leaves_experts;         /* argument for executor_gpu */
    struct weights *weights;
    bool is_for_texts;         /* a device computes its texts, and it does not generate */
    struct text_runner runner; /* all zero: the CPU computes texts */
    struct embedder *embedder; /* NULL when it does not embed */
    struct executor executor;  /* all zero when it does not generate */
    uint64_t peak_rss_bytes;
    struct backend backend;
};

/* The form to begin with. A file of 8 bits or fewer is held in bf16 only where enough sequences
 * have room beside it. */
enum gpu_form model_choose_form(const struct model *model, const struct model_options *options,
                                const struct executor_limits *limits);
/* What to try next where a GPU has too little memory: a smaller form, and then experts that stay in
 * the host's memory. False: nothing is left. */
bool model_take_less(struct model *model, const struct model_options *options);
const char *model_form_name(enum gpu_form form);

static inline bool model_generates(const struct model *model) {
    return !model->is_for_texts && !model->config.is_bidirectional && model->config.labels == 0;
}
