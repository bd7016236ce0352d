/* SPDX-License-Identifier: Apache-2.0 */

/* Milliseconds per step of models' shapes, with random weights: 510 sequences decode at
 * contexts of 500 to 1,100 tokens and two prompts run, 1,313 rows in all; 288 tokens are shared by
 * all. Then that step sampled, beside greedy; steps of few sequences, with graphs and kernel by
 * kernel; and the time of a step against its rows. */

#include "check_plugin.h"

#include "base/rng.h"
#include "gpu/plan_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEQUENCES 512u
#define PROMPTS 2u
#define DECODES (SEQUENCES - PROMPTS)
#define ROWS 1313u
#define ROWS_MAX 2048u
#define SHARED 288u
#define SHARED_PAGES (SHARED / GPU_PAGE_TOKENS)
#define CONTEXT_LEAST 500u
#define CONTEXT_SPREAD 600u
#define SMALL_LEAST 300u /* contexts of small steps */
#define SMALL_SPREAD 800u
#define CONTEXT_MAX 2048u
#define TABLE (CONTEXT_MAX / GPU_PAGE_TOKENS)
#define BLOCK_BYTES ((size_t)32 << 20)
#define WARM_STEPS 6u
#define STEPS 40u
#define SMALL_STEPS 200u
#define SAMPLED_TURNS 5u
#define OPS_PER_LAYER 19u
#define KEY_HEADS 16u /* heads of a state, each of STATE_DIM */
#define VALUE_HEADS 32u
#define STATE_DIM 128u
#define STATE_WIDTH (VALUE_HEADS * STATE_DIM)
#define CHANNELS (2 * KEY_HEADS * STATE_DIM + STATE_WIDTH)
#define TAPS 4u
#define MATRICES_PER_LAYER 9u
#define WIDE_DIM 512u /* Gemma 4: heads of each sixth layer, which has no window */
#define WIDE_PERIOD 6u
#define WINDOW 512u
#define OWN_KEYS 24u    /* layers with keys of their own, the first ones */
#define PART_WIDTH 256u /* part of a token for each layer */
#define MATRICES_AROUND 3u

static const struct shape {
    const char *name;
    uint32_t layers, width, ffn, heads, kv_heads, head_dim, vocab;
    bool has_head_norms;
    enum gpu_form form, kv_form;
    uint32_t experts, used; /* each of width ffn; 0: none */
    bool has_states;        /* three layers of four are Gated DeltaNet, the others have a gate */
    enum gpu_form state_form;
    bool has_shared;
    bool is_gemma_4; /* E4B: layers that differ, and parts of tokens */
} shapes[] = {
    {"Llama-3.2-1B", 16, 2048, 8192, 32, 8, 64, 128256, false, GPU_BF16, GPU_BF16, 0, 0, false,
     GPU_F32, false, false},
    {"Llama-3.2-1B e4m3", 16, 2048, 8192, 32, 8, 64, 128256, false, GPU_E4M3, GPU_E4M3, 0, 0, false,
     GPU_F32, false, false},
    {"Qwen3-4B", 36, 2560, 9728, 32, 8, 128, 151936, true, GPU_BF16, GPU_BF16, 0, 0, false, GPU_F32,
     false, false},
    {"Qwen3-4B e4m3", 36, 2560, 9728, 32, 8, 128, 151936, true, GPU_E4M3, GPU_E4M3, 0, 0, false,
     GPU_F32, false, false},
    {"Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128, 128256, false, GPU_BF16, GPU_E4M3, 0, 0, false,
     GPU_F32, false, false},
    {"Llama-3.1-8B int8", 32, 4096, 14336, 32, 8, 128, 128256, false, GPU_INT8, GPU_E4M3, 0, 0,
     false, GPU_F32, false, false},
    {"30B-A3B, 12 layers", 12, 2048, 768, 32, 4, 128, 151936, true, GPU_BF16, GPU_BF16, 128, 8,
     false, GPU_F32, false, false},
    {"30B-A3B int8, 12", 12, 2048, 768, 32, 4, 128, 151936, true, GPU_INT8, GPU_E4M3, 128, 8, false,
     GPU_F32, false, false},
    {"30B-A3B e4m3, 12", 12, 2048, 768, 32, 4, 128, 151936, true, GPU_E4M3, GPU_E4M3, 128, 8, false,
     GPU_F32, false, false},
    {"Qwen3.5-4B", 32, 2560, 9216, 16, 4, 256, 248320, true, GPU_BF16, GPU_BF16, 0, 0, true,
     GPU_F32, false, false},
    {"Qwen3.5-4B bf16 states", 32, 2560, 9216, 16, 4, 256, 248320, true, GPU_BF16, GPU_BF16, 0, 0,
     true, GPU_BF16, false, false},
    {"Qwen3.5-35B-A3B, 12 layers", 12, 2048, 512, 16, 2, 256, 248320, true, GPU_BF16, GPU_BF16, 256,
     8, true, GPU_BF16, true, false},
    {"Qwen3.5-35B-A3B int8, 12", 12, 2048, 512, 16, 2, 256, 248320, true, GPU_INT8, GPU_E4M3, 256,
     8, true, GPU_BF16, true, false},
    {"Gemma-4-E4B", 42, 2560, 10240, 8, 2, 256, 262144, true, GPU_BF16, GPU_BF16, 0, 0, false,
     GPU_F32, false, true},
    {"Gemma-4-E4B int8", 42, 2560, 10240, 8, 2, 256, 262144, true, GPU_INT8, GPU_BF16, 0, 0, false,
     GPU_F32, false, true},
};

