/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_ledger.h"

#include "base/min_max.h"
#include "gpu/away.h"
#include "gpu/gpu_sampling.h"
#include "gpu/gpu_shard.h"
#include "gpu/grouping.h"
#include "gpu/row_bucket.h"
#include "scheduler/backend.h"

#include <stdio.h>

#define MIB ((uint64_t)1 << 20)
/* Memory of the library for products, and two slices through which weights are filled. */
#define WORKSPACE_BYTES (48 * MIB)
#define PRODUCT_ALIGN 8u
#define STATE_ALIGN 16u         /* bytes */
#define EXPERTS_ROUTE_BYTES 10u /* a row and one of its experts: number, weight, place */
/* Gaps between the parts, and limits that grow in steps: a prediction has neither. */
#define UNTOLD_BYTES MIB
/* A refusal advises no smaller values: a server with less is of no use. */
#define ADVISED_CONTEXT_LEAST 256u
#define ADVISED_ROWS_LEAST 64u

static uint64_t divide_up(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

static uint64_t form_bytes(enum gpu_form form) {
    switch (form) {
    case GPU_F32: return 4;
    case GPU_BF16:
    case GPU_BLOCKS: return 2;
    case GPU_E4M3:
    case GPU_INT8: break;
    }
    return 1;
}

static bool has_scales(enum gpu_form form) {
    return form == GPU_E4M3 || form == GPU_INT8;
}

/* ---- the parts ---- */

static uint64_t matrix_bytes(const struct gpu_matrix *matrix) {
    uint64_t rows = divide_up(matrix->rows, PRODUCT_ALIGN) * PRODUCT_ALIGN;
    if (matrix->form == GPU_BLOCKS) return matrix->block_bytes;
    return rows * (matrix->cols * form_bytes(matrix->form) + (has_scales(matrix->form) ? 2 : 0));
}

static uint64_t vector_bytes(const struct gpu_program *program, const struct gpu_op *op) {
    uint64_t floats = (op->post ? program->width : 0) +
                      (!op->bias             ? 0
                       : op->kind == OP_NORM ? program->width
                                             : program->matrices[op->matrix].rows) +
                      (op->positions ? (uint64_t)op->position_rows * program->width : 0) +
                      (op->q_norm ? gpu_head_dim(program, op) : 0) +
                      (op->k_norm ? gpu_head_dim(program, op) : 0);
    const struct gpu_experts *experts = &op->experts;
    const struct gpu_recurrent_sizes *sizes = &program->recurrent;
    const struct gpu_recurrent *recurrent = &op->recurrent;
    if (op->sinks) floats += program->heads;
    if (op->kind == OP_CONV)
        floats += (sizes->taps + (recurrent->conv_bias ? UINT64_C(1) : 0)) * sizes->channels +
                  (recurrent->decay ? UINT64_C(2) * sizes->value_heads : 0) +
                  (recurrent->skip ? sizes->value_heads : 0) +
                  (!recurrent->norm  ? 0
                   : sizes->is_mamba ? sizes->width
                                     : sizes->value_dim);
    if (op->kind == OP_LATENT_ENTRY) floats += program->latent.rank + program->latent.q_rank;
    const bool has_biases = op->kind == OP_EXPERTS;
    if (op->kind == OP_ROUTE && experts->choice_bias) floats += experts->count;
    if (op->kind == OP_ROUTE && experts->expert_scale) floats += experts->count;
    if (has_biases && experts->gate_up_bias) floats += program->matrices[experts->gate_up].rows;
    if (has_biases && experts->down_bias) floats += program->matrices[experts->down].rows;
    /* A norm without weights has ones, and so has an embedding that a product reads. */
    const bool has_weights = (op->kind == OP_NORM && !op->is_layer_norm) ||
                             (op->kind == OP_EMBED && op->next != GPU_NONE);
    if (op->is_layer_norm) floats += program->width;
    if (op->kind == OP_ASIDE || op->kind == OP_JOIN) floats += program->width;
    if (op->kind == OP_INPUTS) floats += program->input_width;
    return floats * 4 + (has_weights ? program->width * UINT64_C(2) : 0);
}

/* Weights of experts in the host's memory, and those of the largest layer. */
struct away_bytes {
    uint64_t all, most;
};

static struct away_bytes away_bytes(const struct gpu_program *program,
                                    const struct gpu_limits *limits) {
    const uint32_t layers = away_layers(program);
    struct away_bytes bytes = {0, 0};
    uint32_t nth = 0;
    for (uint32_t i = 0; i < program->op_count && limits->experts_away > 0; i++) {
        const struct gpu_experts *experts = &program->ops[i].experts;
        if (program->ops[i].kind != OP_EXPERTS) continue;
        if (!away_has(nth++, layers, limits->experts_away)) continue;
        const uint64_t layer = matrix_bytes(&program->matrices[experts->gate_up]) +
                               matrix_bytes(&program->matrices[experts->down]);
        bytes.all += layer;
        bytes.most = max_u64(bytes.most, layer);
    }
    return bytes;
}

static uint64_t weight_bytes(const struct gpu_program *program, const struct gpu_limits *limits) {
    /* A cosine and a sine per position and pair of elements. */
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->rope_count; i++)
        bytes += (uint64_t)limits->context_max * program->rotary_dim[i] * 4;
    for (uint32_t i = 0; i < program->matrix_count; i++)
        bytes += matrix_bytes(&program->matrices[i]);
    for (uint32_t i = 0; i < program->op_count; i++)
        bytes += vector_bytes(program, &program->ops[i]);
    const struct away_bytes away = away_bytes(program, limits);
    return bytes - away.all + AWAY_PLACES * away.most;
}

