/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/text_runner_gpu.h"

#include "base/mem.h"
#include "base/min_max.h"
#include "gpu/gpu_ledger.h"
#include "gpu/gpu_program.h"
#include "gpu/plan_attention.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text_runner_gpu {
    const struct gpu_table *table;
    struct gpu *gpu;
    char name[96];
    struct kv_layout layout;
    struct program program;
    struct gpu_program gpu_program;
    struct gpu_limits limits;
    struct memory_ledger ledger;
    struct plan_attention *plan;
    uint32_t position_rows; /* rows of positions of one token type; 0: there are none */
    float *both_types; /* (2 position_rows, width) those of either type, or NULL: there is one */
    struct gpu_result result;
    uint32_t *pages;                 /* (groups, blocks of a step) 0, 1, 2, … */
    uint32_t *wanted;                /* (rows_max) */
    uint32_t *places;                /* (rows_max) */
    struct gpu_pool *pools;          /* (sequences_max) */
    struct step_sequence *sequences; /* (sequences_max) */
    uint64_t number_last, number_waited;
    uint32_t counts[GPU_STEPS_MAX]; /* texts of the steps under way */
};

/* ---- sizes ---- */

/* Blocks of a step: a text may leave the end of its last one empty. */
static uint32_t blocks_of_step(uint32_t rows, uint32_t texts) {
    return rows / GPU_PAGE_TOKENS + texts;
}

static struct plan_attention_options plan_options(const struct text_runner_gpu_options *options,
                                                  const struct gpu_program *program,
                                                  const struct kv_layout *layout,
                                                  const struct gpu_limits *limits) {
    return (struct plan_attention_options){
        .layout = layout,
        .heads = program->heads,
        .kv_heads = program->kv_heads,
        .kept_group = layout->group[options->config->layers - 1],
        .tile_rows_heads = options->table ? options->table->tile_rows_heads : 1,
        .split_tokens = options->table ? options->table->split_tokens : 1,
        .prefix_reads_min = UINT64_MAX, /* texts share no pages */
        .page_count = limits->page_count_max,
        .rows_max = limits->rows_max,
        .sequences_max = limits->sequences_max,
        .context_max = limits->context_max,
        .sees_both = options->is_bidirectional,
    };
}

struct gpu_limits text_runner_gpu_limits(const struct text_runner_gpu_options *options,
                                         const struct gpu_program *program,
                                         const struct kv_layout *layout) {
    const uint32_t asked = options->rows_max > 0 ? options->rows_max : TEXT_RUNNER_ROWS_DEFAULT;
    const uint32_t rows = asked > options->tokens_max ? asked : options->tokens_max;
    const uint32_t texts = min_u32(rows, TEXT_RUNNER_TEXTS_MAX);
    const uint32_t pages = blocks_of_step(rows, texts) * kv_layout_groups(layout);
    struct gpu_limits limits = {.rows_max = rows,
                                .logit_rows_max = options->pools_all ? rows : texts,
                                .sequences_max = texts,
                                .context_max = options->tokens_max,
                                .layer_places = 1,
                                .group_count = kv_layout_groups(layout),
                                .page_count_max = pages,
                                .page_count_min = pages,
                                .steps_max = GPU_STEPS_MAX,
                                .pages_max = pages,
                                .partials_max = 1, /* items are never cut */
                                .edits_max = 1,
                                .named_max = 1,
                                .kv_form = options->kv_form};
    const struct plan_attention_options plan = plan_options(options, program, layout, &limits);
    limits.items_max = plan_attention_sizes(&plan).items_max + 1; /* and none of a list is cut */
    return limits;
}

/* ---- steps ---- */

/* Gives the texts pages from the first one on, and the places of their rows among the positions. */
static void lay_out_step(struct text_runner_gpu *runner, const struct text_step *text) {
    const struct step *step = text->step;
    const uint32_t stride = blocks_of_step(runner->limits.rows_max, runner->limits.sequences_max);
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        struct step_sequence *sequence = &runner->sequences[i];
        *sequence = step->sequences[i];
        assert(sequence->kv_tokens == 0);
        sequence->block_count = backend_blocks_for(sequence->row_count);
        sequence->page_stride = stride;
        sequence->pages = runner->pages + blocks;
        blocks += sequence->block_count;
    }
    assert(blocks <= stride);
    const uint32_t rows = runner->position_rows; /* 1: that of the token type alone */
    for (uint32_t i = 0; rows > 0 && i < step->row_count; i++)
        runner->places[i] = (rows > 1 ? step->positions[i] : 0) +
                            (runner->both_types && text->is_second[i] ? rows : 0);
}

/* The rows that are summed are those that go on behind OP_KEEP. */
static uint32_t take_pools(struct text_runner_gpu *runner, const struct text_step *text) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < text->step->sequence_count; i++) {
        const struct step_sequence *sequence = &text->step->sequences[i];
        const struct text_pool pool = text->pools[i];
        assert(pool.count > 0 && pool.first + pool.count <= sequence->row_count);
        runner->pools[i] = (struct gpu_pool){.row = count, .rows = pool.count};
        for (uint32_t k = 0; k < pool.count; k++)
            runner->wanted[count++] = sequence->row_first + pool.first + k;
    }
    assert(count <= runner->limits.logit_rows_max);
    return count;
}