struct bench {
    const struct gpu_table *table;
    const struct shape *shape;
    struct gpu *gpu;
    struct gpu_matrix *matrices;
    struct gpu_op *ops;
    float *vector, *frequencies[2];
    struct gpu_program program;
    struct gpu_limits limits;
    struct plan_attention *plan;
    uint16_t *block; /* random weights, repeated */
    float *small;    /* (TAPS · CHANNELS) vectors of states */
    struct gpu_state_item states[SEQUENCES];
    struct step step;
    struct step_sequence sequences[SEQUENCES];
    uint32_t tables[SEQUENCES][TABLE];
    uint32_t page_count;
    int32_t tokens[ROWS_MAX];
    uint32_t positions[ROWS_MAX], slots[ROWS_MAX], wanted[SEQUENCES], rows[SEQUENCES];
    struct gpu_draw draws[SEQUENCES];
    struct gpu_step gpu_step;
    struct gpu_samples samples;
    double host_s;   /* time in which steps were planned and submitted */
    double submit_s; /* time until the call returned */
};

/* What a GPU is opened for. */
enum mode { MODE_STEPS, MODE_MEASURED, MODE_NO_GRAPHS, MODES };
static const char *const mode_names[MODES] = {"", "", " without graphs"};

static const char *const kinds[OP_KINDS] = {
    "embed", "norm",    "products", "heads",   "attention", "gate",       "keep",   "logits",
    "route", "experts", "prepare",  "conv",    "delta",     "gated norm", "inputs", "aside",
    "join",  "mamba",   "line",     "queries", "latent",    "values",     "sum",    "pool"};

/* ---- the program ---- */

static struct gpu_op *append(struct bench *bench, enum op_kind kind, uint32_t matrix,
                             uint32_t next) {
    struct gpu_op *op = &bench->ops[bench->program.op_count++];
    *op = (struct gpu_op){.kind = kind, .matrix = matrix, .next = next};
    return op;
}

static void append_norm(struct bench *bench, uint32_t next, bool is_first) {
    struct gpu_op *op = append(bench, OP_NORM, GPU_NONE, next);
    op->weight = bench->vector;
    op->add = is_first ? ADD_NOTHING : ADD_H;
    if (!bench->shape->is_gemma_4 || is_first) return;
    op->add = ADD_NORMED_H;
    op->post = bench->vector;
    op->x_scale = 0.9f;
}

static uint32_t add_matrix(struct bench *bench, uint32_t rows, uint32_t cols, enum gpu_form form) {
    bench->matrices[bench->program.matrix_count] =
        (struct gpu_matrix){.rows = rows, .cols = cols, .form = form};
    return bench->program.matrix_count++;
}

static void append_gated(struct bench *bench) {
    const struct shape *s = bench->shape;
    const uint32_t gate_up = add_matrix(bench, 2 * s->ffn, s->width, s->form);
    const uint32_t down = add_matrix(bench, s->width, s->ffn, s->form);
    append_norm(bench, gate_up, false);
    append(bench, OP_MATMUL, gate_up, GPU_NONE)->to = TO_WIDE;
    append(bench, OP_GATE, GPU_NONE, down)->width = s->ffn;
    append(bench, OP_MATMUL, down, GPU_NONE)->to = TO_H;
}

