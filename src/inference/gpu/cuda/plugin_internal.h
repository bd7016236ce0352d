/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plugin_internal: a CUDA GPU behind the table of gpu/table.h; private to GPU*.c.
 *
 * Host code in plain C over the kernels' headers: it lays out one arena of GPU memory, copies a
 * step's arrays in one transfer, and enqueues kernels. It computes nothing itself.
 *
 *     plugin.c          table, list, open, close
 *     plugin_forms.c    errors of CUDA, and a form's bytes, code and format
 *     plugin_free.c     the free memory of a GPU that is not open
 *     plugin_memory.c   the arena, and the blocks that carry arrays to the GPU (plugin_memory.h)
 *     plugin_prepare.c  sizes, ledger, buffers
 *     plugin_fill.c     rows of a file become codes
 *     plugin_warm.c     algorithms of products, a first run of all kernels
 *     plugin_step.c     a step's arrays, submit (plugin_step.h)
 *     plugin_vectors.c  weights and vectors find their places
 *     plugin_walk.c     operations become kernels (plugin_walk.h)
 *     plugin_attention.c, plugin_latent.c, plugin_experts.c, plugin_texts.c  those of attention, of
 *                       entries for all heads, of experts, of whole texts
 *     plugin_unfold.c   prompts of entries whose keys and values are unfolded (plugin_unfold.h)
 *     plugin_recurrent.c  those of layers with a state
 *     plugin_rows.c     the rows that a product reads
 *     plugin_ranks.c    several GPUs that compute every step together
 *     plugin_share.c    what each of them has of a program and of its matrices
 *     plugin_grouped.c  products with codes of four bits
 *     plugin_side.c     parts of tokens, and experts beside a feed-forward
 *     plugin_graph.c    steps as graphs
 *     plugin_sample.c   draws and answers
 *     plugin_result.c   wait, logits, counters
 *     plugin_op.c       one operation over buffers of the host
 *
 * GPUs that compute together have a struct gpu each. The lead is the one that the table gives; it
 * has the others, and makes their calls with its own, one operation after another on all of them. A
 * GPU alone is the only one of its ranks.
 *
 * Three streams: `compute` has all kernels, `up` the copies of steps to the GPU, `down` those of
 * results. Nothing is allocated and nothing waited for between submit and wait.
 *
 * Thread: the GPU's one.
 * Memory: the arena and all pinned memory are the GPU's.
 * Invariant: GPU memory that a step reads changes only when the step has been waited for. */

#include "gpu/cuda/attention.h"
#include "gpu/cuda/experts.h"
#include "gpu/cuda/grouped.h"
#include "gpu/cuda/launches.h"
#include "gpu/cuda/pages.h"
#include "gpu/cuda/plugin_away.h"
#include "gpu/cuda/plugin_step.h"
#include "gpu/cuda/plugin_unfold.h"
#include "gpu/cuda/products.h"
#include "gpu/cuda/recurrent.h"
#include "gpu/cuda/reduce.h"
#include "gpu/cuda/rows.h"
#include "gpu/cuda/sample.h"
#include "gpu/cuda/scaled.h"
#include "gpu/cuda/texts.h"
#include "gpu/gpu_shard.h"
#include "gpu/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUgraphExec_st;
struct CUgraph_st;

#define FILL_SLICES 2                /* one is copied while the other is filled */
#define FILL_BYTES ((size_t)8 << 20) /* bytes in a slice, if a row fits */
#define MIB (UINT64_C(1) << 20)
#define PRODUCT_ALIGN 16u          /* outputs of a product: 16 bytes of 8-bit codes */
#define WORKSPACE_BYTES (32 * MIB) /* for cuBLASLt; 8 MiB was the most any algorithm wanted */
#define GRAPHS_MAX 32u             /* buckets of up to 7,168 rows */

/* ---- the program ---- */

/* Rows of a matrix as their file has them, or their codes in groups (grouped.h). */
struct card_blocks {
    char *at; /* at a multiple of 16 */
    enum tensor_type type;
    uint32_t row_first;
    uint32_t rows;
};

struct card_matrix {
    uint32_t rows;
    uint32_t rows_padded; /* outputs of the product: a multiple of 16 */
    uint32_t cols;
    enum gpu_form form;
    char *codes;      /* (rows_padded, cols) */
    uint16_t *scales; /* (rows_padded) bf16; NULL: bf16 codes */
    bool is_router;   /* its products are float32 */
    /* For experts in GPU_BLOCKS: the kind of their codes, and the width of gate and of up, or 0. */
    enum grouping grouping;
    uint32_t gate_width;
    /* For GPU_BLOCKS: `codes` has the parts that were filled. */
    struct card_blocks parts[GPU_BLOCK_PARTS_MAX];
    uint32_t part_count;
    size_t block_bytes, blocks_used; /* bytes in `codes` */
    uint32_t away; /* 1 + the layer in away_room that it is of; 0: it lies on the GPU */
    bool is_down;  /* with `away`: its second part */
};

