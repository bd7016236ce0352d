/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kernels: the arithmetic of a model as a table of operations, one table per kind of CPU.
 *
 * `ref` is plain C in float32 and is the definition; `avx2`, `avx512` and `avx512-bf16` agree with
 * it within the tolerances of tests/kernels. A table knows no model, no scheduler and no threads:
 * an operation works on the rows, tiles or heads that it is given, and the caller spreads them over
 * threads (kernels/pool.h).
 *
 * Rows of floats are given as pointer and stride. Strides count floats and are at least the width.
 * Floats need only the alignment of float. Arguments may overlap only where a comment says so.
 *
 * Thread: any. Operations are pure functions of their arguments, and write only arguments that are
 *     named `ret_` or documented as changed. Calls that write different rows, tiles or heads may
 *     run at once.
 * Memory: the caller's; only matrix_open and kernels_memory allocate.
 * Invariant: (batch invariance) a row of any result is bitwise the same for any other rows of the
 *     call, for any range of tiles or rows that the call covers, and for any cut of a prompt into
 *     calls. Each sum has one fixed order. Results differ between tables. */

#include "base/err.h"
#include "kernels/latent.h"
#include "kernels/quant.h"
#include "kernels/recurrent.h"

#include <stddef.h>
#include <stdint.h>

#define MATRIX_TILE 32     /* output columns of one tile */
#define MATRIX_TILING 1    /* grows whenever the bytes of a tiled matrix change their meaning */
#define KV_BLOCK_TOKENS 16 /* tokens of one KV block */
#define HEAD_DIM_MAX 512   /* head_dim is also a multiple of 8 */
#define EXPERTS_MAX 1024   /* experts of a layer */

struct kernels;

/* Memory for weights, caches and buffers, aligned to 64 bytes. From some megabytes on it lies on
 * huge pages where the system has them, which makes attention over scattered blocks a third faster.
 * It is not zeroed; free() it. NULL without memory. */
void *kernels_memory(size_t bytes);

/* ---- weight matrices ---- */

/* Rows of a weight matrix as a file has them: `rows` rows of `cols` elements of `type`, one after
 * another without gaps. */
struct matrix_part {
    enum tensor_type type;
    const void *blocks; /* read by matrix_fill alone */
    uint32_t rows;      /* outputs */
    const uint32_t
        *row_order; /* (rows) or NULL: row i of the part is file row row_order[i]; read by
                                  matrix_fill alone */
};

/* How a table stores weights to multiply fastest. Every layout keeps every weight exactly; only
 * activations are rounded (see activate). */
enum matrix_layout {
    MATRIX_BLOCKS,     /* ref: the file's rows */
    MATRIX_BYTES,      /* quantised types: 4 or 8 bit integers, f32 scale (and minimum) per group */
    MATRIX_F32,        /* f32 weights, and mixtures of float and quantised parts */
    MATRIX_F16,        /* f16 weights, widened to f32 as they are loaded */
    MATRIX_BF16,       /* bf16 weights, widened likewise */
    MATRIX_BF16_PAIRS, /* bf16 weights for vdpbf16ps */
};

struct matrix_tile;

/* A weight matrix laid out for one table: y = x Wᵀ with W (rows, cols). Read-only for users; one
 * tiled copy serves both matmul and matrix_row (a tied embedding).
 *
 * A matrix on a device (gpu/table.h) has rows, cols and handle alone: it is made with calloc,
 * and no function here but matrix_close takes it. */
struct matrix {
    const struct kernels *kernels;
    uint32_t rows; /* outputs, over all parts in order */
    uint32_t cols; /* inputs */
    uint32_t tile_count;
    enum matrix_layout layout;
    uint32_t group;          /* MATRIX_BYTES: columns that share a scale, 32 or 16; else 0 */
    size_t activation_bytes; /* bytes of one row of activations; a multiple of 64 */
    size_t bytes;            /* size of `memory` */
    unsigned char *memory;
    struct matrix_tile *tiles; /* private */
    struct matrix_part *parts; /* private */
    uint32_t part_count;
    bool is_borrowed; /* `memory` is the caller's, and read-only */
    bool is_left;     /* it has no memory: its rows stay where its parts have them */
    uint32_t handle;  /* its index in gpu_program.matrices; UINT32_MAX (GPU_NONE): it is laid
                         out here */
};

