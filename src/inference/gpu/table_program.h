/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* table_program: the forward pass that a GPU is given (gpu/table.h): program/op.h as numbers, with
 * matrices by index.
 *
 * It knows no architecture and no step. Layers may differ: an operation of attention has the heads
 * of its layer, and all places of the KV cache are as wide as the widest layer.
 *
 * Thread: any; constant.
 * Memory: the caller's; prepare copies the vectors.
 * Invariant: the operations stand in the order in which they run, for all rows of a step. */

#include "gpu/grouping.h"
#include "kernels/op_kind.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How elements of weights, activations or keys lie in the GPU's memory. */
enum gpu_form {
    GPU_F32, /* the plain GPU of the tests */
    GPU_BF16,
    GPU_E4M3,   /* with a scale: per row of weights, per row of activations, per token and head */
    GPU_INT8,   /* likewise */
    GPU_BLOCKS, /* weights only: as their file has them, for what fits only in 4 bits */
};

/* Whether products with weights of that form are products of bf16, without scales. */
static inline bool gpu_form_is_bf16(enum gpu_form form) {
    return form == GPU_BF16 || form == GPU_BLOCKS;
}

#define GPU_BLOCK_PARTS_MAX 4u /* parts of a GPU_BLOCKS matrix; one call fills each */

/* Rows of one type of a GPU_BLOCKS matrix, or of an expert's. */
struct gpu_block_part {
    enum tensor_type type;
    uint32_t rows;
};

struct gpu_matrix {
    uint32_t rows; /* outputs, over all parts and experts */
    uint32_t cols; /* inputs */
    enum gpu_form form;
    uint64_t block_bytes;   /* bytes of GPU_BLOCKS: codes in groups, or rows as in the file */
    enum grouping grouping; /* kind of all codes of experts or of an embedding in GPU_BLOCKS */
    struct gpu_block_part parts[GPU_BLOCK_PARTS_MAX]; /* (part_count) with GPU_BLOCKS */
    uint32_t part_count;                              /* 0: nobody told them */
};

/* The experts of a layer. Their matrices stand one behind another in one, each with its rows. */
struct gpu_experts {
    uint32_t count; /* 0: the operation has none */
    uint32_t used;  /* experts of a row */
    uint32_t ffn;   /* width of an expert */
    bool sums_to_one;
    /* For ROUTE alone, as struct route of kernels.h has them. */
    bool is_sigmoid, groups_by_best;
    uint32_t groups, groups_used;
    float scale;               /* factor of all weights; 0 means 1 */
    const float *choice_bias;  /* (count) or NULL: only with is_sigmoid */
    const float *expert_scale; /* (count) factors of the experts' weights, or NULL */
    uint32_t gate_up;          /* index of the matrix (count · (gate | up: 2 ffn), width) */
    uint32_t down;             /* index of the matrix (count · width, ffn) */
    /* For EXPERTS alone. */
    const float *gate_up_bias;    /* (count, gate | up) or NULL */
    const float *down_bias;       /* (count, width) or NULL */
    float gate_limit, gate_alpha; /* for GATE_CLAMPED */
    bool has_shared;              /* the sum has the row of `shared` as well (TO_SHARED) */
    bool shared_is_scaled;        /* times the sigmoid of the row's number in narrow */
};

/* The vectors of a recurrent layer, of which CONV, DELTA or MAMBA, and GATED_NORM each have all. */
struct gpu_recurrent {
    uint32_t place;                 /* number of the layer, among the recurrent ones */
    const float *conv;              /* (taps, channels), or NULL in other operations */
    const float *conv_bias;         /* (channels) or NULL */
    const float *decay, *step_bias; /* (value_heads); NULL without a matrix, as norm */
    const float *skip;              /* (value_heads) with MAMBA, else NULL */
    const float *norm;              /* (value_dim); with MAMBA (width), or NULL: no norm */
};

/* A latent layer, of which each operation has all. Matrices of heads stand one behind another. */
struct gpu_latent {
    uint32_t k_b;        /* (heads · rank, still_dim); GPU_NONE in other layers, as v_b */
    uint32_t v_b;        /* (heads · value_dim, rank) */
    const float *norm;   /* (rank), or NULL in other layers */
    const float *q_norm; /* (q_rank) or NULL */
};

/* program/op.h's operation with matrices by index. Vectors are copied by prepare. */
struct gpu_op {
    enum op_kind kind;
    uint32_t layer;              /* from 0; of those before the first and behind the last: any */
    uint32_t matrix;             /* index into gpu_program.matrices, or GPU_NONE */
    uint32_t next;               /* likewise: the matrix that reads the result */
    uint32_t kv_heads, head_dim; /* HEADS, ATTENTION: those of the layer; 0: as the program's */
    enum op_add add;
    enum op_to to;     /* not TO_X: a GPU's products never add */
    uint32_t width;    /* KEEP: of a row of wide; GATE: width of a half; INPUTS: of a part */
    uint32_t attended; /* KEEP, PREPARE: width of a row of attended, or 0 */
    bool is_gated;     /* CONV, ATTENTION; GATED_NORM: the gate comes before the norm */
    bool norms_v, is_query_only; /* HEADS */
    bool gates_inputs;      /* GATE: wide is the gate alone, times the layer's part of inputs */
    const float *weight;    /* (width); NORM: NULL leaves x as it is; INPUTS: (width of a part) */
    const float *positions; /* EMBED: (position_rows, width): rows that are added, by
                               gpu_step.places; or NULL */
    uint32_t position_rows;
    bool is_layer_norm;  /* NORM: LayerNorm, without `post` and x_scale */
    bool replaces;       /* NORM with LayerNorm: x = h as well */
    const float *post;   /* (width) or NULL */
    float x_scale;       /* NORM: factor of x behind the sum; 0 means 1 */
    const float *bias;   /* (rows of matrix), NORM: (width), or NULL */
    const float *q_norm; /* (head_dim) or NULL */
    const float *k_norm; /* (head_dim) or NULL */
    const float *sinks;  /* ATTENTION: (heads) or NULL: a head's score that has no value */
    uint32_t rope;       /* index into gpu_program.frequencies */
    uint32_t kv_group;   /* index into gpu_step.groups */
    uint32_t kv_place;   /* below gpu_limits.layer_places */
    uint32_t window;     /* keys that a row sees, its own included; 0: all */
    enum op_gate gate;
    struct gpu_experts experts;     /* ROUTE, EXPERTS */
    struct gpu_recurrent recurrent; /* CONV, DELTA, MAMBA, GATED_NORM */
    struct gpu_latent latent;       /* LATENT_ENTRY, LATENT_Q, LATENT, LATENT_OUT */
    float factor;                   /* GATED_NORM: of the result; ADD; 0 means 1 */
    float gate_factor; /* MAMBA: of the steps; GATED_NORM, GATE: of the gate; 0 means 1 */
    float scale;
    float softcap;
};

