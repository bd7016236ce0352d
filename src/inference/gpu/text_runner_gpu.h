/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* text_runner_gpu: the runner of whole texts (program/text_runner.h) on a GPU (gpu/table.h).
 *
 * The texts of a step stand one behind another in the first pages of a cache that has one place,
 * which the layers take in turns: keys are read during their layer only, and nothing is kept. Where
 * rows see both sides the work list says up to where (plan_attention.h). The GPU pools, so one
 * vector per text comes back. It opens in the order of executor_gpu.h, and knows no file.
 *
 * Thread: one at a time (the engine loop).
 * Memory: everything is sized and allocated at the opening. The GPU's memory is the GPU's; closing
 *     the runner leaves the GPU open.
 * Invariant: a text's sums depend on its tokens only, as far as the GPU's arithmetic does: its
 *     products are chosen by the rows of a step. */

#include "checkpoint/config.h"
#include "gpu/gpu_store.h"
#include "program/program.h"
#include "program/text_runner.h"

#define TEXT_RUNNER_ROWS_DEFAULT                                                                   \
    8192u                           /* rows of a step; more are no faster, and tables.h has none */
#define TEXT_RUNNER_TEXTS_MAX 1024u /* texts of a step */

struct text_runner_gpu_options {
    const struct gpu_table *table;
    struct gpu *gpu;                   /* open, not prepared */
    const struct gpu_info *card;       /* borrowed for the call */
    const struct gpu_store *store;     /* has all matrices of `weights` */
    const struct model_config *config; /* config of an encoder, or of a decoder that embeds */
    struct program_weights weights;    /* open, without a head; filled before the first step */
    const float *second_type;          /* (width) or NULL: what the second text of a pair adds */
    bool is_bidirectional;
    bool pools_all; /* all rows of a text are summed, not one */
    enum gpu_form kv_form;
    uint32_t rows_max;   /* rows of a step; 0: the default */
    uint32_t tokens_max; /* tokens of one text */
};

/* Lays out the GPU's memory. ERR_LIMIT, with the parts, when the model does not fit; ERR_INVALID
 * for a shape that the GPU has no kernels for. Weights and config must outlive the runner. */
enum err text_runner_gpu_open(struct text_runner *ret_runner,
                              const struct text_runner_gpu_options *options,
                              struct error *error) MUST_CHECK;

/* The limits of such a step, for the runner and for predictions (gpu_fit.h). `layout` is that of
 * the program. */
struct gpu_limits text_runner_gpu_limits(const struct text_runner_gpu_options *options,
                                         const struct gpu_program *program,
                                         const struct kv_layout *layout);
