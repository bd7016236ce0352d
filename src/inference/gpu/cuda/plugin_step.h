/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plugin_step: a step under way, as a flight: its arrays on the GPU, its draws, what it leaves, and
 * the events around it.
 *
 * It knows no matrix and no operation.
 *
 * Thread: the GPU's one.
 * Memory: a flight's buffers are laid out in prepare: in the arena, and pinned ones of the GPU's.
 * Invariant: a flight's arrays and results change only when its step has been waited for. */

#include "gpu/cuda/plugin_memory.h"
#include "gpu/cuda/recurrent.h"
#include "gpu/cuda/sample.h"
#include "gpu/table.h"

struct CUevent_st;
struct gpu;

struct card_tiles {
    const struct gpu_tile_item *items;
    uint32_t count;
    const uint32_t *rows;
};
struct card_attention {
    struct card_tiles prefixes;
    struct card_tiles tiles;
    const struct gpu_decode_item *decode;
    uint32_t decode_count;
    const struct gpu_merge_item *merges;
    uint32_t merge_count;
};
struct card_group {
    const uint32_t *slots;
    const uint32_t *pages;
    const uint32_t *seen;        /* (row_count) or NULL */
    const uint32_t *wanted_seen; /* (wanted_count) or NULL */
    struct card_attention all;
    struct card_attention kept;
};
/* The last rows of a step whose prompts are unfolded (plugin_unfold.h). */
struct card_unfold {
    uint32_t rows; /* 0: none */
    struct card_tiles items;
    const uint32_t *firsts; /* (items.count) as struct cuda_unfolded has them */
    const uint32_t *pages;  /* (page_count) those of all keys */
    uint32_t page_count;
};
/* A step's arrays on the GPU. */
struct card_step {
    uint32_t row_count;
    uint32_t wanted_count;
    const int32_t *tokens;
    const uint32_t *positions;
    const uint32_t *places; /* or NULL */
    const uint32_t *wanted;
    const struct gpu_pool *pools; /* (pool_count) */
    uint32_t pool_count;
    const uint32_t *wanted_positions;     /* (wanted_count) */
    uint32_t *nonfinite;                  /* (1) zero when it arrives */
    const struct cuda_state_item *states; /* (state_count) the decoded ones first */
    uint32_t state_count;
    uint32_t decoded_count;
    struct card_group groups[GPU_GROUPS_MAX];
    struct card_unfold unfold;
};

/* The draws of one call of sample, on the GPU. */
struct card_samples {
    const struct gpu_draw *draws; /* (wanted_count) draws for all wanted rows */
    const uint32_t *drawn;
    uint32_t drawn_count;
    uint32_t bare_count; /* see struct cuda_sample */
    const uint32_t *summed;
    uint32_t summed_count;
    const uint32_t *masks;
    uint32_t mask_words;
    const struct draw_edit *edits;
    const struct gpu_ask *asks;
    uint32_t ask_count;
    const int32_t *named;
    uint32_t named_count;
};

/* What a step leaves, twice: on the GPU and in pinned memory. */
struct results {
    int32_t *tokens;            /* (logit_rows_max), behind them the count of nonfinite rows */
    struct gpu_answer *answers; /* (logit_rows_max) */
    float *named;               /* (named_max) */
    float *vectors;             /* (sequences_max, width), if the program pools: pinned alone */
};

/* A step under way. */
struct flight {
    uint64_t number;
    uint32_t parts_before; /* sums over ranks of the steps before it */
    bool is_under_way;
    bool is_careful; /* while it is under way: the host waits for each operation */
    struct block block;
    size_t step_bytes; /* the step's own arrays in the block; those of draws follow */
    struct card_step step;
    float *logits;           /* (bucket of logit_rows_max, logit_stride) */
    const float *row_scale;  /* scale of its logits; NULL: bf16 */
    struct cuda_stat *stats; /* (logit_rows_max) */
    struct results card;
    struct results host;
    uint32_t answer_count;
    uint32_t named_count;
    struct CUevent_st *begun;     /* on `compute`: the step's first kernel may start */
    struct CUevent_st *ended;     /* on `compute`: its kernels are done */
    struct CUevent_st *done;      /* on `down`: its results are here */
    struct CUevent_st **op_ended; /* (op_count) when operations are measured, else NULL */
};

/* Bytes of a block that holds any step within the limits, and its draws. */
size_t step_block_bytes(const struct gpu_program *program, const struct gpu_limits *limits);
/* Puts the arrays of a step into the flight's block. ERR_LIMIT when they are over the limits. */
enum err step_put(struct gpu *gpu, struct flight *flight, const struct gpu_step *step,
                  struct error *error) MUST_CHECK;
/* In a careful step the host waits here for what it started, whose name an error then has. */
enum err step_await(const struct gpu *gpu, const struct flight *flight, const char *what,
                    struct error *error) MUST_CHECK;