/* All layers' parts of the tokens. */
static void append_inputs(struct bench *bench, struct gpu_op *embed) {
    const struct shape *s = bench->shape;
    const uint32_t all = s->layers * PART_WIDTH;
    if (!s->is_gemma_4) return;
    const uint32_t table = add_matrix(bench, s->vocab, all, GPU_BF16);
    const uint32_t projection = add_matrix(bench, all, s->width, s->form);
    embed->next = projection;
    append(bench, OP_MATMUL, projection, GPU_NONE)->to = TO_INPUTS;
    struct gpu_op *inputs = append(bench, OP_INPUTS, table, GPU_NONE);
    inputs->weight = bench->vector;
    inputs->width = PART_WIDTH;
    inputs->scale = 16;
    bench->program.input_width = PART_WIDTH;
    bench->program.input_layers = s->layers;
}

/* The layer's part of the token. */
static void append_part(struct bench *bench, uint32_t layer) {
    const struct shape *s = bench->shape;
    const uint32_t in = add_matrix(bench, PART_WIDTH, s->width, s->form);
    const uint32_t out = add_matrix(bench, s->width, PART_WIDTH, s->form);
    append_norm(bench, in, false);
    bench->ops[bench->program.op_count - 1].weight = NULL;
    append(bench, OP_MATMUL, in, GPU_NONE)->to = TO_WIDE;
    struct gpu_op *gate = append(bench, OP_GATE, GPU_NONE, out);
    gate->gate = GATE_GELU_TANH;
    gate->layer = layer;
    gate->width = PART_WIDTH;
    gate->gates_inputs = true;
    append(bench, OP_MATMUL, out, GPU_NONE)->to = TO_H;
}

/* A shared expert as wide as one of the others, with a factor. */
static void append_shared(struct bench *bench, uint32_t factor, uint32_t router) {
    const struct shape *s = bench->shape;
    const uint32_t gate_up = add_matrix(bench, 2 * s->ffn, s->width, s->form);
    const uint32_t down = add_matrix(bench, s->width, s->ffn, s->form);
    append(bench, OP_MATMUL, factor, GPU_NONE)->to = TO_NARROW;
    (void)append(bench, OP_PREPARE, GPU_NONE, gate_up);
    append(bench, OP_MATMUL, gate_up, GPU_NONE)->to = TO_WIDE;
    append(bench, OP_GATE, GPU_NONE, down)->width = s->ffn;
    append(bench, OP_MATMUL, down, GPU_NONE)->to = TO_SHARED;
    (void)append(bench, OP_PREPARE, GPU_NONE, router);
}

static void append_experts(struct bench *bench) {
    const struct shape *s = bench->shape;
    const uint32_t router = add_matrix(bench, s->experts, s->width, GPU_BF16);
    const uint32_t factor = s->has_shared ? add_matrix(bench, 1, s->width, GPU_BF16) : router;
    const struct gpu_experts experts = {
        .count = s->experts,
        .used = s->used,
        .ffn = s->ffn,
        .sums_to_one = true,
        .has_shared = s->has_shared,
        .shared_is_scaled = s->has_shared,
        .gate_up = add_matrix(bench, s->experts * 2 * s->ffn, s->width, s->form),
        .down = add_matrix(bench, s->experts * s->width, s->ffn, s->form)};
    append_norm(bench, factor, false);
    if (s->has_shared) append_shared(bench, factor, router);
    append(bench, OP_MATMUL, router, GPU_NONE)->to = TO_WIDE;
    append(bench, OP_ROUTE, GPU_NONE, experts.gate_up)->experts = experts;
    struct gpu_op *op = append(bench, OP_EXPERTS, GPU_NONE, GPU_NONE);
    op->experts = experts;
    op->to = TO_H;
}

static bool is_recurrent(const struct shape *shape, uint32_t layer) {
    return shape->has_states && layer % 4 != 3;
}

static void append_state(struct bench *bench, uint32_t layer) {
    const struct shape *s = bench->shape;
    const uint32_t in = add_matrix(bench, CHANNELS + STATE_WIDTH, s->width, s->form);
    const uint32_t rates = add_matrix(bench, 2 * VALUE_HEADS, s->width, GPU_BF16);
    const uint32_t output = add_matrix(bench, s->width, STATE_WIDTH, s->form);
    const struct gpu_recurrent vectors = {.place = layer - layer / 4,
                                          .conv = bench->small,
                                          .decay = bench->small,
                                          .step_bias = bench->small,
                                          .norm = bench->vector};
    append_norm(bench, rates, layer == 0);
    append(bench, OP_MATMUL, rates, GPU_NONE)->to = TO_NARROW;
    (void)append(bench, OP_PREPARE, GPU_NONE, in);
    append(bench, OP_MATMUL, in, GPU_NONE)->to = TO_WIDE;
    append(bench, OP_CONV, GPU_NONE, GPU_NONE)->recurrent = vectors;
    append(bench, OP_DELTA, GPU_NONE, GPU_NONE)->recurrent = vectors;
    append(bench, OP_GATED_NORM, GPU_NONE, output)->recurrent = vectors;
    append(bench, OP_MATMUL, output, GPU_NONE)->to = TO_H;
}

