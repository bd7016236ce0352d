/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* text_runner: a device that computes steps of whole texts and pools them (gpu/text_runner_gpu.h).
 *
 * The embedder (cpu/embed.h) puts texts into steps and finishes vectors; what happens between is
 * behind this interface, if the CPU does not do it. It knows no pooling rule and no label.
 *
 * Thread: that of the embedder.
 * Memory: a runner is its own until close. submit copies its arguments. */

#include "program/memory_ledger.h"
#include "scheduler/backend.h"

/* Rows of a text that are summed, counted from its first. */
struct text_pool {
    uint32_t first, count; /* at least 1 */
};

struct text_step {
    const struct step *step; /* tokens, positions and sequences with kv_tokens 0 and no pages */
    const struct text_pool *pools; /* (sequence_count) */
    const bool *is_second;         /* (row_count) rows of the second text of a pair */
};

struct text_runner_description {
    char name[96];               /* name of the GPU */
    struct memory_ledger ledger; /* memory on it */
};

struct text_runner_ops {
    /* Starts a step. At most steps_max are under way. An error is fatal: the runner can only be
     * closed after it, as after one of wait. */
    enum err (*submit)(void *self, const struct text_step *step, struct error *error);
    /* Ends the oldest step: ret_sums (sequence_count, width) sums of its pools. */
    enum err (*wait)(void *self, float *ret_sums, struct error *error);
    void (*describe)(const void *self, struct text_runner_description *ret_description);
    void (*close)(void *self);
};

struct text_runner {
    const struct text_runner_ops *ops;
    void *self;
    uint32_t rows_max;  /* rows of a step */
    uint32_t texts_max; /* texts of a step */
    uint32_t steps_max;
};
