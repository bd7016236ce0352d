/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plain_internal: the GPU of the tests (gpu/table.h) in plain C, as its files share it.
 *
 * It computes a step in wait, in the order of the submits, so late draws and two steps under way
 * behave as on a GPU. It is also the referee of the callers: an invariant of gpu/table.h that
 * a caller breaks ends the process with a sentence (MUST), in every build.
 *
 * Environment, for tests:
 *   QUERN_PLAIN_CARDS       number of GPUs (default 1); "none": as without a driver
 *   QUERN_PLAIN_MEMORY_MIB  memory of a GPU (default 4096 MiB)
 *   QUERN_PLAIN_FAULT       "call:n:kind": the n-th call of that name fails; kind is error, hang,
 *                           lost, or nan (submit, sample and wait: the step's logits are NaN)
 *   QUERN_PLAIN_STEP_NS     "FIXED+EACH": what trial tells for a step of n rows is FIXED + n EACH
 *   QUERN_PLAIN_POISON      a token: each step that reads it fails, as by an illegal access
 *
 * Thread: one at a time.
 * Memory: the GPU's; close frees it. */

#include "gpu/table.h"

#define PLAIN_TILE_HEADS 32u   /* small, so that short prompts already have several tiles */
#define PLAIN_SPLIT_TOKENS 32u /* small, so that short contexts are already cut */
#define PLAIN_MULTIPROCESSORS 16u
#define PLAIN_HEAD_DIM_MAX 640u
#define PLAIN_CONTEXT_BYTES (1u << 20) /* stands for driver and context in the ledger */

/* Ends the process with a sentence when the condition is false. */
#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) plain_refuse(__VA_ARGS__);                                               \
    } while (0)
_Noreturn void plain_refuse(const char *format, ...) PRINTF_LIKE(1, 2);

/* ---- memory ---- */

/* Copies that are freed together. */
struct plain_heap {
    void **at;
    size_t count;
    size_t capacity;
};

void *plain_new(struct plain_heap *heap, size_t count, size_t item_bytes); /* zeroed */
/* A copy of `count` items; NULL for none. */
void *plain_copy(struct plain_heap *heap, const void *from, size_t count, size_t item_bytes);
void plain_heap_release(struct plain_heap *heap);

/* ---- faults ---- */

enum plain_call {
    PLAIN_LIST,
    PLAIN_OPEN,
    PLAIN_PREPARE,
    PLAIN_FILL,
    PLAIN_WARM,
    PLAIN_TRIAL,
    PLAIN_SUBMIT,
    PLAIN_SAMPLE,
    PLAIN_WAIT,
    PLAIN_LOGITS,
    PLAIN_RUN_OP,
    PLAIN_COUNTERS,
    PLAIN_CALLS
};

enum plain_fault_kind { FAULT_NONE, FAULT_ERROR, FAULT_HANG, FAULT_LOST, FAULT_NAN };

struct plain_fault {
    enum plain_call call;
    uint32_t number; /* number of the call, from 1 */
    enum plain_fault_kind kind;
};

/* ---- the GPU ---- */

struct plain_matrix {
    struct gpu_matrix shape;
    void *values;    /* (rows, cols) float or bf16 */
    bool *is_filled; /* (rows) */
};

/* The key that a slot holds, for the layers of one place. */
struct plain_stamp {
    uint32_t position_1; /* position + 1; 0: never written */
    uint32_t group;
};

/* A partial of the ATTENTION that runs. */
struct plain_partial {
    enum { PARTIAL_NONE, PARTIAL_LEFT, PARTIAL_READ } state;
    uint32_t row;
    uint32_t launch;
    uint64_t keys; /* keys in it, and the sum of their marks */
    uint64_t marks;
};

/* The draws of one call. */
struct plain_draws {
    struct gpu_samples in;    /* arrays in the step's heap, as this struct */
    struct plain_draws *next; /* draws in the next call, or NULL */
};