/* Whether operation i is a product that leaves the logits of experts, in float32. */
static bool is_router(const struct gpu_program *program, uint32_t i) {
    return i + 1 < program->op_count && program->ops[i + 1].kind == OP_ROUTE;
}

/* The widest result of a product into `to`, per row. Those of heads leave values in wide. */
static uint64_t product_bytes(const struct gpu_program *program, enum op_to to) {
    uint64_t most = to == TO_WIDE ? UINT64_C(2) * program->heads * program->latent.value_dim : 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_op *op = &program->ops[i];
        if (op->kind != OP_MATMUL || op->to != to) continue;
        const struct gpu_matrix *matrix = &program->matrices[op->matrix];
        bool is_wide = matrix->form == GPU_F32 || matrix->form == GPU_INT8 || is_router(program, i);
        most = max_u64(most, (uint64_t)matrix->rows * (is_wide ? 4 : 2));
    }
    return most;
}

/* What a row's experts leave, in bf16: gated, and each sum; with 8 bits codes of both inputs. */
static uint64_t experts_bytes(const struct gpu_program *program) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_experts *experts = &program->ops[i].experts;
        if (program->ops[i].kind != OP_EXPERTS) continue;
        const bool has_codes = has_scales(program->matrices[experts->gate_up].form) ||
                               has_scales(program->matrices[experts->down].form);
        const uint64_t pair = 2 * ((uint64_t)experts->ffn + program->width) + EXPERTS_ROUTE_BYTES +
                              (has_codes ? experts->ffn + sizeof(float) : 0);
        most = max_u64(most, experts->used * pair + (has_codes ? program->width : 0));
    }
    return most;
}

/* What the gate of a shared expert leaves, and its product. */
static uint64_t shared_bytes(const struct gpu_program *program) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_op *op = &program->ops[i];
        if (op->kind != OP_MATMUL || op->to != TO_SHARED) continue;
        const struct gpu_matrix *matrix = &program->matrices[op->matrix];
        most = max_u64(most, matrix->cols * form_bytes(matrix->form));
    }
    return most + product_bytes(program, TO_SHARED);
}

/* What layers with a matrix per head need per row: q, k and v behind the convolution, in bf16, and
 * the gates; or x, B and C of Mamba-2, in float32. */