/* Opens a matrix of the rows of `parts`, one after another (as q|k|v or gate|up), all with `cols`
 * columns. It does not read the weights: call matrix_fill over all tiles before use. Memory is
 * taken as tiles are filled. ERR_INVALID for an unknown type, no part, no row, or `cols` that is no
 * multiple of a type's block; ERR_LIMIT without memory. */
enum err matrix_open(struct matrix **ret_matrix, const struct kernels *kernels,
                     const struct matrix_part *parts, uint32_t part_count, uint32_t cols,
                     struct error *error) MUST_CHECK;
/* Opens a matrix over tiles that exist: the `memory` of a filled matrix of the same table, parts
 * and columns, perhaps from another process with the same MATRIX_TILING. `tiles`, at a multiple of
 * 64, must outlive the matrix. ERR_CORRUPT when `bytes` is not the size of such a matrix. */
enum err matrix_open_tiled(struct matrix **ret_matrix, const struct kernels *kernels,
                           const struct matrix_part *parts, uint32_t part_count, uint32_t cols,
                           const void *tiles, size_t bytes, struct error *error) MUST_CHECK;
void matrix_close(struct matrix *matrix); /* NULL is allowed */
/* Fills tiles tile_begin..tile_end-1 from the parts it was opened with, now with their blocks.
 * Different tiles may be filled at once. */
void matrix_fill(struct matrix *matrix, const struct matrix_part *parts, uint32_t tile_begin,
                 uint32_t tile_end);
/* Instead of matrix_fill: leaves the rows where `parts` have them, for models that are larger than
 * memory. The blocks must outlive the matrix; no part has a row_order. A product lays one tile at a
 * time with matrix_lay, and matrix_row is not for such a matrix. */
void matrix_leave(struct matrix *matrix, const struct matrix_part *parts);
/* Size of a matrix's largest tile in bytes. */
size_t matrix_tile_bytes(const struct matrix *matrix);
/* Lays a tile of a matrix that was left into `room`, at a multiple of 64 and of matrix_tile_bytes.
 * ret_view: the matrix with that tile alone, for kernels->matmul over it; it is valid as long as
 * `room` is, and is not closed. Different rooms may be used at once. */
void matrix_lay(const struct matrix *matrix, uint32_t tile, void *room, struct matrix *ret_view);
/* Bids the system read the rows of a matrix that was left: they are needed soon. */
void matrix_fetch(const struct matrix *matrix);
/* Row `row` as float32, bitwise equal to the result of quant_row_to_f32. ret_row: (cols) */
void matrix_row(const struct matrix *matrix, uint32_t row, float *ret_row);

struct matmul {
    const struct matrix *matrix;
    const void *activations; /* (rows, matrix->activation_bytes) from activate for this matrix */
    size_t rows;
    float *y; /* (rows, matrix->rows), written or added to */
    size_t y_stride;
    const float *bias; /* (matrix->rows) or NULL */
    bool add;          /* true: y += x Wᵀ + bias (the residual); false: y = x Wᵀ + bias */
};

/* ---- rows ---- */

struct norm {
    const float *x; /* (rows, width) */
    size_t x_stride;
    float *y; /* (rows, width); may be x */
    size_t y_stride;
    const float *weight; /* (width) */
    const float *bias;   /* (width) or NULL; layer_norm only */
    size_t width;
    size_t rows;
    float epsilon;
    bool add; /* true: y += norm(x) (Gemma's norm before the residual); false: y = norm(x) */
};

struct rope {
    float *x; /* (rows, head_count, head_dim), changed in place */
    size_t x_stride;
    const uint32_t *positions; /* (rows) */
    size_t rows;
    uint32_t head_count;
    uint32_t head_dim;
    uint32_t rotary_dim;  /* even, <= head_dim: elements of each head that are rotated, from 0 on */
    bool interleaved;     /* true: pairs (2i, 2i+1); false: pairs (i, i + rotary_dim/2) */
    const float *cosines; /* (positions, rotary_dim/2), from rope_table */
    const float *sines;
};

/* cos and sin of position * inv_freq[i] for position_begin <= position < position_end, computed in
 * double. ret_cosines, ret_sines: (position_end - position_begin, pair_count) */
void rope_table(const float *inv_freq, uint32_t pair_count, uint32_t position_begin,
                uint32_t position_end, float *ret_cosines, float *ret_sines);

