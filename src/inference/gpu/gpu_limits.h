/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_limits: the sizes of a step and of the KV cache that an executor asks a GPU for.
 *
 * The executor opens a GPU with these limits, and card_fit predicts with them, so that both tell
 * the same number of sequences. Where the caller leaves the number open, it follows from the
 * memory.
 *
 * Thread: any.
 * Memory: the caller's structs. */

#include "gpu/gpu_sampling.h"
#include "gpu/plan_attention.h"
#include "gpu/table.h"
#include "program/executor.h"
#include "program/kv_layout.h"

/* Default of executor_limits.rows_max: more rows are no faster on an H200. Steps have fewer where
 * trials say so (gpu_rows.h). */
#define GPU_ROWS_DEFAULT 2048u
/* Likewise of sequences_max: fewer, a multiple of 16, if the cache would have less than 512 tokens
 * per sequence, since their logits take its memory. */
#define GPU_SEQUENCES_DEFAULT 1024u
/* With experts in the host's memory a step takes the time of their weights on the bus, for any
 * number of sequences. So as many layers leave, and make room for sequences of so many tokens, as
 * give nine tenths of the most sequences for a byte on the bus; where the caller wants a number of
 * sequences, as few layers as leave the cache room for those. A step has more rows, of prompts. */
#define GPU_AWAY_TOKENS 1024u
#define GPU_AWAY_ROWS 8192u
/* Tokens of one sequence that the cache has room for at least, or its whole context if that is
 * less. */
#define GPU_CACHE_TOKENS_LEAST 4096u

struct gpu_limits_options {
    const struct gpu_program *program;
    const struct kv_layout *layout;
    enum gpu_form kv_form;
    enum gpu_form state_form; /* GPU_F32 or GPU_BF16; counts with recurrent layers alone */
    uint32_t steps_max;       /* 1 or 2; 0: 2 */
    uint32_t multiprocessors; /* gpu_info's */
    uint64_t memory_bytes;    /* that the GPU may take; 0: more than enough */
    bool leaves_experts;      /* experts that have no room stay in the host's memory */
    uint64_t host_bytes;      /* the host's memory that such experts may take; 0: no limit */
    struct executor_limits wanted;
};

struct gpu_limits gpu_limits_of(const struct gpu_limits_options *options);
/* Whether the host's memory has room for the experts that the limits leave there. */
bool gpu_limits_have_host(const struct gpu_limits_options *options,
                          const struct gpu_limits *limits);
/* The options of plan_attention within these limits, as far as they decide on sizes. */
struct plan_attention_options gpu_limits_plan(const struct gpu_limits_options *options,
                                              const struct gpu_limits *limits);
/* The options of gpu_sampling within these limits. */
struct gpu_sampling_options gpu_limits_sampling(const struct gpu_program *program,
                                                const struct gpu_limits *limits);