static uint64_t recurrent_bytes(const struct gpu_program *program) {
    const struct gpu_recurrent_sizes *sizes = &program->recurrent;
    if (sizes->layers == 0 || sizes->key_heads == 0) return 0;
    if (sizes->is_mamba) return sizes->channels * UINT64_C(4);
    return sizes->channels * UINT64_C(2) + sizes->value_heads * UINT64_C(8);
}

/* Codes of 8 bits of rows that an operation before had in bf16. */
static uint64_t again_bytes(const struct gpu_program *program) {
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_op *op = &program->ops[i];
        if (op->kind == OP_PREPARE && op->attended == 0 &&
            has_scales(program->matrices[op->next].form))
            return program->width;
    }
    return 0;
}

/* Parts of a token for layers, and what stands beside experts, in bf16. */
static uint64_t side_bytes(const struct gpu_program *program) {
    uint64_t numbers = (uint64_t)program->input_layers * program->input_width;
    for (uint32_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == OP_ASIDE) return 2 * (numbers + program->width);
    return 2 * numbers;
}

/* Parts of products that ranks add up, in bf16. */
static uint64_t part_bytes(const struct gpu_program *program) {
    return program->ranks > 1 ? GPU_PART_BUFFERS * UINT64_C(2) * program->width : 0;
}

static uint64_t activation_bytes(const struct gpu_program *program,
                                 const struct gpu_limits *limits) {
    const uint64_t rows = row_bucket(limits->rows_max), kept = row_bucket(limits->logit_rows_max);
    const uint64_t q_bytes =
        max_u64((uint64_t)program->heads * program->head_dim, program->recurrent.width) * 2;
    uint64_t input_bytes = program->pools ? program->width * UINT64_C(2) : 0, unpacked_bytes = 0,
             codes_bytes = 0;
    for (uint32_t i = 0; i < program->matrix_count; i++) {
        const struct gpu_matrix *matrix = &program->matrices[i];
        const uint64_t row_bytes = matrix->cols * form_bytes(matrix->form);
        input_bytes = max_u64(input_bytes, row_bytes);
        if (matrix->form != GPU_BLOCKS || matrix->grouping != GROUPED_NOT) continue;
        unpacked_bytes = max_u64(max_u64(unpacked_bytes, matrix->rows * row_bytes),
                                 grouped_room_bytes(matrix->rows, matrix->cols));
        /* Codes of int8, and a pair of float32 for each group. */
        codes_bytes = max_u64(codes_bytes,
                              rows * (matrix->cols + matrix->cols / GROUPED_INPUTS * UINT64_C(8)));
    }
    return (rows + kept) * program->width * 4 +
           rows * (product_bytes(program, TO_H) +
                   max_u64(product_bytes(program, TO_WIDE), product_bytes(program, TO_INPUTS)) +
                   product_bytes(program, TO_NARROW) + side_bytes(program)) +
           (2 * rows + kept) * q_bytes +
           rows * (input_bytes + experts_bytes(program) + shared_bytes(program) +
                   recurrent_bytes(program) + again_bytes(program) + part_bytes(program)) +
           unpacked_bytes + codes_bytes +
           (uint64_t)limits->partials_max * program->heads * (program->head_dim + 2) * 4;
}

static uint64_t logit_bytes(const struct gpu_program *program, const struct gpu_limits *limits) {
    const uint64_t rows = row_bucket(limits->logit_rows_max);
    return limits->steps_max * rows * program->vocab_rows * 4 + limits->edits_max * UINT64_C(4);
}

