/* SPDX-License-Identifier: Apache-2.0 */
#include "device/executor_device.h"

#include "base/mem.h"
#include "device/device_ledger.h"
#include "device/device_program.h"
#include "device/device_sampling.h"
#include "program/plan_attention.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Positions that the cache has room for at least, or the whole context if that is less. */
#define CONTEXT_LEAST 4096u
/* Tokens of the cache per sequence that the default of sequences_max leaves, and its least value:
 * fewer sequences than 32 leave a device idle. */
#define SEQUENCE_TOKENS 512u
#define SEQUENCES_LEAST 32u

/* A step under way. */
struct flight {
    uint64_t number;        /* the scheduler's */
    uint64_t device_number; /* ascends over all steps, also those of `logits` */
    struct device_record record;
};

struct executor_device {
    const struct device_table *table;
    struct device *device;
    char name[96];
    uint32_t vocab_rows;
    enum device_form kv_form;
    uint32_t group_count;
    struct program program;
    struct device_program device_program;
    struct device_limits limits;
    struct device_ledger ledger;
    struct backend_caps caps;
    struct plan_attention *plan;
    struct device_sampling *sampling;
    struct device_result result;
    uint32_t *wanted;  /* (logit_rows_max) */
    float *logits_row; /* (vocab_rows) */
    uint64_t number_last;
    struct flight flights[DEVICE_STEPS_MAX];
    uint32_t flight_first;
    uint32_t flight_count;
};

/* ---- steps ---- */

/* The step `index` behind the oldest one. */
static struct flight *flight_at(struct executor_device *executor, uint32_t index) {
    return &executor->flights[(executor->flight_first + index) % executor->caps.steps_max];
}

/* Starts a step whose wanted rows are executor->wanted. */
static enum err submit_step(struct executor_device *executor, const struct step *step,
                            uint32_t wanted_count, const struct device_samples *samples,
                            struct error *error) {
    const struct device_step to = {
        .number = executor->number_last,
        .row_count = step->row_count,
        .wanted_count = wanted_count,
        .tokens = step->tokens,
        .positions = step->positions,
        .wanted = executor->wanted,
        .groups = plan_attention_step(executor->plan, step, executor->wanted, wanted_count)};
    return executor->table->submit(executor->device, &to, samples, error);
}

/* Draws the rows of the step submitted last that a call before had no room for. */
static enum err sample_others(struct executor_device *executor, struct error *error) {
    enum err err = OK;
    for (const struct device_samples *samples;
         err == OK && (samples = device_sampling_more(executor->sampling)) != NULL;)
        err = executor->table->sample(executor->device, samples, error);
    return err;
}

static enum err submit(void *self, const struct step *step, struct error *error) {
    struct executor_device *executor = self;
    assert(executor->flight_count < executor->caps.steps_max);
    assert(step->logit_count <= executor->limits.logit_rows_max);
    struct flight *flight = flight_at(executor, executor->flight_count);
    flight->number = step->number;
    flight->device_number = ++executor->number_last;
    for (uint32_t i = 0; i < step->logit_count; i++) executor->wanted[i] = step->logit_rows[i].row;
    const struct device_samples *samples =
        device_sampling_begin(executor->sampling, &flight->record, step, flight->device_number);
    executor->flight_count++;
    enum err err = submit_step(executor, step, step->logit_count, samples, error);
    return err == OK ? sample_others(executor, error) : err;
}

static enum err sample_late(void *self, uint64_t number, const struct logit_row *rows,
                            uint32_t count, struct error *error) {
    struct executor_device *executor = self;
    assert(executor->flight_count > 0);
    struct flight *flight = flight_at(executor, executor->flight_count - 1);
    assert(flight->number == number);
    const struct device_samples *samples = device_sampling_late(executor->sampling, &flight->record,
                                                                rows, count, flight->device_number);
    if (!samples) return OK;
    enum err err = executor->table->sample(executor->device, samples, error);
    return err == OK ? sample_others(executor, error) : err;
}

static enum err wait_for_step(void *self, struct step_result *result, struct error *error) {
    struct executor_device *executor = self;
    assert(executor->flight_count > 0);
    struct flight *flight = flight_at(executor, 0);
    enum err err =
        executor->table->wait(executor->device, flight->device_number, &executor->result, error);
    if (err == OK) device_sampling_answer(&flight->record, &executor->result, result->samples);
    executor->flight_first = (executor->flight_first + 1) % executor->caps.steps_max;
    executor->flight_count--;
    return err;
}