static void append_attention(struct bench *bench, uint32_t layer) {
    const struct shape *s = bench->shape;
    const bool is_wide = s->is_gemma_4 && layer % WIDE_PERIOD == WIDE_PERIOD - 1;
    const bool is_query_only = s->is_gemma_4 && layer >= OWN_KEYS;
    const uint32_t dim = is_wide ? WIDE_DIM : s->head_dim, q_width = s->heads * dim;
    const uint32_t gate = s->has_states ? q_width : 0;
    const uint32_t place = s->has_states   ? layer / 4
                           : is_query_only ? OWN_KEYS - (is_wide ? 1 : 2)
                                           : layer;
    uint32_t qkv = add_matrix(bench, q_width + gate + (is_query_only ? 0 : 2 * s->kv_heads * dim),
                              s->width, s->form);
    uint32_t output = add_matrix(bench, s->width, q_width, s->form);
    append_norm(bench, qkv, layer == 0);
    append(bench, OP_MATMUL, qkv, GPU_NONE)->to = TO_WIDE;
    struct gpu_op *heads = append(bench, OP_HEADS, GPU_NONE, GPU_NONE);
    heads->q_norm = heads->k_norm = s->has_head_norms ? bench->vector : NULL;
    heads->kv_place = place;
    heads->head_dim = dim;
    heads->rope = s->is_gemma_4 && !is_wide;
    heads->norms_v = s->is_gemma_4;
    heads->is_query_only = is_query_only;
    if (layer == s->layers - 1) (void)append(bench, OP_KEEP, GPU_NONE, GPU_NONE);
    struct gpu_op *attention = append(bench, OP_ATTENTION, GPU_NONE, output);
    attention->kv_place = place;
    attention->is_gated = s->has_states;
    attention->head_dim = dim;
    attention->window = s->is_gemma_4 && !is_wide ? WINDOW : 0;
    attention->scale = 1.0f / sqrtf((float)dim);
    append(bench, OP_MATMUL, output, GPU_NONE)->to = TO_H;
}

static void append_layer(struct bench *bench, uint32_t layer) {
    const struct shape *s = bench->shape;
    (is_recurrent(s, layer) ? append_state : append_attention)(bench, layer);
    if (s->experts > 0)
        append_experts(bench);
    else
        append_gated(bench);
    if (s->is_gemma_4) append_part(bench, layer);
}

/* Those of the widest heads, then of the others. */
static void make_frequencies(struct bench *bench) {
    const struct shape *s = bench->shape;
    const uint32_t dims[2] = {s->is_gemma_4 ? WIDE_DIM : s->head_dim, s->head_dim};
    for (int t = 0; t < 2; t++) {
        bench->frequencies[t] = calloc(dims[t] / 2, sizeof *bench->frequencies[t]);
        for (uint32_t i = 0; i < dims[t] / 2; i++)
            bench->frequencies[t][i] = powf(500000.0f, -2.0f * (float)i / (float)dims[t]);
        bench->program.rotary_dim[t] = s->has_states ? dims[t] / 4 : dims[t];
        bench->program.frequencies[t] = bench->frequencies[t];
    }
    bench->program.rope_count = s->is_gemma_4 ? 2 : 1;
}

static void make_program(struct bench *bench) {
    const struct shape *s = bench->shape;
    bench->matrices =
        calloc(MATRICES_AROUND + MATRICES_PER_LAYER * s->layers, sizeof *bench->matrices);
    bench->ops = calloc(6 + OPS_PER_LAYER * s->layers, sizeof *bench->ops);
    bench->vector = calloc(s->width, sizeof *bench->vector);
    bench->small = calloc(TAPS * CHANNELS, sizeof *bench->small);
    for (uint32_t i = 0; i < TAPS * CHANNELS; i++) bench->small[i] = -0.3f;
    for (uint32_t i = 0; i < s->width; i++) bench->vector[i] = 1.0f;
    make_frequencies(bench);
    uint32_t embedding = add_matrix(bench, s->vocab, s->width, GPU_BF16);
    struct gpu_op *embed = append(bench, OP_EMBED, embedding, GPU_NONE);
    embed->scale = 1.0f;
    append_inputs(bench, embed);
    for (uint32_t i = 0; i < s->layers; i++) append_layer(bench, i);
    append_norm(bench, embedding, false);
    (void)append(bench, OP_LOGITS, embedding, GPU_NONE);
    struct gpu_program *program = &bench->program;
    program->matrices = bench->matrices;
    program->ops = bench->ops;
    program->width = s->width;
    program->ffn = s->ffn;
    program->heads = s->heads;
    program->kv_heads = s->kv_heads;
    program->head_dim = s->is_gemma_4 ? WIDE_DIM : s->head_dim;
    program->kv_width = s->kv_heads * program->head_dim;
    program->vocab_rows = program->vocab = s->vocab;
    program->eps = 1e-5f;
    if (s->has_states)
        program->recurrent = (struct gpu_recurrent_sizes){.layers = s->layers / 4 * 3,
                                                          .taps = TAPS,
                                                          .channels = CHANNELS,
                                                          .width = STATE_WIDTH,
                                                          .key_heads = KEY_HEADS,
                                                          .value_heads = VALUE_HEADS,
                                                          .key_dim = STATE_DIM,
                                                          .value_dim = STATE_DIM,
                                                          .eps = 1e-6f};
}

