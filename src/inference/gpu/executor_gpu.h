/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* executor_gpu: the executor of a GPU (program/executor.h). It turns a scheduler's steps into
 * a GPU's (gpu/table.h): places in the KV cache, attention work, draws.
 *
 * Opening has an order, so that a model that does not fit is refused before its weights are read:
 * the loader opens the matrices in a gpu_store, executor_gpu_open lays out the GPU's
 * memory, and then the loader fills the matrices. Two steps can be under way: the scheduler
 * composes one while the GPU computes the other. A row that the next step must know about is
 * sampled late (scheduler/backend.h). It knows no file, no architecture and no text.
 *
 * Thread: one at a time (the engine loop).
 * Memory: everything is sized and allocated in executor_gpu_open. The GPU's memory is the
 *     GPU's; closing the executor leaves the GPU open.
 * Invariant: the tokens of a sequence depend on its prompt, sampling and seed only, as far as the
 *     GPU's arithmetic does. */

#include "checkpoint/config.h"
#include "gpu/gpu_store.h"
#include "program/executor.h"
#include "program/kv_layout.h"
#include "program/program.h"

struct executor_gpu_options {
    const struct gpu_table *table;
    struct gpu *gpu;                   /* open, not prepared */
    const struct gpu_info *card;       /* borrowed for the call */
    uint32_t ranks;                    /* GPUs behind `gpu`; 0 means 1 */
    uint64_t memory_bytes;             /* that each GPU may take; 0: more than enough */
    const struct gpu_store *store;     /* has all matrices of `weights` */
    const struct model_config *config; /* config of a decoder that generates */
    const struct kv_layout *layout;
    struct program_weights weights; /* open; they must be filled before the first step */
    enum gpu_form kv_form;
    enum gpu_form state_form;      /* GPU_F32 or GPU_BF16: of the states of recurrent layers */
    bool leaves_experts;           /* experts that have no room stay in the host's memory */
    uint64_t host_bytes;           /* memory that those of all ranks may take there; 0: no limit */
    uint32_t steps_max;            /* 1 or 2; 0: 2 */
    uint32_t urgent_sequences;     /* part of limits.sequences_max, which no option counts */
    struct executor_limits limits; /* defaults: gpu_limits.h; kv_bytes 0: all memory left */
};

/* Lays out the GPU's memory. ERR_LIMIT, with the parts, when the model does not fit;
 * ERR_INVALID for a shape that the GPU has no kernels for. Weights, configuration and layout
 * must outlive the executor. */
enum err executor_gpu_open(struct executor *ret_executor,
                           const struct executor_gpu_options *options,
                           struct error *error) MUST_CHECK;

/* The rows of a step: the least that use the GPU fully (gpu_rows.h), tried once the store has been
 * filled and before the first step. With experts in the host's memory all that a step has room for,
 * and nothing is tried: each step waits for the bus, however few rows it has. */
enum err executor_gpu_rows(const struct executor *executor, uint32_t *ret_rows,
                           struct error *error) MUST_CHECK;