/* An operation whose vectors lie on the GPU. */
struct card_op {
    struct gpu_op op;
    struct cuda_weights weight; /* NORM: of op.weight, or ones; likewise of EMBED with a reader */
    bool is_bare;               /* NORM: op.weight was NULL */
    uint32_t part; /* number in a step, from 1, of the sum over ranks that the operation leaves a
                      part of, or makes; 0: none */
};

/* Keys and values of one place of a page. */
struct card_place {
    void *k;
    void *v;          /* NULL: k has entries, which are both */
    uint16_t *scales; /* NULL: bf16 */
};

/* What layers of experts need beside the buffers of all layers; all NULL without them. A pair is a
 * row and one of its experts. */
struct experts_room {
    struct cuda_expert_order order; /* that of the layer that runs */
    void *in;                       /* (bucket, width) codes of 8 bits of what ROUTE prepares */
    uint16_t *gated;                /* (pairs, ffn) in the order */
    size_t gated_count, sum_count;  /* numbers in gated and in sums */
    void *codes;                    /* (pairs, ffn) its codes of 8 bits */
    float *scales;                  /* (pairs) scales of codes */
    uint16_t *sums;                 /* (pairs, width) */
    void *shared;                   /* (bucket, width) bf16 or int32: products TO_SHARED, or NULL */
    void *shared_in;                /* (bucket, their inputs): what the gate before left */
    size_t shared_bytes;
};

/* What recurrent layers need beside the buffers of all layers; all NULL without them. A layer's
 * states of all places stand one behind another, and so do the layers. */
struct recurrent_room {
    void *again;  /* (bucket, width) codes of 8 bits of rows that NORM left in bf16 */
    void *chunks; /* room of cuda_delta_chunk or cuda_mamba */
    char *states;
    char *tails;
    size_t state_stride, tail_stride; /* bytes of a place in a layer */
};

/* The operations before OP_KEEP of a step of up to `rows` rows. */
struct graph {
    uint32_t rows; /* a bucket */
    struct CUgraph_st *recorded;
    struct CUgraphExec_st *exec;
    struct launches launches;
};

/* ---- the GPU ---- */

struct gpu {
    uint32_t index;
    struct gpu *ranks[GPU_RANKS_MAX]; /* (rank_count) the lead first; all of them have all */
    uint32_t rank_count;              /* 1: the GPU is alone */
    uint32_t rank;
    struct gpu_shard shard;            /* its part of the program, unless it is alone */
    uint16_t *parts[GPU_PART_BUFFERS]; /* (row_bucket, width) bf16 products that are parts */
    bool is_apart; /* ranks do not reach each other: parts, words and tokens lie in `shared` */
    char *shared;  /* pinned */
    int32_t *shared_tokens;   /* (sequences_max) the lead's last ones */
    uint32_t part_count;      /* sums over ranks in a step */
    uint32_t parts_summed;    /* the lead's: sums of all steps so far; may wrap around */
    uint32_t *words;          /* (CUDA_RANKS_MAX) as reduce.h has them */
    struct CUevent_st *drawn; /* the lead's, on `compute`: the last draws are done */
    uint32_t *given_up;       /* the lead's, in pinned memory, as reduce.h has it */
    int multiprocessors;
    int compute_major;   /* 9 for capability 9.0 */
    uint64_t compile_ns; /* as gpu_counters has it */
    uint64_t limit;
    uint64_t context_bytes;
    bool is_measuring;
    bool has_no_graphs;
    uint32_t graph_rows_max; /* as gpu_options has it */
    uint32_t careful_steps;
    bool clears_memory;
    struct CUstream_st *compute, *up, *down;
    struct CUevent_st *copied; /* on `up`: the last block is on the GPU */
    struct cuda_products *products;
    struct memory memory;

    bool is_prepared;
    struct gpu_program program; /* its arrays are NULL: see matrices and ops */
    struct gpu_limits limits;
    struct card_matrix *matrices;
    struct card_op *ops;
    uint32_t logit_matrix; /* number of OP_LOGITS, or GPU_NONE */
    uint32_t keep_op;      /* index of OP_KEEP */
    bool has_output_gate;  /* some ATTENTION has one, and so all have */
    size_t logit_stride;
    uint32_t row_bucket, logit_bucket; /* buckets of rows_max and logit_rows_max */
    float *cosines[2];                 /* (context_max, rotary_dim / 2) */
    float *sines[2];

