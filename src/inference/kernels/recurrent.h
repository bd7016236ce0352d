/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* recurrent: the arithmetic of layers that remember a sequence in a state of fixed size, not in
 * keys and values; a part of the table of kernels.h.
 *
 * An item is a run of neighbouring rows of one sequence with the state before them, which becomes
 * the state after them. A new sequence has a state of zeros. The caller cuts the work by items,
 * and by channels or heads; a run of rows goes on in the state that the run before it left.
 *
 * Rows go through the state one after another, also those of a long run: a head's columns are
 * independent, so a strip of them stays in the first-level cache for some rows, and the products
 * of chunks would need as many multiplications (docs/internals/inference/recurrent.md).
 *
 * Thread: any. Calls with different states, or with different channels or heads of one, may run at
 *     once.
 * Memory: the caller's; nothing is allocated.
 * Invariant: a row of a result and the state after it are bitwise the same for any cut of a
 *     sequence into items and for any range of channels or heads. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONV_TAPS_MAX 4         /* at least 2 */
#define RECURRENT_DIM_MAX 256   /* k_dim, v_dim; head_dim and state_dim of Mamba-2 */
#define RECURRENT_HEADS_MAX 512 /* heads of a layer */

struct recurrent_item {
    size_t row;       /* the first, in the arrays of the call */
    size_t row_count; /* 0 is allowed: the state stays as it is */
    float *state;     /* changed in place; its shape is the call's */
};

/* y = (bias + Σ weight[i] · u[t - taps + 1 + i]) per channel, with u = x · before; then silu; then
 * · after. State: (taps - 1, channels), the last u before the item, the oldest first. */
struct short_conv {
    const float *x;      /* (rows, channels) */
    const float *before; /* (rows, channels) with the stride of x, or NULL: ones */
    const float *after;  /* likewise */
    size_t x_stride;
    const float *weight; /* (taps, channels): the last tap is the row's own */
    const float *bias;   /* (channels) or NULL */
    float *y;            /* (rows, channels); may be x, before or after, with their stride */
    size_t y_stride;
    uint32_t channels;
    uint32_t taps;
    bool has_silu;
};

/* Gated DeltaNet (Yang et al. 2024, "Gated Delta Networks"). Per value head j, which uses key head
 * delta_key_head(j), and row:
 *   q = q / |q| / sqrt(k_dim), k = k / |k|, where |x| = sqrt(Σ x² + 1e-6)
 *   S = exp(g) S with g = -exp(a_log) softplus(a + dt_bias)
 *   S = S + k ⊗ sigmoid(b) (v - Sᵀ k)
 *   y = Sᵀ q
 * State: S (v_heads, k_dim, v_dim). */
struct delta_rule {
    const float *q; /* (rows, k_heads, k_dim) */
    const float *k; /* (rows, k_heads, k_dim) */
    const float *v; /* (rows, v_heads, v_dim) */
    size_t qkv_stride;
    const float *a; /* (rows, v_heads) */
    const float *b; /* (rows, v_heads) */
    size_t a_stride;
    size_t b_stride;
    const float *a_log;   /* (v_heads) */
    const float *dt_bias; /* (v_heads) */
    float *y;             /* (rows, v_heads, v_dim); may be v, with its stride */
    size_t y_stride;
    uint32_t k_heads;
    uint32_t v_heads; /* a multiple of k_heads */
    uint32_t k_dim;
    uint32_t v_dim;
    bool heads_are_tiled; /* value heads take turns with the key heads, as GGUF has them; false: the
                             value heads of a key head are neighbours */
};

static inline uint32_t delta_key_head(const struct delta_rule *call, uint32_t head) {
    return call->heads_are_tiled ? head % call->k_heads : head / (call->v_heads / call->k_heads);
}

/* Mamba-2 (Dao and Gu 2024, "Transformers are SSMs"). Per head h, which uses group
 * h / (heads / groups), and row:
 *   D = softplus(dt + dt_bias), within dt_min and dt_max
 *   S = exp(-D exp(a_log)) S + b ⊗ D x
 *   y = Sᵀ c + d x
 * State: S (heads, state_dim, head_dim), the transpose of what transformers keeps. */
struct mamba {
    const float *x; /* (rows, heads, head_dim) */
    const float *b; /* (rows, groups, state_dim) */
    const float *c; /* (rows, groups, state_dim) */
    size_t xbc_stride;
    const float *dt; /* (rows, heads) */
    size_t dt_stride;
    const float *dt_bias; /* (heads) */
    const float *a_log;   /* (heads) */
    const float *d;       /* (heads) */
    float dt_min;         /* 0 without a limit */
    float dt_max;         /* INFINITY without a limit */
    float *y;             /* (rows, heads, head_dim); may be x, with its stride */
    size_t y_stride;
    uint32_t heads; /* a multiple of groups */
    uint32_t groups;
    uint32_t head_dim;
    uint32_t state_dim;
};

/* The norm behind a state, per group of `width` values:
 *   y = rms_norm(x) · weight · silu(gate)
 *   with gate_is_first: y = rms_norm(x silu(gate)) · weight */
struct gated_norm {
    const float *x; /* (rows, groups, width) */
    size_t x_stride;
    const float *gate; /* (rows, groups, width) */
    size_t gate_stride;
    const float *weight; /* weights of group i from i · weight_step on */
    size_t weight_step;  /* width; or 0: the groups share their weights */
    float *y;            /* (rows, groups, width); may be x or gate, with their stride */
    size_t y_stride;
    size_t width;
    size_t groups;
    size_t rows;
    float epsilon;
    bool gate_is_first; /* false: Gated DeltaNet; true: Mamba-2 */
};

typedef void (*short_conv_fn)(const struct short_conv *call, const struct recurrent_item *item,
                              uint32_t channel_begin, uint32_t channel_end);
typedef void (*delta_rule_fn)(const struct delta_rule *call, const struct recurrent_item *item,
                              uint32_t head_begin, uint32_t head_end);
typedef void (*mamba_fn)(const struct mamba *call, const struct recurrent_item *item,
                         uint32_t head_begin, uint32_t head_end);
typedef void (*gated_norm_fn)(const struct gated_norm *call);