struct plain_step {
    uint64_t number;
    struct gpu_step in;        /* arrays in `heap` */
    struct plain_draws *draws; /* draws in the first call that draws, or NULL */
    struct plain_draws *draws_last;
    bool *is_drawn; /* (wanted_count) some call draws the row; in `heap` */
    uint32_t ask_count;
    uint32_t named_count;
    bool is_nan;
    struct plain_heap heap;
};

struct gpu {
    uint32_t index;
    bool measures_ops;
    struct plain_fault fault;
    int32_t poison; /* INT32_MAX: none */
    uint32_t careful_steps;
    uint32_t calls[PLAIN_CALLS];
    bool is_broken; /* only close may follow */
    bool is_prepared;
    bool is_warm;
    bool is_recalled; /* its notes were brought back */
    struct plain_heap heap;
    struct memory_ledger ledger;
    struct gpu_program program; /* arrays in `heap` */
    struct gpu_limits limits;
    uint32_t kv_width, kv_heads_most, wide_width; /* the most of a layer */
    bool has_output_gate;                         /* in all layers with attention */
    struct plain_matrix *matrices;
    uint32_t *makers; /* (op_count) MATMUL, LOGITS: the operation that prepared the input */

    float *x, *h, *wide, *narrow, *shared, *attended, *logits;
    float *inputs;  /* (rows_max, input_layers, input_width) */
    float *queries; /* (rows_max, heads, rank + turned_dim) what LATENT_Q left */
    float *side;    /* (rows_max, width) what ASIDE left */
    uint32_t attended_width;
    float *cosines[2], *sines[2]; /* (rows_max, head_dim / 2) */
    float *weights;               /* one row of a matrix */
    uint32_t *chosen;             /* (rows_max, used) experts of the ROUTE before; likewise: */
    float *chosen_weights;
    float *gated;               /* one expert (2 ffn), its sums and those of all (width) */
    unsigned char *kv;          /* (layer_places, slots, kv_heads, key and value, head_dim) */
    uint16_t *kv_scales;        /* (layer_places, slots, kv_heads, 2), of E4M3 */
    struct plain_stamp *stamps; /* (layer_places, slots) */
    uint64_t *slot_marks;       /* (slots) the submit that wrote it last */
    uint64_t submits;
    float *states;         /* (state_places, parts of the layers) */
    uint64_t *state_marks; /* (state_places) the submit that wrote it last; 0: none */

    float *partial_sums; /* (partials_max, heads, head_dim + 2): o, m, l */
    struct plain_partial *partials;
    uint32_t partials_end;         /* those from here on are NONE */
    struct plain_partial *results; /* (rows_max) keys that the result of each row has */
    uint64_t *key_marks;           /* (context_max + 1) sums of the marks of keys 0..i-1 */

    float *edited;       /* (vocab) */
    uint32_t *order;     /* (vocab) */
    bool *is_held;       /* (vocab) */
    int32_t *tokens;     /* (logit_rows_max) tokens in the step that is being computed */
    bool *is_drawn;      /* (logit_rows_max) likewise */
    int32_t *last_token; /* (sequences_max) */
    bool *has_token;     /* (sequences_max) a draw for the slot was submitted */

    struct plain_step steps[GPU_STEPS_MAX]; /* under way: first, first + 1, … */
    uint32_t step_first, step_count;
    uint64_t number_last;   /* number of the step submitted last */
    uint64_t number_waited; /* number of the step waited for last */
    uint32_t logit_rows;    /* rows in that step */
    struct gpu_counters counters;
};

/* Buffers and rows of the operations that run: the GPU's, or the host's for run_op. */
struct plain_pass {
    struct gpu *gpu;
    const struct gpu_step *step;
    bool is_kept; /* behind KEEP: rows are the wanted ones */
    uint32_t row_count;
    float *x, *h, *wide, *narrow, *shared, *attended, *logits;
};

/* The heads of a layer. */
struct plain_heads {
    uint32_t kv_heads, head_dim, q_width, kv_width;
    uint32_t stride; /* a row of wide */
};
/* Width of a row of wide before a GATE. */
static inline uint32_t plain_gate_width(const struct gpu_op *op) {
    return (op->gates_inputs || op->gate == GATE_GELU_ALONE || op->gate == GATE_RELU2 ? 1 : 2) *
           op->width;
}
struct plain_heads plain_heads_of(const struct gpu *gpu, const struct gpu_op *op);