static const struct backend_ops one_step_ops = {.submit = submit, .wait = wait_for_step};
static const struct backend_ops two_steps_ops = {
    .submit = submit, .sample = sample_late, .wait = wait_for_step};

/* ---- logits ---- */

static enum err copy_logits(struct executor_device *executor, uint32_t count, float *ret_logits,
                            struct error *error) {
    const struct device_table *table = executor->table;
    const uint32_t vocab = executor->caps.vocab;
    if (vocab == executor->vocab_rows)
        return table->logits(executor->device, 0, count, ret_logits, error);
    enum err err = OK;
    for (uint32_t i = 0; i < count && err == OK; i++, ret_logits += vocab) {
        err = table->logits(executor->device, i, 1, executor->logits_row, error);
        if (err == OK) memcpy(ret_logits, executor->logits_row, vocab * sizeof *ret_logits);
    }
    return err;
}

/* Runs the step as often as its logits have parts: it writes the same keys each time. */
static enum err run_for_logits(void *self, const struct step *step, float *ret_logits,
                               struct error *error) {
    struct executor_device *executor = self;
    assert(executor->flight_count == 0);
    uint32_t done = 0;
    enum err err = OK;
    do {
        uint32_t count = step->logit_count - done;
        if (count > executor->limits.logit_rows_max) count = executor->limits.logit_rows_max;
        for (uint32_t i = 0; i < count; i++) executor->wanted[i] = step->logit_rows[done + i].row;
        executor->number_last++;
        err = submit_step(executor, step, count, NULL, error);
        if (err == OK)
            err = executor->table->wait(executor->device, executor->number_last, &executor->result,
                                        error);
        if (err == OK && count > 0)
            err = copy_logits(executor, count, ret_logits + (size_t)done * executor->caps.vocab,
                              error);
        done += count;
    } while (err == OK && done < step->logit_count);
    return err;
}

/* ---- looking at it, and closing ---- */

static const char *form_name(enum device_form form) {
    switch (form) {
    case DEVICE_F32: return "F32";
    case DEVICE_BF16: return "BF16";
    case DEVICE_E4M3: return "E4M3";
    case DEVICE_INT8: return "INT8";
    }
    return "";
}

static void describe(const void *self, struct executor_description *ret_description) {
    const struct executor_device *executor = self;
    const struct device_ledger *ledger = &executor->ledger;
    *ret_description = (struct executor_description){
        .kv_type = form_name(executor->kv_form),
        .kv_bytes_per_token = ledger->page_bytes * executor->group_count / DEVICE_PAGE_TOKENS,
        .kv_bytes = ledger->kv,
        .device_bytes = ledger->used};
    memcpy(ret_description->name, executor->name, sizeof executor->name);
}

static void close_executor(void *self) {
    struct executor_device *executor = self;
    if (!executor) return;
    for (uint32_t i = 0; i < DEVICE_STEPS_MAX; i++)
        device_record_close(&executor->flights[i].record);
    device_sampling_close(executor->sampling);
    plan_attention_close(executor->plan);
    free(executor->result.tokens);
    free(executor->result.answers);
    free(executor->result.named_logits);
    free(executor->wanted);
    free(executor->logits_row);
    device_program_release(&executor->device_program);
    program_release(&executor->program);
    free(executor);
}

/* ---- opening ---- */

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t or_default(uint32_t value, uint32_t fallback) {
    return value > 0 ? value : fallback;
}

static uint32_t blocks_of(uint32_t tokens) {
    return (tokens + DEVICE_PAGE_TOKENS - 1) / DEVICE_PAGE_TOKENS;
}

/* Bytes of a page without the scales of an 8-bit form. */
static uint64_t page_bytes_of(const struct executor_device_options *options) {
    const uint64_t element = options->kv_form == DEVICE_F32    ? 4
                             : options->kv_form == DEVICE_BF16 ? 2
                                                               : 1;
    return 2 * element * options->layout->layers_each * DEVICE_PAGE_TOKENS *
           options->config->kv_heads * options->config->head_dim;
}