/* Copies of the arrays of struct gpu_step and struct gpu_samples, and the results. */
static uint64_t step_bytes(const struct gpu_program *program, const struct gpu_limits *limits) {
    const uint64_t rows = limits->rows_max, wanted = limits->logit_rows_max;
    const uint64_t item_bytes = 2 * sizeof(struct gpu_tile_item) + sizeof(struct gpu_decode_item) +
                                sizeof(struct gpu_merge_item);
    uint64_t attention = limits->items_max * item_bytes + (limits->partials_max + rows) * 4;
    uint64_t group = rows * 4 + 2 * attention;
    /* Steps of texts draw nothing. */
    const uint64_t mask_bytes = program->pools ? 0 : program->vocab / 8;
    const uint64_t answer_bytes = program->pools ? 0 : sizeof(struct gpu_answer);
    const uint64_t texts = limits->sequences_max;
    if (program->pools) group += (rows + wanted) * 4;
    uint64_t samples =
        wanted * (2 * (sizeof(struct gpu_draw) + 4) + mask_bytes + sizeof(struct gpu_ask) +
                  answer_bytes) +
        (program->pools ? rows * 4 + texts * (8 + program->width * UINT64_C(4)) : 0) +
        limits->edits_max * sizeof(struct draw_edit) + limits->named_max * UINT64_C(8);
    const uint64_t states = limits->state_places > 0 ? limits->sequences_max : 0;
    /* Prompts of latent layers list their pages once more. */
    const uint64_t unfolded =
        program->latent.rank > 0 ? ((uint64_t)limits->items_max + limits->pages_max) * 4 : 0;
    return limits->steps_max *
           (unfolded + (rows + wanted) * 8 + limits->pages_max * UINT64_C(4) +
            states * sizeof(struct gpu_state_item) + limits->group_count * group + samples);
}

uint64_t gpu_ledger_page_bytes(const struct gpu_program *program, const struct gpu_limits *limits) {
    const uint64_t slots =
        (uint64_t)limits->layer_places * gpu_kv_planes(program) * GPU_PAGE_TOKENS;
    uint32_t heads = gpu_kv_width(program) / program->head_dim; /* the most of a layer */
    for (uint32_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == OP_ATTENTION)
            heads = (uint32_t)max_u64(heads, gpu_page_heads(program, &program->ops[i]));
    return slots * (gpu_kv_width(program) * form_bytes(limits->kv_form) +
                    (has_scales(limits->kv_form) ? heads * UINT64_C(2) : 0));
}

uint64_t gpu_ledger_state_bytes(const struct gpu_program *program,
                                const struct gpu_limits *limits) {
    const struct gpu_recurrent_sizes *sizes = &program->recurrent;
    const uint64_t matrix = (uint64_t)sizes->value_heads * sizes->key_dim * sizes->value_dim *
                            (sizes->key_heads > 0 ? form_bytes(limits->state_form) : 0);
    const uint64_t tail = sizes->layers > 0 ? (sizes->taps - 1) * UINT64_C(2) * sizes->channels : 0;
    return sizes->layers * (divide_up(matrix, STATE_ALIGN) + divide_up(tail, STATE_ALIGN)) *
           STATE_ALIGN;
}

uint64_t gpu_ledger_away_bytes(const struct gpu_program *program, const struct gpu_limits *limits) {
    return away_bytes(program, limits).all;
}

struct memory_ledger gpu_ledger_predict(const struct gpu_program *program,
                                        const struct gpu_limits *limits, uint64_t limit_bytes) {
    struct memory_ledger ledger = {
        .limit = limit_bytes,
        .context = GPU_CONTEXT_BYTES,
        .weights = weight_bytes(program, limits),
        .away = gpu_ledger_away_bytes(program, limits),
        .activations = activation_bytes(program, limits),
        .logits = logit_bytes(program, limits),
        .steps = step_bytes(program, limits),
        .workspace = WORKSPACE_BYTES,
        .state_bytes = gpu_ledger_state_bytes(program, limits),
        .state_places = limits->state_places,
        .page_bytes = gpu_ledger_page_bytes(program, limits),
    };
    ledger.states = ledger.state_places * ledger.state_bytes;
    uint64_t used = ledger.context + ledger.weights + ledger.activations + ledger.logits +
                    ledger.steps + ledger.workspace + ledger.states;
    uint64_t pages = used < limit_bytes ? (limit_bytes - used) / ledger.page_bytes : 0;
    pages = max_u64(min_u64(pages, limits->page_count_max), limits->page_count_min);
    ledger.page_count = (uint32_t)pages;
    ledger.kv = pages * ledger.page_bytes;
    ledger.used = used + ledger.kv;
    return ledger;
}