struct gate {
    const float *gate; /* (rows, width) */
    const float *up;   /* (rows, width), the same stride */
    size_t in_stride;
    float *y; /* (rows, width); may be gate or up (with the same stride) */
    size_t y_stride;
    size_t width;
    size_t rows;
    float limit; /* clamped_mul: above 0 */
    float alpha; /* clamped_mul */
};

/* An activation of a feed-forward without a gate, in place: alpha_p x² + beta x above 0, else
 * alpha_n (e^min(x, eps) - 1 - x) + beta x. */
struct xielu {
    float *x; /* (rows, width) */
    size_t x_stride;
    size_t width;
    size_t rows;
    float alpha_p, alpha_n, beta, eps;
};

/* The experts of rows, and the weights of their sum. The chosen ones are those of the highest
 * probability + bias, in the best groups if there are groups (DeepSeek-V3). */
struct route {
    const float *logits; /* (rows, experts) */
    size_t stride;
    size_t rows;
    uint32_t experts;     /* at most EXPERTS_MAX */
    uint32_t used;        /* experts of a row, at most `experts` */
    bool is_sigmoid;      /* a probability is the sigmoid of its logit; false: the softmax of all */
    const float *bias;    /* (experts), for the choice alone, or NULL */
    uint32_t groups;      /* neighbours make groups of two experts at least; 0: none */
    uint32_t groups_used; /* groups of a row, which have `used` experts at least */
    bool groups_by_best;  /* a group counts by its best expert; false: by its two best */
    bool sums_to_one;     /* true: the weights of a row are divided by their sum */
    float scale;          /* factor of the weights after that; 0 means 1 */
    uint32_t *ret_experts; /* (rows, used) the best first, the lower index on ties */
    float *ret_weights;    /* (rows, used) their probabilities */
};

/* ---- attention over a paged KV cache ---- */

/* One layer's keys and values. A block holds KV_BLOCK_TOKENS tokens of every KV head:
 * k: (blocks, kv_heads, head_dim, 16), v: (blocks, kv_heads, 16, head_dim). Of bf16, a lane
 * multiplies two neighbours, which lie together: k: (blocks, kv_heads, head_dim / 2, 16, 2),
 * v: (blocks, kv_heads, 8, head_dim, 2), where token 2i + j is element j of pair i. Token `position` of a
 * sequence lies in block table[position / 16] at offset position % 16. A block's bytes are
 * contiguous in k and in v, kv_block_bytes each. In a cache that layers of several sizes share, a
 * block may be longer than this layer's part of it.
 *
 * Of 8 bits (kernels/kv_int8.h), a head of a block begins with the steps of its 16 tokens as
 * float32, and a lane multiplies four neighbours: k: (blocks, kv_heads, 64 bytes and (head_dim / 4,
 * 16, 4) of whole steps + 128), v: (blocks, kv_heads, 64 bytes and (4, head_dim, 4) of whole
 * steps). */
struct kv_cache {
    void *k;
    void *v;
    enum tensor_type type; /* kernels->kv_type or KV_INT8; ref takes F32, F16 and BF16, too */
    uint32_t kv_heads;
    uint32_t head_dim;     /* a multiple of 8, at most HEAD_DIM_MAX */
    size_t block_elements; /* from one block to the next; 0: as many as one has */
};

size_t kv_block_bytes(const struct kv_cache *cache);
const char *kv_type_name(enum tensor_type type); /* "F16", "INT8" */

/* Elements per token and head that a type has beside the numbers: a float32 in bytes. */
static inline uint32_t kv_type_extra(enum tensor_type type) {
    return type == TENSOR_KV_INT8 ? sizeof(float) : 0;
}

/* Elements of a head of a block. */
static inline size_t kv_head_elements(const struct kv_cache *cache) {
    return (size_t)KV_BLOCK_TOKENS * (cache->head_dim + kv_type_extra(cache->type));
}

/* Elements from one block to the next. */
static inline size_t kv_block_elements(const struct kv_cache *cache) {
    return cache->block_elements > 0 ? cache->block_elements
                                     : cache->kv_heads * kv_head_elements(cache);
}

struct kv_store {
    const struct kv_cache *cache;
    const float *k; /* (rows, kv_heads, head_dim) */
    size_t k_stride;
    const float *v; /* (rows, kv_heads, head_dim) */
    size_t v_stride;
    const uint32_t *slots; /* (rows): block * 16 + offset; all different */
    size_t rows;
};