/* Sets the least and the most pages: as the caller wants them, and no more than can be of use. */
static void limit_pages(struct device_limits *limits,
                        const struct executor_device_options *options) {
    const struct executor_limits *wanted = &options->limits;
    uint64_t groups = kv_layout_groups(options->layout);
    uint64_t most = (uint64_t)limits->sequences_max * blocks_of(limits->context_max) * groups;
    uint64_t fewest = blocks_of(least(limits->context_max, CONTEXT_LEAST)) * groups;
    if (wanted->kv_bytes > 0 && wanted->kv_bytes / page_bytes_of(options) < most)
        most = wanted->kv_bytes / page_bytes_of(options);
    if (wanted->block_count > 0) most = fewest = wanted->block_count * groups;
    if (most > EXECUTOR_PAGES_MAX) most = EXECUTOR_PAGES_MAX;
    if (most < groups) most = groups;
    limits->page_count_max = (uint32_t)most;
    limits->page_count_min = (uint32_t)(fewest < most ? fewest : most);
}

static struct plan_attention_options plan_options(const struct executor_device *executor,
                                                  const struct executor_device_options *options) {
    const struct device_limits *limits = &executor->limits;
    const struct model_config *config = options->config;
    return (struct plan_attention_options){.layout = options->layout,
                                           .heads = config->heads,
                                           .kv_heads = config->kv_heads,
                                           .kept_group = options->layout->group[config->layers - 1],
                                           .tile_rows_heads = options->table->tile_rows_heads,
                                           .split_tokens = options->table->split_tokens,
                                           .multiprocessors = options->card->multiprocessors,
                                           .page_count = executor->ledger.page_count,
                                           .rows_max = limits->rows_max,
                                           .sequences_max = limits->sequences_max,
                                           .context_max = limits->context_max};
}

static struct device_sampling_options sampling_options(const struct executor_device *executor) {
    return (struct device_sampling_options){.vocab = executor->caps.vocab,
                                            .logit_rows_max = executor->limits.logit_rows_max,
                                            .sequences_max = executor->limits.sequences_max,
                                            .context_max = executor->limits.context_max};
}

static void set_limits(struct executor_device *executor,
                       const struct executor_device_options *options, uint32_t sequences) {
    const struct executor_limits *wanted = &options->limits;
    struct device_limits *limits = &executor->limits;
    *limits = (struct device_limits){.rows_max = or_default(wanted->rows_max, EXECUTOR_DEVICE_ROWS),
                                     .sequences_max = sequences,
                                     .context_max = wanted->context_max,
                                     .layer_places = options->layout->layers_each,
                                     .group_count = kv_layout_groups(options->layout),
                                     .steps_max = or_default(options->steps_max, DEVICE_STEPS_MAX),
                                     .kv_form = options->kv_form};
    limits->sequences_max = least(limits->sequences_max, limits->rows_max);
    limits->logit_rows_max = limits->sequences_max;
    limit_pages(limits, options);
    struct plan_attention_options plan = plan_options(executor, options);
    struct plan_attention_sizes sizes = plan_attention_sizes(&plan);
    struct device_sampling_options sampling = sampling_options(executor);
    limits->pages_max = sizes.pages_max;
    limits->items_max = sizes.items_max;
    limits->partials_max = sizes.partials_max;
    limits->edits_max = device_sampling_edits_max(&sampling);
    limits->named_max = device_sampling_named_max(&sampling);
}

/* Whether the cache will have room for that many sequences of a usual length. */
static bool has_tokens(const struct executor_device *executor, uint64_t memory_bytes,
                       uint32_t sequences) {
    const struct device_ledger ledger =
        device_ledger_predict(&executor->device_program, &executor->limits, memory_bytes);
    uint64_t blocks = ledger.page_count / executor->limits.group_count;
    uint32_t tokens = least(SEQUENCE_TOKENS, executor->limits.context_max);
    return ledger.used <= ledger.limit && blocks * DEVICE_PAGE_TOKENS / sequences >= tokens;
}

/* set_limits for the sequences that the caller wants, or by default as many as the memory suits. */
static void choose_limits(struct executor_device *executor,
                          const struct executor_device_options *options) {
    const uint32_t wanted = options->limits.sequences_max;
    uint32_t sequences = or_default(wanted, EXECUTOR_DEVICE_SEQUENCES);
    set_limits(executor, options, sequences);
    while (wanted == 0 && options->memory_bytes > 0 && sequences > SEQUENCES_LEAST &&
           !has_tokens(executor, options->memory_bytes, sequences)) {
        sequences /= 2;
        set_limits(executor, options, sequences);
    }
}

static enum err refuse(const struct executor_device *executor,
                       const struct executor_device_options *options, struct error *error) {
    const struct device_refusal refusal = {.program = &executor->device_program,
                                           .limits = &executor->limits,
                                           .ledger = &executor->ledger,
                                           .urgent_sequences = options->urgent_sequences};
    return device_ledger_refuse(&refusal, error);
}

static enum err prepare(struct executor_device *executor,
                        const struct executor_device_options *options, struct error *error) {
    uint32_t matrix_count;
    const struct device_matrix *matrices = device_store_matrices(options->store, &matrix_count);
    program_of(&executor->program, &(struct program_options){.config = options->config,
                                                             .layout = options->layout,
                                                             .weights = options->weights});
    executor->vocab_rows = executor->program.shape.vocab_rows;
    executor->caps.vocab = options->config->token_count;
    device_program_of(&executor->device_program, &executor->program, matrices, matrix_count,
                      executor->caps.vocab);
    choose_limits(executor, options);
    struct device_ledger *ledger = &executor->ledger;
    enum err err = options->table->prepare(options->device, &executor->device_program,
                                           &executor->limits, ledger, error);
    return err == ERR_LIMIT && ledger->used > ledger->limit ? refuse(executor, options, error)
                                                            : err;
}

static void set_caps(struct executor_device *executor,
                     const struct executor_device_options *options) {
    const struct device_limits *limits = &executor->limits;
    const struct kv_layout *layout = options->layout;
    executor->caps = (struct backend_caps){
        .block_tokens = BACKEND_BLOCK_TOKENS,
        .page_count = executor->ledger.page_count,
        .full_pages = layout->full_groups,
        .window_pages = layout->window_groups,
        .window_tokens = layout->window_tokens,
        .rows_max = limits->rows_max,
        .logit_rows_max = limits->logit_rows_max,
        .sequences_max =
            least(limits->sequences_max, executor->ledger.page_count / limits->group_count),
        .context_tokens_max = limits->context_max,
        .vocab = executor->caps.vocab,
        .steps_max = limits->steps_max};
}

static enum err open_arrays(struct executor_device *executor, struct error *error) {
    const struct device_limits *limits = &executor->limits;
    struct device_sampling_options sampling = sampling_options(executor);
    struct device_result *result = &executor->result;
    executor->wanted = calloc(limits->logit_rows_max, sizeof *executor->wanted);
    executor->logits_row = calloc(executor->vocab_rows, sizeof *executor->logits_row);
    result->tokens = calloc(limits->logit_rows_max, sizeof *result->tokens);
    result->answers = calloc(limits->logit_rows_max, sizeof *result->answers);
    result->named_logits = calloc(limits->named_max, sizeof *result->named_logits);
    if (!executor->wanted || !executor->logits_row || !result->tokens || !result->answers ||
        !result->named_logits)
        return err_set(error, ERR_LIMIT, "no memory for the results of %u rows",
                       limits->logit_rows_max);
    enum err err = device_sampling_open(&executor->sampling, &sampling, error);
    for (uint32_t i = 0; i < limits->steps_max && err == OK; i++)
        err = device_record_open(&executor->flights[i].record, &sampling, error);
    return err;
}

static enum err open_all(struct executor_device *executor,
                         const struct executor_device_options *options, struct error *error) {
    enum err err = prepare(executor, options, error);
    if (err != OK) return err;
    set_caps(executor, options);
    struct plan_attention_options plan = plan_options(executor, options);
    err = plan_attention_open(&executor->plan, &plan, error);
    return err == OK ? open_arrays(executor, error) : err;
}

enum err executor_device_open(struct executor *ret_executor,
                              const struct executor_device_options *options, struct error *error) {
    static const struct executor_ops one_ops = {.backend = &one_step_ops,
                                                .logits = run_for_logits,
                                                .describe = describe,
                                                .close = close_executor};
    static const struct executor_ops two_ops = {.backend = &two_steps_ops,
                                                .logits = run_for_logits,
                                                .describe = describe,
                                                .close = close_executor};
    struct executor_device *executor = mem_new(1, sizeof *executor);
    executor->table = options->table;
    executor->device = options->device;
    executor->kv_form = options->kv_form;
    executor->group_count = kv_layout_groups(options->layout);
    (void)snprintf(executor->name, sizeof executor->name, "%s", options->card->name);
    enum err err = open_all(executor, options, error);
    if (err != OK) {
        close_executor(executor);
        return err;
    }
    *ret_executor = (struct executor){.ops = executor->caps.steps_max > 1 ? &two_ops : &one_ops,
                                      .self = executor,
                                      .caps = executor->caps};
    return OK;
}