/* The step's row of a row of the pass. */
static inline uint32_t plain_step_row(const struct plain_pass *pass, uint32_t row) {
    return pass->is_kept ? pass->step->wanted[row] : row;
}

static inline uint32_t plain_slots(const struct gpu *gpu) {
    return gpu->ledger.page_count * GPU_PAGE_TOKENS;
}

/* plain_prepare.c */
enum err plain_prepare(struct gpu *gpu, const struct gpu_program *program,
                       const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                       struct error *error);
enum err plain_fill(struct gpu *gpu, const struct gpu_rows *rows, struct error *error);
void plain_recall(struct gpu *gpu, const char *notes, size_t bytes);
enum err plain_warm(struct gpu *gpu, struct error *error);
bool plain_tell(struct gpu *gpu, const char **ret_notes, size_t *ret_bytes);

/* plain_program.c: a copy of the program, and its check. ERR_INVALID for shapes without kernels. */
enum err plain_take_program(struct gpu *gpu, const struct gpu_program *program,
                            struct error *error);

/* plain_form.c: numbers as they lie in memory. */
size_t plain_form_bytes(enum gpu_form form);
uint8_t plain_e4m3_from(float value); /* nearest even, at most ±448 */
float plain_e4m3_to(uint8_t code);
void plain_round(enum gpu_form form, float *values, uint32_t count);
/* A head's key or value, of `dim` elements, in a slot of a place. */
struct plain_kv {
    uint32_t place, slot, head, dim;
    bool is_value;
};
void plain_kv_put(struct gpu *gpu, struct plain_kv at, const float *values);
/* Returns `room`, or the place in memory where the form is F32. */
const float *plain_kv_get(const struct gpu *gpu, struct plain_kv at,
                          float room[PLAIN_HEAD_DIM_MAX]);
float plain_dot(const float *a, const float *b, uint32_t count);

/* plain_step.c */
enum err plain_submit(struct gpu *gpu, const struct gpu_step *step,
                      const struct gpu_samples *samples, bool is_nan, struct error *error);
enum err plain_late(struct gpu *gpu, const struct gpu_samples *samples, bool is_nan,
                    struct error *error);
void plain_check_step(struct gpu *gpu, const struct gpu_step *step);

/* plain_ops.c */
/* Rounds the result of an operation to the form that its reader takes. */
void plain_prepare_rows(const struct plain_pass *pass, const struct gpu_op *op, float *values,
                        uint32_t width, uint32_t stride);
void plain_begin(const struct plain_pass *pass); /* the rows' angles */
void plain_op(struct plain_pass *pass, uint32_t op);
/* plain_attention.c */
void plain_attention(struct plain_pass *pass, const struct gpu_op *op);

/* plain_recurrent.c */
void plain_count_states(struct gpu *gpu);
void plain_open_states(struct gpu *gpu);
/* The referee of a step's states, in the order of the submits. */
void plain_check_states(struct gpu *gpu, const struct gpu_step *step);
void plain_conv(struct plain_pass *pass, const struct gpu_op *op);
void plain_delta(struct plain_pass *pass, const struct gpu_op *op);
void plain_mamba(struct plain_pass *pass, const struct gpu_op *op);
void plain_gated_norm(struct plain_pass *pass, const struct gpu_op *op);

/* plain_latent.c */
void plain_latent_entry(struct plain_pass *pass, const struct gpu_op *op);
void plain_latent_q(struct plain_pass *pass, const struct gpu_op *op);
void plain_latent_out(struct plain_pass *pass, const struct gpu_op *op);

/* plain_sample.c */
/* Draws and answers of one call; *answers and *named count on over the calls of a step. */
void plain_samples(struct gpu *gpu, const struct gpu_samples *samples, struct gpu_result *result,
                   uint32_t *answers, uint32_t *named);
uint32_t plain_nonfinite_rows(const struct gpu *gpu, uint32_t rows);