static enum err submit(void *self, const struct text_step *text, struct error *error) {
    struct text_runner_gpu *runner = self;
    struct step step = *text->step;
    assert(runner->number_last - runner->number_waited < GPU_STEPS_MAX);
    assert(step.row_count <= runner->limits.rows_max &&
           step.sequence_count <= runner->limits.sequences_max);
    lay_out_step(runner, text);
    step.sequences = runner->sequences;
    const uint32_t wanted = take_pools(runner, text);
    runner->counts[runner->number_last % GPU_STEPS_MAX] = step.sequence_count;
    const struct gpu_step to = {
        .number = ++runner->number_last,
        .row_count = step.row_count,
        .wanted_count = wanted,
        .tokens = step.tokens,
        .positions = step.positions,
        .places = runner->position_rows > 0 ? runner->places : NULL,
        .wanted = runner->wanted,
        .groups = plan_attention_step(runner->plan, &step, runner->wanted, wanted),
        .pools = runner->pools,
        .pool_count = step.sequence_count};
    return runner->table->submit(runner->gpu, &to, NULL, error);
}

static enum err wait_for_step(void *self, float *ret_sums, struct error *error) {
    struct text_runner_gpu *runner = self;
    assert(runner->number_waited < runner->number_last);
    runner->result.vectors = ret_sums;
    return runner->table->wait(runner->gpu, ++runner->number_waited, &runner->result, error);
}

/* ---- looking at it, and closing ---- */

static void describe(const void *self, struct text_runner_description *ret_description) {
    const struct text_runner_gpu *runner = self;
    *ret_description = (struct text_runner_description){.ledger = runner->ledger};
    memcpy(ret_description->name, runner->name, sizeof runner->name);
}

static void close_runner(void *self) {
    struct text_runner_gpu *runner = self;
    if (!runner) return;
    plan_attention_close(runner->plan);
    free(runner->result.tokens);
    free(runner->both_types);
    free(runner->pages);
    free(runner->wanted);
    free(runner->places);
    free(runner->pools);
    free(runner->sequences);
    gpu_program_release(&runner->gpu_program);
    program_release(&runner->program);
    free(runner);
}

/* ---- opening ---- */

/* With two token types a position has a row for each; the second ones stand behind the first. */
static void make_positions(struct text_runner_gpu *runner,
                           const struct text_runner_gpu_options *options,
                           struct program_weights *weights) {
    const size_t width = options->config->width;
    runner->position_rows = weights->positions ? weights->position_rows : 0;
    if (!options->second_type || !weights->positions) return;
    const size_t count = weights->position_rows * width;
    runner->both_types = mem_new(2 * count, sizeof *runner->both_types);
    for (size_t i = 0; i < count; i++) {
        runner->both_types[i] = weights->positions[i];
        runner->both_types[count + i] = weights->positions[i] + options->second_type[i % width];
    }
    weights->positions = runner->both_types;
    weights->position_rows *= 2;
}

static enum err prepare(struct text_runner_gpu *runner,
                        const struct text_runner_gpu_options *options, struct error *error) {
    uint32_t matrix_count;
    const struct gpu_matrix *matrices = gpu_store_matrices(options->store, &matrix_count);
    struct program_options program = {.config = options->config,
                                      .layout = &runner->layout,
                                      .weights = options->weights,
                                      .is_bidirectional = options->is_bidirectional,
                                      .pools = true};
    make_positions(runner, options, &program.weights);
    if (options->config->architecture->is_encoder)
        program_of_encoder(&runner->program, &program);
    else
        program_of(&runner->program, &program);
    gpu_program_of(&runner->gpu_program, &runner->program, matrices, matrix_count,
                   options->config->token_count);
    runner->limits = text_runner_gpu_limits(options, &runner->gpu_program, &runner->layout);
    return options->table->prepare(options->gpu, &runner->gpu_program, &runner->limits,
                                   &runner->ledger, error);
}

static enum err open_arrays(struct text_runner_gpu *runner, struct error *error) {
    const struct gpu_limits *limits = &runner->limits;
    const size_t rows = limits->rows_max, texts = limits->sequences_max;
    runner->pages = calloc(limits->pages_max, sizeof *runner->pages);
    runner->wanted = calloc(rows, sizeof *runner->wanted);
    runner->places = calloc(rows, sizeof *runner->places);
    runner->pools = calloc(texts, sizeof *runner->pools);
    runner->sequences = calloc(texts, sizeof *runner->sequences);
    runner->result.tokens = calloc(limits->logit_rows_max, sizeof *runner->result.tokens);
    if (!runner->pages || !runner->wanted || !runner->places || !runner->pools ||
        !runner->sequences || !runner->result.tokens)
        return err_set(error, ERR_LIMIT, "no memory for steps of %zu rows", rows);
    for (uint32_t i = 0; i < limits->pages_max; i++) runner->pages[i] = i;
    return OK;
}

enum err text_runner_gpu_open(struct text_runner *ret_runner,
                              const struct text_runner_gpu_options *options, struct error *error) {
    static const struct text_runner_ops ops = {
        .submit = submit, .wait = wait_for_step, .describe = describe, .close = close_runner};
    struct text_runner_gpu *runner = mem_new(1, sizeof *runner);
    runner->table = options->table;
    runner->gpu = options->gpu;
    runner->layout = kv_layout_of_texts(options->config, options->is_bidirectional);
    (void)snprintf(runner->name, sizeof runner->name, "%s", options->card->name);
    enum err err = prepare(runner, options, error);
    if (err == OK) {
        const struct plan_attention_options plan =
            plan_options(options, &runner->gpu_program, &runner->layout, &runner->limits);
        err = plan_attention_open(&runner->plan, &plan, error);
    }
    if (err == OK) err = open_arrays(runner, error);
    if (err != OK) {
        close_runner(runner);
        return err;
    }
    *ret_runner = (struct text_runner){.ops = &ops,
                                       .self = runner,
                                       .rows_max = runner->limits.rows_max,
                                       .texts_max = runner->limits.sequences_max,
                                       .steps_max = GPU_STEPS_MAX};
    return OK;
}