    float *x, *x_kept; /* (rows, width) */
    void *h;           /* (bucket, width) bf16 or int32 */
    void *wide;        /* (bucket, max(q | k | v, 2 ffn, all parts of a token)) bf16 or int32 */
    void *narrow;      /* (bucket, rates, or 1 of a shared expert) bf16 */
    size_t h_bytes, wide_bytes, narrow_bytes, q_bytes, q_kept_bytes;
    void *q,
        *q_kept; /* (bucket, heads · head_dim) bf16; q_kept has kept rows of `attended` as well */
    void *attended;       /* (bucket, heads · head_dim, or what a state leaves) bf16 */
    void *codes;          /* (bucket, widest input of a product) */
    uint16_t *unpacked;   /* (rows_padded, cols) the largest matrix of GPU_BLOCKS, or NULL */
    float *row_scales[2]; /* (bucket) scales for codes, by turns */
    uint16_t *inputs;     /* (row_bucket, input_layers, input_width) bf16, or NULL */
    uint16_t *side;       /* (row_bucket, width) bf16: what ASIDE left, or NULL */
    struct cuda_grouped_rows grouped; /* (row_bucket) rows for products with codes in groups */
    struct cuda_grouped_room grouped_room;
    struct experts_room experts;
    struct away_room away;
    struct unfold_room unfold;
    struct recurrent_room recurrent;
    float *partial_o, *partial_ml;
    int32_t *last_token; /* (sequences_max) */
    void *stats_partial;
    float *kept; /* (edits_max) scratch of choose */
    struct card_place *places;
    struct cuda_pages pages; /* all places at once */
    uint32_t page_count;
    uint32_t scale_heads; /* heads whose scales a page has room for, at each place */
    char *fill_host[FILL_SLICES], *fill_card[FILL_SLICES];
    struct CUevent_st *fill_done[FILL_SLICES];
    size_t fill_bytes;
    uint32_t fill_next;

    struct graph graphs[GRAPHS_MAX]; /* rows ascending; all flights use them */
    uint32_t graph_count;
    uint64_t graph_bytes;    /* bytes of the GPU's memory */
    char graph_refusal[256]; /* empty: all graphs that can be of use were made */

    struct flight flights[GPU_STEPS_MAX];
    uint64_t submitted; /* steps; the next one's flight is submitted % steps_max */
    uint64_t waited;
    struct gpu_counters counters;
};

/* ERR_IO with a sentence: what, the error's text and name. `code` is a cudaError. */
enum err card_error(int code, struct error *error, const char *format, ...) PRINTF_LIKE(3, 4);

/* Bytes of an element of that form. */
size_t form_bytes(enum gpu_form form);
enum cuda_code code_of(enum gpu_form form);
/* The product's format; its sums have 4 bytes for logits: float32, or int32 of INT8. */
enum cuda_format format_of(enum gpu_form form, bool is_logits);
/* The widest product into `to`, and its largest sums, in bytes per row. */
size_t product_bytes(const struct gpu_program *program, enum op_to to);

/* ---- plugin_free.c ---- */

/* Free memory of a GPU that need not be open; false: nobody tells. */
bool free_bytes_told(int index, uint64_t *ret_bytes);
/* The same less a spare; `total` when nobody tells. */
uint64_t free_bytes_of(int index, uint64_t total);

/* ---- plugin_ranks.c ---- */

/* Makes the GPU the one that calls of the runtime are for. */
void rank_use(const struct gpu *gpu);
/* Makes open GPUs ranks of the first one. */
enum err ranks_join(struct gpu *const *gpus, uint32_t count, bool adds_in_host,
                    struct error *error) MUST_CHECK;
/* The room for parts of products and for words; none for a GPU that is alone. */
void ranks_place(struct gpu *gpu, const struct gpu_program *program, struct memory *memory,
                 int *code);
/* Numbers the sums over ranks. */
void ranks_number(struct gpu *gpu);
/* Waits for the flight of all ranks. The error is that of the rank that failed first, as far as can
 * be told; the kernels of the others then wait no longer. */
enum err ranks_wait(struct gpu *lead, const struct flight *flight, struct error *error) MUST_CHECK;
/* Lets kernels go that wait for other ranks: their step is lost. */
void ranks_give_up(const struct gpu *lead);
/* The flight of another rank that goes with one of the lead. */
static inline struct flight *rank_flight(struct gpu *rank, const struct flight *of_lead) {
    return &rank->flights[of_lead - rank->ranks[0]->flights];
}