/* ---- settings that fit ---- */

/* Settings that the user has; 0 leaves one as it is. */
struct change {
    uint32_t context;
    uint32_t sequences;
    uint32_t rows;
    bool has_small_weights; /* 8 bits instead of 16 */
};

static uint32_t scale(uint32_t value, uint64_t from, uint64_t to) {
    return (uint32_t)divide_up(value * to, max_u64(from, 1));
}

static struct gpu_limits changed(const struct gpu_refusal *refusal, const struct change *change) {
    struct gpu_limits limits = *refusal->limits;
    if (change->context > 0) {
        uint32_t least = backend_blocks_for(change->context) * limits.group_count;
        limits.page_count_min = (uint32_t)min_u64(limits.page_count_min, least);
        limits.pages_max = scale(limits.pages_max, backend_blocks_for(limits.context_max),
                                 backend_blocks_for(change->context));
        limits.context_max = change->context;
    }
    if (change->sequences > 0) {
        uint32_t from = limits.sequences_max;
        limits.logit_rows_max = scale(limits.logit_rows_max, from, change->sequences);
        limits.pages_max = scale(limits.pages_max, from, change->sequences);
        limits.named_max = scale(limits.named_max, from, change->sequences);
        limits.state_places = scale(limits.state_places, from, change->sequences);
        limits.sequences_max = change->sequences;
    }
    if (change->rows > 0) {
        limits.items_max = scale(limits.items_max, limits.rows_max, change->rows);
        limits.partials_max = scale(limits.partials_max, limits.rows_max, change->rows);
        limits.logit_rows_max = (uint32_t)min_u64(limits.logit_rows_max, change->rows);
        limits.rows_max = change->rows;
    }
    const struct gpu_sampling_options sampling = {.vocab = refusal->program->vocab,
                                                  .sequences_max = limits.sequences_max,
                                                  .context_max = limits.context_max};
    limits.edits_max = gpu_sampling_edits_max(&sampling);
    return limits;
}

/* A part of the GPU's own ledger, changed as its prediction changes. */
static uint64_t follow(uint64_t part, uint64_t before, uint64_t after) {
    return before > 0 ? (uint64_t)((double)part * ((double)after / (double)before)) : part;
}

/* The least memory with the changed limits. */
static uint64_t needed(const struct gpu_refusal *refusal, const struct gpu_limits *limits) {
    const struct memory_ledger *is = refusal->ledger;
    struct memory_ledger before = gpu_ledger_predict(refusal->program, refusal->limits, 0);
    struct memory_ledger after = gpu_ledger_predict(refusal->program, limits, 0);
    return is->context + is->workspace + follow(is->weights, before.weights, after.weights) +
           follow(is->activations, before.activations, after.activations) +
           follow(is->logits, before.logits, after.logits) +
           follow(is->steps, before.steps, after.steps) +
           follow(is->states, before.states, after.states) + follow(is->kv, before.kv, after.kv);
}

static uint64_t saved_by(const struct gpu_matrix *matrix) {
    return matrix->form == GPU_BF16 ? (uint64_t)matrix->rows * matrix->cols : 0;
}

/* Bytes that weights of 8 bits would save. */
static uint64_t saved_by_small(const struct gpu_program *program) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_op *op = &program->ops[i];
        if (op->kind == OP_EXPERTS)
            bytes += saved_by(&program->matrices[op->experts.gate_up]) +
                     saved_by(&program->matrices[op->experts.down]);
        else if (op->kind == OP_MATMUL && !is_router(program, i)) /* a router has no 8 bits */
            bytes += saved_by(&program->matrices[op->matrix]);
    }
    return bytes;
}