/* ---- the step ---- */

static void set_sequence(struct bench *bench, uint32_t index, uint32_t known, uint32_t rows) {
    struct step_sequence *sequence = &bench->sequences[index];
    uint32_t first = bench->step.row_count, pages = (known + rows - 1) / GPU_PAGE_TOKENS + 1;
    for (uint32_t i = 0; i < pages; i++)
        bench->tables[index][i] = i < SHARED_PAGES ? i : bench->page_count++;
    *sequence = (struct step_sequence){.slot = index,
                                       .row_first = first,
                                       .row_count = rows,
                                       .kv_tokens = known,
                                       .block_count = pages,
                                       .page_stride = TABLE,
                                       .pages = bench->tables[index]};
    bench->states[index] = (struct gpu_state_item){.row = first,
                                                   .rows = rows,
                                                   .from = rows > 1 ? GPU_NONE : index,
                                                   .to = index,
                                                   .save = GPU_NONE};
    for (uint32_t i = 0; i < rows; i++) {
        bench->tokens[first + i] = (int32_t)((first + i) * 7919u % bench->shape->vocab);
        bench->positions[first + i] = known + i;
    }
    bench->step.row_count += rows;
    bench->wanted[index] = bench->step.row_count - 1;
    bench->rows[index] = index;
    bench->draws[index] = (struct gpu_draw){.mask = -1, .slot = (int32_t)index};
}

static void begin_step(struct bench *bench, uint32_t sequences) {
    bench->page_count = SHARED_PAGES;
    bench->step = (struct step){.sequence_count = sequences,
                                .tokens = bench->tokens,
                                .positions = bench->positions,
                                .sequences = bench->sequences};
}

/* Decode alone, in pages that the larger step has used. */
static void make_small_step(struct bench *bench, uint32_t sequences) {
    begin_step(bench, sequences);
    for (uint32_t i = 0; i < sequences; i++)
        set_sequence(bench, i, SMALL_LEAST + i * SMALL_SPREAD / sequences, 1);
}

/* Steps of prompts alone, by the GPU's own trials: the time of a step against its rows. */
static void run_trials(struct bench *bench) {
    struct error error = {0};
    (void)printf("%-18s ms per made-up step of rows:", bench->shape->name);
    for (uint32_t rows = 256; rows <= ROWS_MAX; rows += 256) {
        uint64_t ns = 0, least = UINT64_MAX;
        for (int i = 0; i < 5; i++) {
            must(bench->table->trial(bench->gpu, rows, &ns, &error), &error, "trial");
            if (ns < least) least = ns;
        }
        (void)printf(" %u %.2f", rows, (double)least / 1e6);
    }
    (void)printf("\n");
}

static void make_step(struct bench *bench) {
    begin_step(bench, SEQUENCES);
    for (uint32_t i = 0; i < DECODES; i++)
        set_sequence(bench, i, CONTEXT_LEAST + i * CONTEXT_SPREAD / DECODES, 1);
    for (uint32_t i = DECODES; i < SEQUENCES; i++) {
        uint32_t left = ROWS - bench->step.row_count;
        set_sequence(bench, i, SHARED, left / (SEQUENCES - i));
    }
}

/* ---- the GPU ---- */

static uint16_t *random_block(void) {
    uint16_t *block = malloc(BLOCK_BYTES);
    struct rng rng = {1};
    for (size_t i = 0; i < BLOCK_BYTES / sizeof *block; i += 4) {
        uint64_t bits = rng_next(&rng);
        for (int k = 0; k < 4; k++, bits >>= 16)
            block[i + (size_t)k] = bf16_from_f32(((float)(bits & 0xffff) / 32768.0f - 1) * 0.035f);
    }
    return block;
}