struct attention {
    const struct kv_cache *cache;
    const float *q; /* (rows, head_count, head_dim) */
    size_t q_stride;
    float *y; /* (rows, head_count, head_dim) */
    size_t y_stride;
    uint32_t head_count; /* a multiple of kv_heads; head h reads KV head h·kv_heads / head_count */
    float scale;
    float softcap;      /* scores become softcap · tanh(score / softcap); 0: unchanged */
    uint32_t window;    /* a query at p sees keys p - window < j <= p; 0: keys 0 <= j <= p */
    bool causal;        /* false: every query of an item sees keys 0 <= j < key_count, with a window
                           those of p - window < j < p + window */
    const float *sinks; /* (head_count) or NULL: one more score of each query of a head, neither
                           scaled nor capped, which has a share of the softmax and no value */
    /* (head_count, bias_stride) or NULL: what a scaled score gets by the position of its key less
     * that of its query; element bias_zero of a row is for the distance 0. Elements for all keys
     * of the 64 that the last key is in are read. */
    const float *bias;
    size_t bias_stride;
    size_t bias_zero;
};

/* A run of consecutive positions of one sequence. Their keys and values are stored already. */
struct attention_item {
    size_t row;             /* row of the first query in q and y */
    uint32_t row_count;     /* 0 is allowed */
    uint32_t position;      /* position of the first query */
    uint32_t key_count;     /* keys of the sequence; ignored when causal */
    const uint32_t *blocks; /* block table of the sequence, by position / 16; entries and keys
                               outside the window are not read */
};

/* Items in one call. A chunk of keys that all items have in common is loaded once. */
struct attention_group {
    const struct attention_item *items; /* (item_count) */
    uint32_t item_count;
    uint32_t shared_blocks; /* leading entries in which all block tables are equal, apart from those
                               outside a window; 0 for unrelated tables */
};

/* ---- logits ---- */

struct scored {
    float value;
    uint32_t index;
};

/* How a row of logits is weighed for a draw (kernels/draw.h). */
struct weighing {
    float max;    /* the highest of the row, finite */
    float least;  /* a logit below it weighs nothing */
    float factor; /* draw_factor of the temperature */
};

/* ---- the table ---- */

typedef bool (*matrix_fill_tile_fn)(const struct matrix *matrix, const struct matrix_tile *tile,
                                    const unsigned char *const *rows);
typedef void (*matrix_activate_fn)(const struct matrix *matrix, const float *x, size_t x_stride,
                                   size_t rows, void *ret_activations);
typedef void (*matrix_multiply_fn)(const struct matmul *call, uint32_t tile_begin,
                                   uint32_t tile_end);
typedef void (*norm_fn)(const struct norm *call);
typedef void (*rope_fn)(const struct rope *call);
typedef void (*gate_fn)(const struct gate *call);
typedef void (*route_fn)(const struct route *call);
typedef void (*gelu_fn)(float *x, size_t x_stride, size_t width, size_t rows);
typedef void (*xielu_fn)(const struct xielu *call);
typedef void (*add_fn)(const float *x, float *y, size_t count);
typedef void (*kv_store_fn)(const struct kv_store *call, uint32_t kv_head_begin,
                            uint32_t kv_head_end);
typedef void (*attention_fn)(const struct attention *call, const struct attention_group *group,
                             uint32_t kv_head_begin, uint32_t kv_head_end);
typedef uint64_t (*weigh_fn)(const float *x, size_t count, const struct weighing *how,
                             uint32_t *ret_weights);
typedef float (*log_sum_exp_fn)(const float *x, size_t count);
typedef uint32_t (*argmax_fn)(const float *x, size_t count);
typedef size_t (*top_k_fn)(const float *x, size_t count, size_t k, struct scored *ret_top);

struct kernels {
    const char *name;
    enum tensor_type kv_type;     /* type of the KV cache: F32 (ref), F16 or BF16 (avx512-bf16) */
    enum tensor_type latent_type; /* type of latent_cache: F32 (ref) or F16 */
    bool keeps_blocks;            /* matrices keep the file's blocks (ref) */
    bool tiles_signed;            /* 8-bit weights are tiled signed (avx2's sign trick) */
    bool tiles_bf16_pairs;        /* bf16 weights are tiled in pairs for vdpbf16ps */