static bool fits(const struct gpu_refusal *refusal, const struct change *change) {
    struct gpu_limits limits = changed(refusal, change);
    uint64_t saved = change->has_small_weights ? saved_by_small(refusal->program) : 0;
    return needed(refusal, &limits) + UNTOLD_BYTES <= refusal->ledger->limit + saved;
}

/* The largest multiple of `unit` from `least` up to below `now` that fits, by halving; 0: none. */
static uint32_t largest(const struct gpu_refusal *refusal, uint32_t *value,
                        const struct change *change, uint32_t least, uint32_t now, uint32_t unit) {
    uint32_t low = (uint32_t)divide_up(least, unit), high = now / unit, best = 0;
    while (low <= high) {
        uint32_t middle = low + (high - low) / 2;
        *value = middle * unit;
        if (fits(refusal, change)) {
            best = middle * unit;
            low = middle + 1;
        } else {
            if (middle == 0) break;
            high = middle - 1;
        }
    }
    *value = 0;
    return best;
}

/* ---- the sentence ---- */

struct advice {
    char text[256];
    size_t bytes;
};

static void add(struct advice *advice, const char *option, uint32_t value) {
    size_t room = sizeof advice->text - advice->bytes;
    int count = snprintf(advice->text + advice->bytes, room, "%s--%s %u",
                         advice->bytes ? " or with " : "it fits with ", option, value);
    if (count > 0 && (size_t)count < room) advice->bytes += (size_t)count;
}

static void advise(const struct gpu_refusal *refusal, struct advice *advice) {
    const struct gpu_limits *limits = refusal->limits;
    const uint32_t urgent = refusal->urgent_sequences;
    struct change change = {0};
    uint32_t best = largest(refusal, &change.context, &change, ADVISED_CONTEXT_LEAST,
                            limits->context_max, GPU_PAGE_TOKENS);
    if (best > 0) add(advice, "max-model-len", best);
    best = largest(refusal, &change.sequences, &change, urgent + 1, limits->sequences_max, 1);
    if (best > urgent) add(advice, "max-num-seqs", best - urgent);
    best = largest(refusal, &change.rows, &change, ADVISED_ROWS_LEAST, limits->rows_max, 16);
    if (best > 0) add(advice, "max-num-batched-tokens", best);
    if (advice->bytes > 0) return;
    change = (struct change){.has_small_weights = true};
    bool is_enough = fits(refusal, &change);
    change.context = (uint32_t)min_u64(limits->context_max, ADVISED_CONTEXT_LEAST);
    change.rows = (uint32_t)min_u64(limits->rows_max, ADVISED_ROWS_LEAST);
    change.sequences = (uint32_t)min_u64(limits->sequences_max, urgent + 1);
    if (is_enough)
        snprintf(advice->text, sizeof advice->text, "it fits with --quantization fp8 or int8");
    else if (fits(refusal, &change))
        snprintf(advice->text, sizeof advice->text,
                 "only less of several together would fit: --max-model-len, --max-num-seqs, "
                 "--max-num-batched-tokens, and --quantization fp8");
    else
        snprintf(advice->text, sizeof advice->text,
                 "no setting makes it fit: use a smaller model, or --device cpu");
}

static unsigned long long mib(uint64_t bytes) {
    return (unsigned long long)divide_up(bytes, MIB);
}

enum err gpu_ledger_refuse(const struct gpu_refusal *refusal, struct error *error) {
    const struct memory_ledger *is = refusal->ledger;
    struct advice advice = {.bytes = 0};
    char states[48] = "";
    advise(refusal, &advice);
    if (is->states > 0) (void)snprintf(states, sizeof states, "states %llu, ", mib(is->states));
    return err_set(
        error, ERR_LIMIT,
        "the model needs %llu MiB of the GPU's memory and may take %llu: driver %llu, "
        "weights %llu, buffers %llu, logits %llu, steps %llu, workspace %llu, %sleast KV "
        "cache %llu; %s",
        mib(is->used), mib(is->limit), mib(is->context), mib(is->weights), mib(is->activations),
        mib(is->logits), mib(is->steps), mib(is->workspace), states, mib(is->kv), advice.text);
}