static void fill(struct bench *bench) {
    struct error error = {0};
    for (uint32_t i = 0; i < bench->program.matrix_count; i++) {
        const struct gpu_matrix *matrix = &bench->matrices[i];
        uint32_t each = (uint32_t)(BLOCK_BYTES / (matrix->cols * sizeof *bench->block));
        for (uint32_t first = 0; first < matrix->rows; first += each) {
            struct gpu_rows rows = {.matrix = i,
                                    .row_first = first,
                                    .rows =
                                        matrix->rows - first < each ? matrix->rows - first : each,
                                    .type = TENSOR_BF16,
                                    .blocks = bench->block};
            must(bench->table->fill(bench->gpu, &rows, &error), &error, "fill");
        }
    }
}

static double seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void open_gpu(struct bench *bench, const struct gpu_info *card, enum mode mode) {
    const struct shape *s = bench->shape;
    struct error error = {0};
    struct memory_ledger ledger;
    const uint32_t places = s->has_states ? s->layers / 4 : s->is_gemma_4 ? OWN_KEYS : s->layers;
    struct kv_layout layout = {.layers_each = places, .full_groups = 1};
    struct plan_attention_options options = {.layout = &layout,
                                             .heads = s->heads,
                                             .kv_heads = s->kv_heads,
                                             .tile_rows_heads = bench->table->tile_rows_heads,
                                             .split_tokens = bench->table->split_tokens,
                                             .prefix_reads_min = bench->table->prefix_reads_min,
                                             .multiprocessors = card->multiprocessors,
                                             .page_count = bench->page_count,
                                             .rows_max = ROWS_MAX,
                                             .sequences_max = SEQUENCES,
                                             .context_max = CONTEXT_MAX};
    struct plan_attention_sizes sizes = plan_attention_sizes(&options);
    bench->limits = (struct gpu_limits){.rows_max = ROWS_MAX,
                                        .logit_rows_max = ROWS_MAX / 2,
                                        .sequences_max = SEQUENCES,
                                        .context_max = CONTEXT_MAX,
                                        .layer_places = places,
                                        .group_count = 1,
                                        .page_count_max = bench->page_count,
                                        .page_count_min = bench->page_count,
                                        .steps_max = 2,
                                        .pages_max = sizes.pages_max,
                                        .items_max = sizes.items_max,
                                        .partials_max = sizes.partials_max,
                                        .edits_max = 1024,
                                        .named_max = 16,
                                        .kv_form = s->kv_form,
                                        .state_places = s->has_states ? SEQUENCES : 0,
                                        .state_form = s->state_form};
    double begin = seconds();
    must(plan_attention_open(&bench->plan, &options, &error), &error, "plan");
    open_checked(bench->table,
                 (struct gpu_options){.memory_bytes = card->memory_bytes / 20 * 19,
                                      .measures_ops = mode == MODE_MEASURED,
                                      .has_no_graphs = mode == MODE_NO_GRAPHS},
                 &bench->gpu);
    double opened = seconds();
    must(bench->table->prepare(bench->gpu, &bench->program, &bench->limits, &ledger, &error),
         &error, "prepare");
    double prepared = seconds();
    fill(bench);
    double filled = seconds();
    must(bench->table->warm(bench->gpu, &error), &error, "warm");
    if (mode == MODE_MEASURED) return;
    (void)printf(
        "# %s%s: open %.2f s, prepare %.2f, fill %.2f, warm %.2f; MiB: context %llu, weights "
        "%llu, buffers %llu, logits %llu, steps %llu, workspace %llu, KV %llu\n",
        s->name, mode_names[mode], opened - begin, prepared - opened, filled - prepared,
        seconds() - filled, (unsigned long long)ledger.context >> 20,
        (unsigned long long)ledger.weights >> 20, (unsigned long long)ledger.activations >> 20,
        (unsigned long long)ledger.logits >> 20, (unsigned long long)ledger.steps >> 20,
        (unsigned long long)ledger.workspace >> 20, (unsigned long long)ledger.kv >> 20);
}

/* ---- steps ---- */

/* Gives every slot a key and a value: steps of rows without attention. */
static void write_cache(struct bench *bench) {
    const uint32_t slots = bench->page_count * GPU_PAGE_TOKENS;
    struct error error = {0};
    struct gpu_result result = {0};
    struct gpu_group group = {.slots = bench->slots};
    struct gpu_step step = {
        .tokens = bench->tokens, .positions = bench->positions, .groups = &group, .number = 1};
    struct gpu_state_item item = {.from = GPU_NONE, .save = GPU_NONE};
    if (bench->shape->has_states) step.states = &item, step.state_count = 1;
    for (uint32_t first = 0; first < slots; first += step.row_count, step.number++) {
        step.row_count = slots - first < ROWS ? slots - first : ROWS;
        for (uint32_t i = 0; i < step.row_count; i++) bench->slots[i] = first + i;
        item.rows = step.row_count;
        must(bench->table->submit(bench->gpu, &step, NULL, &error), &error, "submit");
        must(bench->table->wait(bench->gpu, step.number, &result, &error), &error, "wait");
    }
}

static void submit(struct bench *bench, uint64_t number) {
    const uint32_t sequences = bench->step.sequence_count;
    struct error error = {0};
    double begin = seconds();
    const struct gpu_group *groups =
        plan_attention_step(bench->plan, &bench->step, bench->wanted, sequences);
    bench->gpu_step = (struct gpu_step){.number = number,
                                        .row_count = bench->step.row_count,
                                        .wanted_count = sequences,
                                        .tokens = bench->tokens,
                                        .positions = bench->positions,
                                        .wanted = bench->wanted,
                                        .state_count = bench->shape->has_states ? sequences : 0,
                                        .states = bench->states,
                                        .groups = groups};
    bench->samples = (struct gpu_samples){.number = number,
                                          .count = sequences,
                                          .rows = bench->rows,
                                          .draws = bench->draws,
                                          .mask_words = (bench->shape->vocab + 31) / 32};
    double planned = seconds();
    must(bench->table->submit(bench->gpu, &bench->gpu_step, &bench->samples, &error), &error,
         "submit");
    bench->submit_s += seconds() - planned;
    bench->host_s += seconds() - begin;
}

/* Steps with two under way; the tokens of the last one. */
static void run(struct bench *bench, uint64_t first, uint32_t count, int32_t *ret_tokens) {
    struct error error = {0};
    struct gpu_result result = {.tokens = ret_tokens};
    bench->host_s = bench->submit_s = 0;
    for (uint32_t i = 0; i <= count; i++) {
        if (i < count) submit(bench, first + i);
        if (i > 0)
            must(bench->table->wait(bench->gpu, first + i - 1, &result, &error), &error, "wait");
    }
    if (result.nonfinite_rows > 0)
        (void)printf("# %u rows have logits that are no numbers\n", result.nonfinite_rows);
}

/* Steps of few sequences. */
static void run_small(struct bench *bench, enum mode mode) {
    static const uint32_t counts[] = {8, 64, 128};
    int32_t tokens[SEQUENCES];
    struct gpu_counters before, after;
    struct error error = {0};
    uint64_t number = 300000;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++, number += 10000) {
        make_small_step(bench, counts[i]);
        run(bench, number, WARM_STEPS, tokens);
        must(bench->table->counters(bench->gpu, &before, &error), &error, "counters");
        double begin = seconds();
        run(bench, number + 1000, SMALL_STEPS, tokens);
        double wall = seconds() - begin;
        must(bench->table->counters(bench->gpu, &after, &error), &error, "counters");
        (void)printf("%-18s %.3f ms per step of %u sequences%s, the GPU busy %.3f ms, submit "
                     "%.0f us; %llu of %u steps were graphs\n",
                     bench->shape->name, 1e3 * wall / SMALL_STEPS, counts[i], mode_names[mode],
                     (double)(after.busy_ns - before.busy_ns) / 1e6 / SMALL_STEPS,
                     1e6 * bench->submit_s / SMALL_STEPS,
                     (unsigned long long)(after.graph_steps - before.graph_steps), SMALL_STEPS);
    }
    if (mode != MODE_NO_GRAPHS)
        (void)printf("# %s: %u graphs take %llu KiB of the GPU's memory%s%s\n", bench->shape->name,
                     after.graphs, (unsigned long long)after.graph_bytes >> 10,
                     after.graph_refusal ? "; " : "",
                     after.graph_refusal ? after.graph_refusal : "");
}

static void print_ops(struct bench *bench, const struct gpu_counters *counters) {
    uint64_t sum = 0;
    for (int i = 0; i < OP_KINDS; i++) sum += counters->op_ns[i];
    (void)printf("%-18s measured %.2f ms:", bench->shape->name,
                 (double)sum / 1e6 / (double)counters->steps);
    for (int i = 0; i < OP_KINDS; i++)
        (void)printf(" %s %.2f (%.0f %%)", kinds[i],
                     (double)counters->op_ns[i] / 1e6 / (double)counters->steps,
                     100.0 * (double)counters->op_ns[i] / (double)(sum ? sum : 1));
    (void)printf("\n");
}

/* The step of 1,313 rows. */
static void run_large(struct bench *bench, enum mode mode) {
    struct gpu_counters before, after;
    struct error error = {0};
    int32_t tokens[SEQUENCES];
    run(bench, 100000, WARM_STEPS, tokens);
    must(bench->table->counters(bench->gpu, &before, &error), &error, "counters");
    double begin = seconds();
    run(bench, 200000, STEPS, tokens);
    double wall = seconds() - begin;
    must(bench->table->counters(bench->gpu, &after, &error), &error, "counters");
    const struct gpu_attention *all = &bench->gpu_step.groups[0].all;
    if (mode == MODE_MEASURED) {
        for (int i = 0; i < OP_KINDS; i++) after.op_ns[i] -= before.op_ns[i];
        after.steps -= before.steps;
        print_ops(bench, &after);
        return;
    }
    (void)printf("%-18s %.3f ms per step of %u rows%s, the GPU busy %.3f ms, the host %.3f us per "
                 "row; %llu of %u steps were graphs; items: %u prefix, %u tiles, %u decode\n",
                 bench->shape->name, 1e3 * wall / STEPS, bench->step.row_count, mode_names[mode],
                 (double)(after.busy_ns - before.busy_ns) / 1e6 / STEPS,
                 1e6 * bench->host_s / STEPS / bench->step.row_count,
                 (unsigned long long)(after.graph_steps - before.graph_steps), STEPS,
                 all->prefixes.count, all->tiles.count, all->decode_count);
}

/* The step of 1,313 rows, greedy and sampled by turns. */
static void run_sampled(struct bench *bench) {
    int32_t tokens[SEQUENCES];
    struct gpu_counters before, after;
    struct error error = {0};
    double ms[2] = {0, 0}; /* greedy, sampled */
    for (uint32_t turn = 0; turn < 2 * SAMPLED_TURNS; turn++) {
        const bool is_sampled = turn % 2;
        const uint64_t number = 500000 + turn * 10000;
        for (uint32_t i = 0; i < SEQUENCES; i++)
            bench->draws[i] = (struct gpu_draw){.seed = number + i,
                                                .factor = is_sampled ? 1 / 0.7f : 0,
                                                .offset = -INFINITY,
                                                .top_p = 0.9f,
                                                .mask = -1,
                                                .slot = (int32_t)i};
        run(bench, number, WARM_STEPS, tokens);
        must(bench->table->counters(bench->gpu, &before, &error), &error, "counters");
        run(bench, number + 1000, STEPS, tokens);
        must(bench->table->counters(bench->gpu, &after, &error), &error, "counters");
        ms[is_sampled] += (double)(after.busy_ns - before.busy_ns) / 1e6 / (SAMPLED_TURNS * STEPS);
    }
    (void)printf(
        "%-18s measured by turns: %.3f ms of the GPU per sampled step, %.3f per greedy one, "
        "%.2f us per sampled row\n",
        bench->shape->name, ms[1], ms[0], 1e3 * (ms[1] - ms[0]) / SEQUENCES);
}

static void bench_shape(const struct gpu_table *table, const struct shape *shape,
                        const struct gpu_info *card, uint16_t *block, enum mode mode) {
    struct bench *bench = calloc(1, sizeof *bench);
    *bench = (struct bench){.table = table, .shape = shape, .block = block};
    make_program(bench);
    make_step(bench);
    open_gpu(bench, card, mode);
    if (mode == MODE_STEPS) run_trials(bench);
    write_cache(bench);
    run_large(bench, mode);
    if (mode == MODE_STEPS) run_sampled(bench);
    if (mode != MODE_MEASURED) run_small(bench, mode);
    (void)fflush(stdout);
    table->close(bench->gpu);
    plan_attention_close(bench->plan);
    free(bench->matrices);
    free(bench->ops);
    free(bench->vector);
    free(bench->small);
    for (int t = 0; t < 2; t++) free(bench->frequencies[t]);
    free(bench);
}

void bench_gpu(const struct gpu_table *table, const char *name) {
    struct gpu_info cards[8];
    struct error error = {0};
    uint32_t count;
    must(table->list(cards, 8, &count, &error), &error, "list");
    (void)printf("# %s, %s, %u multiprocessors, %llu MiB\n", table->kind, cards[0].name,
                 cards[0].multiprocessors, (unsigned long long)cards[0].memory_bytes >> 20);
    uint16_t *block = random_block();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int mode = 0; mode < MODES && strncmp(shapes[i].name, name, strlen(name)) == 0; mode++)
            bench_shape(table, &shapes[i], &cards[0], block, (enum mode)mode);
    free(block);
}