/* The sizes of recurrent layers, which are the same in all of them. */
struct gpu_recurrent_sizes {
    uint32_t layers;   /* 0: there are none */
    uint32_t taps;     /* inputs of the convolution, a row's own input included */
    uint32_t channels; /* channels in the convolution: q | k | v, or x | B | C */
    uint32_t width;    /* width of what a state leaves: value_heads · value_dim */
    uint32_t key_heads, value_heads, key_dim, value_dim; /* key_heads 0: no matrix */
    bool is_mamba; /* key heads are groups, of states of key_dim; rates are a step per head */
    float step_min, step_max; /* limits of a step; step_max 0: none */
    bool heads_are_tiled; /* value head j uses key head j % key_heads; else neighbours share one */
    float eps;            /* epsilon of the norm behind a state */
};

/* The sizes of latent layers, which are the same in all of them, and then all layers with keys are
 * such. The program then has one KV head of rank + turned_dim elements, and no values. */
struct gpu_latent_sizes {
    uint32_t rank;                  /* 0: there are none */
    uint32_t q_rank;                /* width between the two products of q; 0: one product */
    uint32_t still_dim, turned_dim; /* parts of a head of q */
    uint32_t value_dim;             /* width of what a head leaves */
    float eps;                      /* epsilon of the norms in them */
};

struct gpu_program {
    const struct gpu_matrix *matrices; /* (matrix_count) */
    uint32_t matrix_count;
    const struct gpu_op *ops; /* (op_count) */
    uint32_t op_count;
    uint32_t width;
    uint32_t ffn;
    uint32_t heads;
    uint32_t kv_heads; /* the fewest of a layer */
    uint32_t head_dim; /* the largest of a layer */
    uint32_t kv_width; /* most elements of a token's keys in a layer; 0: kv_heads · head_dim */
    uint32_t input_width, input_layers; /* parts of a token for layers: their width and number */
    uint32_t ranks;         /* GPUs of which each has a share like this one; 0 or 1: it is whole */
    bool pools;             /* it ends in POOL, not in LOGITS: for whole texts */
    uint32_t vocab_rows;    /* rows of the head: logits per row */
    uint32_t vocab;         /* tokens that may be sampled: ids 0..vocab-1 */
    float eps;              /* epsilon of every norm */
    uint32_t rope_count;    /* 0 to 2; 0: nothing turns */
    uint32_t rotary_dim[2]; /* by table: elements of a head that turn, its first ones: even */
    const float *frequencies[2]; /* (rotary_dim / 2) radians per position; elements i and
                                    i + rotary_dim / 2 of a head turn together */
    float rope_magnitude;        /* factor of cosines and sines; 0 means 1 */
    struct gpu_recurrent_sizes recurrent;
    struct gpu_latent_sizes latent;
};

static inline uint32_t gpu_kv_heads(const struct gpu_program *program, const struct gpu_op *op) {
    return op->kv_heads > 0 ? op->kv_heads : program->kv_heads;
}
/* Columns of the rates of a layer with matrices. */
static inline uint32_t gpu_state_rates(const struct gpu_recurrent_sizes *sizes) {
    return (sizes->is_mamba ? 1 : 2) * sizes->value_heads;
}
/* Keys and values; or entries that are both. */
static inline uint32_t gpu_kv_planes(const struct gpu_program *program) {
    return program->latent.rank > 0 ? 1 : 2;
}
/* Elements of a row of wide before LATENT_Q, and of each of its heads. */
static inline uint32_t gpu_latent_head(const struct gpu_program *program) {
    return program->latent.still_dim + program->latent.turned_dim;
}
static inline uint32_t gpu_head_dim(const struct gpu_program *program, const struct gpu_op *op) {
    return op->head_dim > 0 ? op->head_dim : program->head_dim;
}
/* Elements of a token's keys, or of its values, at each place of a page. */
static inline uint32_t gpu_kv_width(const struct gpu_program *program) {
    return program->kv_width > 0 ? program->kv_width : program->kv_heads * program->head_dim;
}
/* Heads of the operation's size for which a page has room at each place: its KV heads are the first
 * of them. */
static inline uint32_t gpu_page_heads(const struct gpu_program *program, const struct gpu_op *op) {
    return gpu_kv_width(program) / gpu_head_dim(program, op);
}