    /* For matrix_fill: writes a tile from the file's rows, (MATRIX_TILE), one per column, with the
     * bytes that it would have without. False, with nothing written: not a tile of this form. NULL:
     * none is. */
    matrix_fill_tile_fn fill_tile;
    /* Turns rows of x (rows, cols) in f32 into activations for matmul. BLOCKS, F32, F16 and BF16
     * keep f32; BF16_PAIRS rounds to bf16. BYTES rounds each group of `group` columns to whole
     * steps, nearest even. A step is max|x| / 127, or less where the row has values far beyond its
     * mean (kernels/matrix.h). */
    matrix_activate_fn activate;
    /* y (rows, matrix->rows) for the columns of tiles tile_begin..tile_end-1. A call with several
     * tiles keeps activations in the core's cache: give a task four or more for many rows. */
    matrix_multiply_fn matmul;

    norm_fn rms_norm;      /* y = x / sqrt(mean(x²) + epsilon) · weight */
    norm_fn layer_norm;    /* y = (x - mean) / sqrt(variance + epsilon) · weight + bias */
    rope_fn rope;          /* x0' = x0 cos - x1 sin, x1' = x0 sin + x1 cos */
    gate_fn silu_mul;      /* y = silu(gate) · up */
    gate_fn gelu_tanh_mul; /* y = gelu_tanh(gate) · up */
    gate_fn sigmoid_mul;   /* y = sigmoid(gate) · up */
    gate_fn clamped_mul; /* y = g σ(alpha g) · (u + 1), g = min(gate, limit), u = up within ±limit
                            */
    gelu_fn gelu_erf;    /* x (rows, width) = x/2 (1 + erf(x/√2)), in place */
    gelu_fn relu2;       /* x (rows, width) = max(x, 0)², in place */
    xielu_fn xielu;
    add_fn add;     /* y (count) += x (count) */
    route_fn route; /* the experts of each row */

    /* Layers with a state; kernels/recurrent.h has their formulas. */
    short_conv_fn short_conv;
    delta_rule_fn delta_rule;
    mamba_fn mamba;
    gated_norm_fn gated_norm;

    /* Writes the heads kv_head_begin..kv_head_end-1 of k and v rows into their slots. */
    kv_store_fn kv_store;
    /* y = softmax(scale q kᵀ + mask | sink) v for the items of a group and the query heads that
     * read KV heads kv_head_begin..kv_head_end-1. The caller may cut an item along its rows (by
     * row, row_count and position) and group items in any way: neither changes a bit. Online
     * softmax over absolute chunks of 64 keys (Milakov and Gimelshein 2018) makes the order of
     * sums depend on a query's position alone. With a cache of bf16, queries and the weights of
     * the softmax are rounded to bf16, too; with one of 8 bits, each query to whole steps of its
     * largest element / 127, and a chunk's weights, times the steps of its values, to 255ths
     * (avx2: 127ths) of the largest. With several items in a call, also unrelated ones, the keys
     * of the next item are fetched while one is computed. */
    attention_fn attention;

    /* Attention over entries that all heads share; kernels/latent.h. */
    latent_store_fn latent_store; /* writes entries into their slots */
    latent_attend_fn latent_attend; /* y = softmax(scale q entryᵀ) · the entry's first elements, for
                                       an item and heads head_begin..head_end-1 */

    /* ret_weights: (count), draw_weight (kernels/draw.h) of each x, or 0 below `least`. Returns
     * their sum. No x is NaN or above `max`. */
    weigh_fn weigh;
    log_sum_exp_fn log_sum_exp; /* log Σ exp(x); -inf entries add nothing; count > 0 */
    /* Index of the largest value, the lowest on ties; NaN counts as -inf; 0 when all are -inf. */
    argmax_fn argmax;
    /* The min(k, count) largest values, largest first, lower index first on ties; NaN counts as
     * -inf. ret_top: (k). Returns the number of entries written. */
    top_k_fn top_k;
};

/* The table of that name, or NULL when this build or CPU does not have it. A NULL name gives the
 * best table of this CPU, never NULL. Names: "ref", "avx2", "avx512", "avx512-bf16". */
const struct kernels *kernels_choose(const char *name);
/* The tables that this CPU can run, ref first and the best one last; NULL behind the last. */
const struct kernels *kernels_at(size_t index);