/* The functions of the table. */
enum err plugin_prepare(struct gpu *lead, const struct gpu_program *program,
                        const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                        struct error *error) MUST_CHECK;
enum err plugin_fill(struct gpu *lead, const struct gpu_rows *rows, struct error *error) MUST_CHECK;
void plugin_recall(struct gpu *gpu, const char *notes, size_t bytes);
enum err plugin_warm(struct gpu *gpu, struct error *error) MUST_CHECK;
bool plugin_tell(struct gpu *gpu, const char **ret_notes, size_t *ret_bytes);
enum err plugin_trial(struct gpu *gpu, uint32_t rows, uint64_t *ret_ns,
                      struct error *error) MUST_CHECK;
enum err plugin_submit(struct gpu *gpu, const struct gpu_step *step,
                       const struct gpu_samples *samples, struct error *error) MUST_CHECK;
enum err plugin_sample(struct gpu *gpu, const struct gpu_samples *samples,
                       struct error *error) MUST_CHECK;
enum err plugin_wait(struct gpu *gpu, uint64_t number, struct gpu_result *result,
                     struct error *error) MUST_CHECK;
enum err plugin_logits(struct gpu *gpu, uint32_t first, uint32_t rows, float *ret_logits,
                       struct error *error) MUST_CHECK;
enum err plugin_run_op(struct gpu *gpu, const struct gpu_op_call *call,
                       struct error *error) MUST_CHECK;
enum err plugin_counters_read(struct gpu *gpu, struct gpu_counters *ret_counters,
                              struct error *error) MUST_CHECK;

/* ---- plugin_prepare.c ---- */

/* Lays out one rank for its own program. */
enum err prepare_one(struct gpu *gpu, const struct gpu_program *program,
                     const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                     struct error *error) MUST_CHECK;

/* ---- plugin_vectors.c ---- */

/* A layout is made twice: once to count, once to place. */
struct layout {
    struct gpu *gpu;
    const struct gpu_program *program; /* with the host's vectors */
    struct memory memory;
    struct memory host; /* for experts in the host's memory */
    int code;           /* a cudaError: the first one */
};
/* Room for all matrices, copies of the vectors, and the angles of all positions. */
void vectors_place(struct layout *layout);

/* ---- plugin_check.c ---- */

/* ERR_INVALID for a program or limits that no kernel is made for. */
enum err program_check(const struct gpu_program *program, const struct gpu_limits *limits,
                       struct error *error) MUST_CHECK;

/* ---- plugin_fill.c ---- */

/* Fills a rank's rows: with the columns of the file's rows that a split of inputs says, or all. */
enum err fill_one(struct gpu *gpu, const struct gpu_rows *rows, const struct gpu_split *split,
                  struct error *error) MUST_CHECK;

/* The rows that a product reads: the matrix's own, or those that are unpacked here, which the next
 * call overwrites. */
enum err weights_ready(struct gpu *gpu, uint32_t index, const void **ret_weights,
                       struct error *error) MUST_CHECK;

/* ---- plugin_graph.c ---- */

/* Makes the graphs; none when the GPU or its driver refuses, which is no error. */
void graphs_make(struct gpu *gpu);
void graphs_free(struct gpu *gpu);
/* Starts all operations of the step that was put, with a graph if there is one for its rows. */
enum err graph_run(struct gpu *gpu, struct flight *flight, struct error *error) MUST_CHECK;

/* ---- plugin_trial.c ---- */

/* Rows of the largest step that made_up_step can make; 0: none. */
uint32_t made_up_rows_max(const struct gpu *gpu);
/* Computes a made-up step of 1 to made_up_rows_max rows. It overwrites the first pages. */
enum err made_up_step(struct gpu *gpu, uint32_t rows, struct error *error) MUST_CHECK;

/* ---- plugin_sample.c ---- */

enum err samples_put(struct gpu *gpu, struct flight *flight, const struct gpu_samples *samples,
                     bool is_late, struct card_samples *ret_samples,
                     struct error *error) MUST_CHECK;
/* Enqueues the draws; of a step's first call also the statistics of all logits. */
enum err samples_run(struct gpu *gpu, struct flight *flight, const struct card_samples *samples,
                     bool is_late, struct error *error) MUST_CHECK;
/* Enqueues the copies of results to the host, and the event behind them. */
enum err samples_fetch(struct gpu *gpu, struct flight *flight, struct error *error) MUST_CHECK;
