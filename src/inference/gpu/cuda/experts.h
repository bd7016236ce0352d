/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* experts: the feed-forward of a mixture of experts, in three steps.
 *
 *   cuda_route        logits of the router → which experts a row has, their weights, and the order
 *                     of all pairs (row, expert) by expert
 *   cuda_experts      one product of every expert with its rows: gate and up with the activation
 *                     in it, which finds its rows by the order; or down, which leaves each result
 *                     at its pair
 *   cuda_experts_sum  the results of a row, weighted, in the order of its choice
 *
 * Nothing waits for the host: how many rows an expert has stays on the device, grids follow from
 * the call's sizes alone, and a graph may hold all launches. Weights of experts that no row chose
 * are not read. Between gate·up and down of 8 bits cuda_quantise (rows.h) makes the codes.
 *
 * It does not know where rows come from, and no shared expert but as a row to add.
 *
 * Thread: one per stream.
 * Memory: device memory of the caller; nothing is allocated.
 * Invariant: a row's result is bitwise the same for any other rows of the call. */

#include "gpu/cuda/rows.h"
#include "gpu/grouping.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_EXPERTS_MAX 512
#define CUDA_EXPERTS_PER_ROW_MAX 16

/* ---- the route ---- */

/* A tile: some rows of one expert, next to each other in the order. */
struct cuda_expert_tiles {
    uint32_t expert;
    uint32_t first; /* place in the order of the expert's first pair */
    uint32_t count; /* number of the expert's pairs */
    uint32_t begin; /* the expert's first tile */
};

/* Rows by experts. Pair p is row p / each, its choice p % each. */
struct cuda_expert_order {
    uint32_t experts; /* at most CUDA_EXPERTS_MAX */
    uint32_t each;    /* experts per row, at most CUDA_EXPERTS_PER_ROW_MAX */
    uint32_t rows;
    uint16_t *chosen; /* (rows, each), the best first; of equal ones the lower number */
    float *weights;   /* (rows, each) */
    uint32_t *order;  /* (rows · each) pairs by expert, and of one expert by number */
    struct cuda_expert_tiles *tiles; /* (cuda_expert_tiles_most + 1); [0].count: how many follow */
};

/* The most tiles that so many rows can have on this GPU, at least 1. */
uint32_t cuda_expert_tiles_most(const struct cuda_expert_order *order);

/* What a row's logits become, s, and which weights its experts get.
 *
 * SOFTMAX: s = softmax(logits); weights are s, or of the chosen alone when renormalised. Top k of
 * the logits and a softmax over these is the same as renormalised.
 * SIGMOID: s = 1 / (1 + exp(-logit)). Chosen by s + choice_bias; weights are s.
 *
 * With groups, an expert is chosen only from the kept ones, whose two best choices have the
 * largest sums, or whose best choice is the largest. Groups of SOFTMAX go by the best one. */
enum cuda_scores { CUDA_SCORES_SOFTMAX, CUDA_SCORES_SIGMOID };
struct cuda_route {
    const void *logits; /* (rows, stride) bf16 or float32 */
    size_t stride;
    bool is_f32;
    enum cuda_scores scores;
    const float *bias;         /* (experts), added to the logits; or NULL */
    const float *choice_bias;  /* (experts), of SIGMOID; or NULL */
    const float *expert_scale; /* (experts), times an expert's weight after all; or NULL */
    uint32_t groups;           /* 0: none; else it divides the experts and is at most 32 */
    uint32_t groups_kept;
    bool groups_by_best;
    bool is_renormalised;
    float scale; /* scale of all weights */
    struct cuda_expert_order to;
};
/* Enqueues it. ERR_INVALID for more experts than there is room for, or groups that hold too few. */
enum err cuda_route(const struct cuda_route *call, struct CUstream_st *stream,
                    struct error *error) MUST_CHECK;

/* ---- products ---- */

/* What becomes of an expert's sums z of a row. DOWN leaves z. The others are act(gate) · up of the
 * first half of z and the second. CLAMPED: gate = min(z, limit), up = z within ±limit,
 * (up + 1) · gate · sigmoid(alpha · gate). */
enum cuda_expert_ending {
    CUDA_EXPERTS_DOWN,
    CUDA_EXPERTS_SILU,
    CUDA_EXPERTS_GELU_TANH,
    CUDA_EXPERTS_CLAMPED
};

/* z = in · weightsᵀ · row_scale · column_scale + bias, for each pair.
 *
 * With a gate, `in` has the call's rows and y is (pairs, outputs / 2) in the order. DOWN has `in`
 * (pairs, inputs) in the order, and leaves y (pairs, outputs) at the pairs' numbers. */
struct cuda_experts {
    enum cuda_expert_ending ending;
    enum cuda_code code;          /* rows and weights; both of INT8 mixed (rows.h), or neither */
    uint32_t outputs;             /* a multiple of 32; with a gate both halves together */
    uint32_t inputs;              /* a row has a multiple of 16 B */
    const void *weights;          /* (experts, outputs, inputs); with a gate: gate, then up */
    const uint16_t *column_scale; /* (experts, outputs) bf16; NULL with bf16 */
    const float *bias;            /* (experts, outputs) or NULL */
    const void *in;
    const float *row_scale; /* scales of the rows of `in`; NULL with bf16 */
    float limit, alpha;     /* for CLAMPED */
    struct cuda_expert_order by;
    uint16_t *y; /* bf16 */
    /* Weights are codes in groups (grouped.h), those of a gate and up by turns, and rows bf16;
     * GROUPED_NOT: they are not. */
    enum grouping grouping;
};
/* Enqueues it. ERR_INVALID when it cannot be computed here. */
enum err cuda_experts(const struct cuda_experts *call, struct CUstream_st *stream,
                      struct error *error) MUST_CHECK;

/* ---- the sum ---- */

/* y = Σ weight · h over a row's pairs, in float32, the first choice first; then + shared, or
 * + sigmoid(shared_gate) · shared. */
struct cuda_experts_sum {
    struct cuda_expert_order by;
    const uint16_t *h;           /* (pairs, width) bf16 */
    struct cuda_product shared;  /* (rows, width) without a bias; sums NULL: none */
    const uint16_t *shared_gate; /* (rows, gate_stride) bf16, of which the first; or NULL */
    size_t gate_stride;
    uint16_t *y;    /* (rows, width) bf16 */
    uint32_t width; /* a multiple of 8 */
};
enum err cuda_experts_sum(const struct cuda_experts_sum *call, struct CUstream_st *stream,
                          struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif
