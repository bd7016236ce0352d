/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* recurrent: layers that remember a sequence in a state of fixed size, not in keys and values.
 *
 * Such a layer has two parts per sequence. The tail is the last inputs of its causal convolution.
 * The state is a matrix per head, which every token reads and writes. States lie in slots, all of
 * one size. The caller says by an item per sequence which rows of the step it has, from which slot
 * they continue and where they leave their state. So a new sequence, a copy at its first token and
 * a state kept at the end of a shared prefix need no launch of their own.
 *
 * A step's rows of one token go to the decode calls, longer ones to the chunk calls, from one list
 * of items each; Mamba-2 has one call with both. It does not know models, layers, pages or the
 * scheduler.
 *
 * Thread: one per stream.
 * Memory: device memory of the caller; nothing is allocated, every call only enqueues.
 * Invariant: in one call no slot is written by two items, and none is read by one item and written
 * by another. Every call waits for the kernel before it on the stream. Calls without items make
 * their launches as well, which start nothing: a graph has each (launches.h). */

#include "gpu/cuda/rows.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_STATE_NONE 0xffffffffu /* as `from`: zeros; as `save`: nothing is kept */

/* What one layer keeps, slot by slot. Distances and addresses are multiples of 16 bytes; the caller
 * may put the layers of a slot side by side, or the slots of a layer. */
struct cuda_states {
    void *at;      /* address of slot 0 */
    size_t stride; /* bytes from a slot to the next */
    bool is_bf16;  /* else float32 */
};

/* Neighbouring rows of one sequence. */
struct cuda_state_item {
    uint32_t row;  /* the first */
    uint32_t rows; /* at least 1; the decode calls take 1 */
    uint32_t from; /* slot of the state before them, or CUDA_STATE_NONE for a new sequence */
    uint32_t to;   /* slot for the state after them; may be `from` */
    /* Chunk and convolution calls also leave the state after the first `save_rows` rows, 1 to rows,
     * in slot `save`, which is neither `from` nor `to`. Decode calls ignore both. */
    uint32_t save;
    uint32_t save_rows;
};

/* ---- Gated DeltaNet ----
 *
 * Per token and value head j, which uses key head j / (v_heads / k_heads), or j % k_heads where
 * heads_are_tiled:
 *   c = (q, k, v) after a causal convolution of 4 taps and silu, per channel
 *   q = q / |q| / sqrt(k_dim), k = k / |k|, where |x| = sqrt(sum of squares + 1e-6)
 *   S = exp(g) S with g = -exp(a_log) softplus(a + dt_bias)
 *   S = S + beta (v - S k) k' with beta = sigmoid(b)
 *   y = rms_norm(S q) norm silu(z)
 * S is (v_dim, k_dim): a row per element of v. The value heads of a key head have theirs side by
 * side, whichever they are. Inputs of the convolution are rounded to bf16. */
struct cuda_delta {
    struct cuda_product qkv; /* q (k_heads · k_dim), k (k_heads · k_dim), v (v_heads · v_dim) */
    struct cuda_product z;   /* (v_heads · v_dim) */
    struct cuda_product a;   /* (v_heads) */
    struct cuda_product b;   /* (v_heads) */
    const float *conv;       /* (channels of qkv, 4): the last tap is the token's own */
    const float *a_log;      /* (v_heads) */
    const float *dt_bias;    /* (v_heads) */
    const float *norm;       /* (v_dim) */
    float epsilon;           /* epsilon of the norm */
    struct cuda_states states;           /* (v_heads, v_dim, k_dim) */
    struct cuda_states tails;            /* (3, channels of qkv) bf16, the oldest first */
    const struct cuda_state_item *items; /* on the device */
    uint32_t item_count;
    uint32_t rows;    /* rows in the arrays; rows without an item are left as they are */
    uint32_t k_heads; /* v_heads / k_heads is 1 to 8 */
    uint32_t v_heads;
    uint32_t k_dim; /* 128, or 64; as v_dim */
    uint32_t v_dim;
    bool heads_are_tiled;
    /* For cuda_delta_decode: the launch before is cuda_delta_chunk, with items, of the same rows
     * and states; on sm_90 and later they run side by side. */
    bool is_next;
    uint32_t chunks_max; /* 1: cuda_delta_chunk holds one at a time in shared memory; 0: two */
    uint16_t *y;         /* (rows, y_stride) bf16, v_heads · v_dim of each */
    size_t y_stride;
    void *room; /* cuda_delta_room() bytes at a multiple of 16, for cuda_delta_chunk alone */
};

/* ERR_INVALID, with the reason, for heads without kernels, and on a GPU whose blocks have too
 * little shared memory for the chunks of such heads. */
enum err cuda_delta_supports(uint32_t k_heads, uint32_t v_heads, uint32_t k_dim, uint32_t v_dim,
                             struct error *error) MUST_CHECK;

/* One row per item. Each state is read and written once. ERR_INVALID for sizes or addresses other
 * than those above. */
enum err cuda_delta_decode(const struct cuda_delta *call, struct CUstream_st *stream,
                           struct error *error) MUST_CHECK;

/* Any number of rows per item, by chunks of 64 on tensor cores, which multiply bf16: y and the
 * states are within 1 % of the recurrence, Euclidean. q, k, v and both gates of a step lie in
 * `room` meanwhile. Heads of 128 take 113 KiB of shared memory per block, to fetch a chunk during
 * the one before; where a block has less, as on GPUs of 8.6, 8.9 and 12.0, 65 KiB are enough. */
size_t cuda_delta_room(uint32_t rows, uint32_t k_heads, uint32_t v_heads, uint32_t dim);
enum err cuda_delta_chunk(const struct cuda_delta *call, struct CUstream_st *stream,
                          struct error *error) MUST_CHECK;

/* ---- short convolution (LFM2) ----
 *
 * Per channel and token: y = C conv(B v), a causal convolution of 3 taps. Its inputs are rounded to
 * bf16 where the tails are bf16. Items have any number of rows. */
struct cuda_short_conv {
    struct cuda_product in;              /* B (width), C (width), v (width) */
    const float *conv;                   /* (width, 3): the last tap is the token's own */
    struct cuda_states tails;            /* (2, width) last two values of B v, the older first */
    const struct cuda_state_item *items; /* on the device */
    uint32_t item_count;
    uint32_t rows;  /* rows in the arrays; rows without an item are left as they are */
    uint32_t width; /* a multiple of 4 */
    uint16_t *y;    /* (rows, y_stride) bf16 */
    size_t y_stride;
    uint32_t decoded_count; /* the first items: one row each, at most 65,535, and nothing saved */
};
enum err cuda_short_conv(const struct cuda_short_conv *call, struct CUstream_st *stream,
                         struct error *error) MUST_CHECK;

/* ---- Mamba-2 ----
 *
 * Per head h of group h / (heads / groups), and token:
 *   (x, B, C) = silu of a causal convolution of 4 taps, per channel
 *   D = softplus(dt_factor dt + dt_bias), within dt_min and dt_max; a = exp(-D exp(a_log))
 *   S = a S + D x B'
 *   o = S C + d x
 * and then, with g = silu(z_factor z), per group of heads:
 *   y = y_factor rms_norm(o g) norm, or y_factor rms_norm(o) norm g where norm_is_first, or
 *   y_factor o g without a norm
 * S is (head_dim, state_dim): a row per element of x. Inputs of the convolution are rounded to
 * bf16. Sums are float32, a row after the other, so rows of a prompt have the bits of no chunks. */
struct cuda_mamba {
    struct cuda_product z;   /* (heads · head_dim) */
    struct cuda_product xbc; /* x (heads · head_dim), B (groups · state_dim), C likewise */
    struct cuda_product dt;  /* (heads) */
    const float *conv;       /* (channels of xbc, 4): the last tap is the token's own */
    const float *conv_bias;  /* (channels of xbc) or NULL */
    const float *dt_bias;    /* (heads) */
    const float *a_log;      /* (heads) */
    const float *d;          /* (heads) */
    const float *norm;       /* (heads · head_dim) or NULL */
    float epsilon;           /* epsilon of the norm */
    bool norm_is_first;
    float dt_min, dt_max; /* 0 and infinity where the model has no limits */
    float dt_factor, z_factor, y_factor;
    struct cuda_states states;           /* (heads, head_dim, state_dim) */
    struct cuda_states tails;            /* (3, channels of xbc) bf16, the oldest first */
    const struct cuda_state_item *items; /* on the device; the decoded ones are the first */
    uint32_t item_count;
    uint32_t decoded_count; /* items of one row that keep nothing in `save` */
    uint32_t rows;          /* rows in the arrays; y of rows without an item is undefined */
    uint32_t heads;         /* a multiple of groups */
    uint32_t groups;
    uint32_t head_dim;  /* a multiple of 4 */
    uint32_t state_dim; /* 16, 32, 64, 128 or 256 */
    uint16_t *y;        /* (rows, y_stride) bf16, heads · head_dim of each */
    size_t y_stride;
    float *room; /* cuda_mamba_room() bytes at a multiple of 16 */
};

/* ERR_INVALID, with the reason, for sizes without kernels. */
enum err cuda_mamba_supports(uint32_t heads, uint32_t groups, uint32_t head_dim, uint32_t state_dim,
                             struct error *error) MUST_CHECK;
size_t cuda_mamba_room(uint32_t rows, uint32_t heads, uint32_t groups, uint32_t head_dim,
                       uint32_t state_dim);

/* Four launches: the convolution of all rows; the items of several rows, whose states stay in
 * registers from row to row; beside them on sm_90 and later the decoded ones, whose states are each
 * read and written once; the norm of all rows. */
enum err cuda_mamba(const struct cuda_mamba *call, struct CUstream_st *stream,
                    struct error *error) MUST_CHECK;

/* ---- copies of states ---- */

struct cuda_state_copy {
    uint32_t from; /* slot, or CUDA_STATE_NONE: `to` becomes zeros */
    uint32_t to;
};

/* `places` arrays of slots, such as those of the layers, at equal distances. */
struct cuda_state_copies {
    void *at;            /* slot 0 of the first place */
    size_t place_stride; /* bytes */
    size_t slot_stride;  /* bytes */
    size_t bytes;        /* bytes of a slot at a place; all four are multiples of 16 */
    uint32_t places;
    const struct cuda_state_copy *copies; /* on the device */
    uint32_t copy_count;                  /* 0: nothing is launched */
};

/* All copies at once: no slot is written twice, or read by one and written by another. */
enum err cuda_copy_states(const struct cuda_state_copies *call, struct CUstream_st *stream,
                          struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif
