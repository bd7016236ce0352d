/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/executor_gpu.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/away.h"
#include "gpu/gpu_ledger.h"
#include "gpu/gpu_limits.h"
#include "gpu/gpu_program.h"
#include "gpu/gpu_rows.h"
#include "gpu/gpu_shard.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A step under way. */
struct flight {
    uint64_t number;     /* the scheduler's */
    uint64_t gpu_number; /* ascends over all steps, also those of `logits` */
    struct gpu_record record;
};

struct executor_gpu {
    const struct gpu_table *table;
    struct gpu *gpu;
    char name[96];
    uint32_t vocab_rows;
    enum gpu_form kv_form;
    uint32_t group_count;
    struct program program;
    struct gpu_program gpu_program;
    struct gpu_shard share; /* the first GPU's part of it, if several compute together */
    struct gpu_limits limits;
    struct memory_ledger ledger;
    struct backend_caps caps;
    struct plan_attention *plan;
    struct gpu_sampling *sampling;
    struct gpu_result result;
    uint32_t *wanted;              /* (logit_rows_max) */
    struct gpu_page_copy *copies;  /* (sequences_max · group_count) */
    struct gpu_state_item *states; /* (sequences_max), or NULL without recurrent layers */
    float *logits_row;             /* (vocab_rows) */
    uint64_t number_last;
    struct flight flights[GPU_STEPS_MAX];
    uint32_t flight_first;
    uint32_t flight_count;
};

/* ---- steps ---- */

/* The step `index` behind the oldest one. */
static struct flight *flight_at(struct executor_gpu *executor, uint32_t index) {
    return &executor->flights[(executor->flight_first + index) % executor->caps.steps_max];
}

static const struct gpu_page_copy *copies_of(struct executor_gpu *executor,
                                             const struct step *step) {
    assert(step->copy_count <= executor->limits.sequences_max * executor->group_count);
    for (uint32_t i = 0; i < step->copy_count; i++)
        executor->copies[i] =
            (struct gpu_page_copy){.from = step->copies[i].from, .to = step->copies[i].to};
    return executor->copies;
}

static const struct gpu_state_item *states_of(struct executor_gpu *executor,
                                              const struct step *step) {
    static_assert(BACKEND_STATE_ZERO == GPU_NONE, "no state before the rows");
    if (!executor->states) return NULL;
    assert(step->sequence_count <= executor->limits.sequences_max);
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *from = &step->sequences[i];
        executor->states[i] = (struct gpu_state_item){
            .row = from->row_first,
            .rows = from->row_count,
            .from = from->state_from,
            .to = from->state,
            .save = from->save_rows > 0 ? from->save_to : GPU_NONE,
            .save_rows = from->save_rows,
        };
    }
    return executor->states;
}

/* Starts a step whose wanted rows are executor->wanted. */
static enum err submit_step(struct executor_gpu *executor, const struct step *step,
                            uint32_t wanted_count, const struct gpu_samples *samples,
                            struct error *error) {
    const struct gpu_step to = {
        .number = executor->number_last,
        .row_count = step->row_count,
        .wanted_count = wanted_count,
        .copy_count = step->copy_count,
        .copies = copies_of(executor, step),
        .state_count = executor->states ? step->sequence_count : 0,
        .states = states_of(executor, step),
        .tokens = step->tokens,
        .positions = step->positions,
        .wanted = executor->wanted,
        .groups = plan_attention_step(executor->plan, step, executor->wanted, wanted_count)};
    return executor->table->submit(executor->gpu, &to, samples, error);
}

/* Draws the rows of the step submitted last that a call before had no room for. */
static enum err sample_others(struct executor_gpu *executor, struct error *error) {
    enum err err = OK;
    for (const struct gpu_samples *samples;
         err == OK && (samples = gpu_sampling_more(executor->sampling)) != NULL;)
        err = executor->table->sample(executor->gpu, samples, error);
    return err;
}

static enum err submit(void *self, const struct step *step, struct error *error) {
    struct executor_gpu *executor = self;
    assert(executor->flight_count < executor->caps.steps_max);
    assert(step->logit_count <= executor->limits.logit_rows_max);
    struct flight *flight = flight_at(executor, executor->flight_count);
    flight->number = step->number;
    flight->gpu_number = ++executor->number_last;
    for (uint32_t i = 0; i < step->logit_count; i++) executor->wanted[i] = step->logit_rows[i].row;
    const struct gpu_samples *samples =
        gpu_sampling_begin(executor->sampling, &flight->record, step, flight->gpu_number);
    executor->flight_count++;
    enum err err = submit_step(executor, step, step->logit_count, samples, error);
    return err == OK ? sample_others(executor, error) : err;
}

static enum err sample_late(void *self, uint64_t number, const struct logit_row *rows,
                            uint32_t count, struct error *error) {
    struct executor_gpu *executor = self;
    assert(executor->flight_count > 0);
    struct flight *flight = flight_at(executor, executor->flight_count - 1);
    assert(flight->number == number);
    const struct gpu_samples *samples =
        gpu_sampling_late(executor->sampling, &flight->record, rows, count, flight->gpu_number);
    if (!samples) return OK;
    enum err err = executor->table->sample(executor->gpu, samples, error);
    return err == OK ? sample_others(executor, error) : err;
}

static enum err wait_for_step(void *self, struct step_result *result, struct error *error) {
    struct executor_gpu *executor = self;
    assert(executor->flight_count > 0);
    struct flight *flight = flight_at(executor, 0);
    enum err err =
        executor->table->wait(executor->gpu, flight->gpu_number, &executor->result, error);
    if (err == OK) gpu_sampling_answer(&flight->record, &executor->result, result->samples);
    if (err == OK) result->nonfinite_rows = executor->result.nonfinite_rows;
    executor->flight_first = (executor->flight_first + 1) % executor->caps.steps_max;
    executor->flight_count--;
    return err;
}

static const struct backend_ops one_step_ops = {.submit = submit, .wait = wait_for_step};
static const struct backend_ops two_steps_ops = {
    .submit = submit, .sample = sample_late, .wait = wait_for_step};

/* ---- logits ---- */

static enum err copy_logits(struct executor_gpu *executor, uint32_t count, float *ret_logits,
                            struct error *error) {
    const struct gpu_table *table = executor->table;
    const uint32_t vocab = executor->caps.vocab;
    if (vocab == executor->vocab_rows)
        return table->logits(executor->gpu, 0, count, ret_logits, error);
    enum err err = OK;
    for (uint32_t i = 0; i < count && err == OK; i++, ret_logits += vocab) {
        err = table->logits(executor->gpu, i, 1, executor->logits_row, error);
        if (err == OK) memcpy(ret_logits, executor->logits_row, vocab * sizeof *ret_logits);
    }
    return err;
}

/* Runs the step as often as its logits have parts: it writes the same keys each time. */
static enum err run_for_logits(void *self, const struct step *step, float *ret_logits,
                               struct error *error) {
    struct executor_gpu *executor = self;
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
            err = executor->table->wait(executor->gpu, executor->number_last, &executor->result,
                                        error);
        if (err == OK && count > 0)
            err = copy_logits(executor, count, ret_logits + (size_t)done * executor->caps.vocab,
                              error);
        done += count;
    } while (err == OK && done < step->logit_count);
    return err;
}

/* ---- looking at it, and closing ---- */

static const char *form_name(enum gpu_form form) {
    switch (form) {
    case GPU_F32: return "F32";
    case GPU_BF16: return "BF16";
    case GPU_E4M3: return "E4M3";
    case GPU_INT8: return "INT8";
    case GPU_BLOCKS: break; /* no form of a KV cache */
    }
    return "";
}

static void describe(const void *self, struct executor_description *ret_description) {
    const struct executor_gpu *executor = self;
    const struct memory_ledger *ledger = &executor->ledger;
    *ret_description = (struct executor_description){
        .kv_type = form_name(executor->kv_form),
        .kv_bytes_per_token = ledger->page_bytes * executor->group_count / GPU_PAGE_TOKENS,
        .kv_bytes = ledger->kv,
        .state_bytes = ledger->state_bytes,
        .states_bytes = ledger->states,
        .ledger = *ledger};
    memcpy(ret_description->name, executor->name, sizeof executor->name);
}

static void close_executor(void *self) {
    struct executor_gpu *executor = self;
    if (!executor) return;
    for (uint32_t i = 0; i < GPU_STEPS_MAX; i++) gpu_record_close(&executor->flights[i].record);
    gpu_sampling_close(executor->sampling);
    plan_attention_close(executor->plan);
    free(executor->result.tokens);
    free(executor->result.answers);
    free(executor->result.named_logits);
    free(executor->wanted);
    free(executor->copies);
    free(executor->states);
    free(executor->logits_row);
    gpu_shard_release(&executor->share);
    gpu_program_release(&executor->gpu_program);
    program_release(&executor->program);
    free(executor);
}

/* ---- opening ---- */

/* The program that one GPU has to hold. */
static const struct gpu_program *held_program(const struct executor_gpu *executor) {
    return executor->share.splits ? &executor->share.program : &executor->gpu_program;
}

static struct gpu_limits_options limits_options(const struct executor_gpu *executor,
                                                const struct executor_gpu_options *options) {
    return (struct gpu_limits_options){.program = held_program(executor),
                                       .layout = options->layout,
                                       .kv_form = options->kv_form,
                                       .state_form = options->state_form,
                                       .steps_max = options->steps_max,
                                       .multiprocessors = options->card->multiprocessors,
                                       .memory_bytes = options->memory_bytes,
                                       .leaves_experts = options->leaves_experts,
                                       .host_bytes = options->host_bytes /
                                                     (options->ranks > 1 ? options->ranks : 1),
                                       .wanted = options->limits};
}

static enum err refuse(const struct executor_gpu *executor,
                       const struct executor_gpu_options *options, struct error *error) {
    const struct gpu_refusal refusal = {.program = held_program(executor),
                                        .limits = &executor->limits,
                                        .ledger = &executor->ledger,
                                        .urgent_sequences = options->urgent_sequences};
    return gpu_ledger_refuse(&refusal, error);
}

/* One layer more leaves its experts in the host's memory; false: none can. */
static bool leave_more(struct executor_gpu *executor, const struct gpu_limits_options *options) {
    struct gpu_limits more = executor->limits;
    more.experts_away++;
    if (more.experts_away == 1 || more.experts_away > away_layers(&executor->gpu_program) ||
        !gpu_limits_have_host(options, &more))
        return false;
    executor->limits = more;
    return true;
}

/* The GPU counts its memory in larger pieces than a prediction, so a layer more may have to stay
 * away. */
static enum err lay_out(struct executor_gpu *executor, const struct executor_gpu_options *options,
                        struct error *error) {
    struct memory_ledger *ledger = &executor->ledger;
    const struct gpu_limits_options limits = limits_options(executor, options);
    enum err err;
    bool is_full;
    do {
        err = options->table->prepare(options->gpu, &executor->gpu_program, &executor->limits,
                                      ledger, error);
        is_full = err == ERR_LIMIT && ledger->used > ledger->limit;
    } while (is_full && leave_more(executor, &limits));
    if (err == OK && ledger->away > 0)
        log_info("event=experts_away layers=%u of=%u mib=%llu card=%s",
                 executor->limits.experts_away, away_layers(&executor->gpu_program),
                 (unsigned long long)(ledger->away >> 20), executor->name);
    if (!is_full) return err;
    err = refuse(executor, options, error);
    const uint64_t away_mib = ledger->away >> 20;
    return away_mib == 0 ? err
                         : err_prefix(error, "with %llu MiB of experts in the host's memory",
                                      (unsigned long long)away_mib);
}

static enum err prepare(struct executor_gpu *executor, const struct executor_gpu_options *options,
                        struct error *error) {
    uint32_t matrix_count;
    const struct gpu_matrix *matrices = gpu_store_matrices(options->store, &matrix_count);
    program_of(&executor->program, &(struct program_options){.config = options->config,
                                                             .layout = options->layout,
                                                             .weights = options->weights});
    executor->vocab_rows = executor->program.shape.vocab_rows;
    executor->caps.vocab = options->config->token_count;
    gpu_program_of(&executor->gpu_program, &executor->program, matrices, matrix_count,
                   executor->caps.vocab);
    enum err err = options->ranks > 1 ? gpu_shard_of(&executor->share, &executor->gpu_program, 0,
                                                     options->ranks, error)
                                      : OK;
    if (err != OK) return err;
    const struct gpu_limits_options limits = limits_options(executor, options);
    executor->limits = gpu_limits_of(&limits);
    if (executor->gpu_program.recurrent.layers > 0 && executor->limits.state_places == 0)
        return err_set(
            error, ERR_INVALID,
            "the memory for states is %llu bytes, less than the %llu of one sequence",
            (unsigned long long)options->limits.state_bytes,
            (unsigned long long)gpu_ledger_state_bytes(&executor->gpu_program, &executor->limits));
    return lay_out(executor, options, error);
}

static void set_caps(struct executor_gpu *executor, const struct executor_gpu_options *options) {
    const struct gpu_limits *limits = &executor->limits;
    const struct kv_layout *layout = options->layout;
    const uint32_t page_sequences = executor->ledger.page_count / limits->group_count;
    executor->caps = (struct backend_caps){.block_tokens = BACKEND_BLOCK_TOKENS,
                                           .page_count = executor->ledger.page_count,
                                           .full_pages = layout->full_groups,
                                           .window_pages = layout->window_groups,
                                           .window_tokens = layout->window_tokens,
                                           .rows_max = limits->rows_max,
                                           .logit_rows_max = limits->logit_rows_max,
                                           .sequences_max = page_sequences < limits->sequences_max
                                                                ? page_sequences
                                                                : limits->sequences_max,
                                           .context_tokens_max = limits->context_max,
                                           .vocab = executor->caps.vocab,
                                           .steps_max = limits->steps_max,
                                           .state_places = executor->ledger.state_places,
                                           .copies_pages = true};
}

static enum err open_arrays(struct executor_gpu *executor, struct error *error) {
    const struct gpu_limits *limits = &executor->limits;
    struct gpu_sampling_options sampling = gpu_limits_sampling(&executor->gpu_program, limits);
    struct gpu_result *result = &executor->result;
    executor->wanted = calloc(limits->logit_rows_max, sizeof *executor->wanted);
    executor->copies =
        calloc((size_t)limits->sequences_max * executor->group_count, sizeof *executor->copies);
    if (limits->state_places > 0)
        executor->states = calloc(limits->sequences_max, sizeof *executor->states);
    executor->logits_row = calloc(executor->vocab_rows, sizeof *executor->logits_row);
    result->tokens = calloc(limits->logit_rows_max, sizeof *result->tokens);
    result->answers = calloc(limits->logit_rows_max, sizeof *result->answers);
    result->named_logits = calloc(limits->named_max, sizeof *result->named_logits);
    if (!executor->wanted || !executor->copies || !executor->logits_row ||
        (limits->state_places > 0 && !executor->states) || !result->tokens || !result->answers ||
        !result->named_logits)
        return err_set(error, ERR_LIMIT, "no memory for the results of %u rows",
                       limits->logit_rows_max);
    enum err err = gpu_sampling_open(&executor->sampling, &sampling, error);
    for (uint32_t i = 0; i < limits->steps_max && err == OK; i++)
        err = gpu_record_open(&executor->flights[i].record, &sampling, error);
    return err;
}

static enum err open_all(struct executor_gpu *executor, const struct executor_gpu_options *options,
                         struct error *error) {
    enum err err = prepare(executor, options, error);
    if (err != OK) return err;
    set_caps(executor, options);
    const struct gpu_limits_options limits = limits_options(executor, options);
    struct plan_attention_options plan = gpu_limits_plan(&limits, &executor->limits);
    plan.kept_group = options->layout->group[options->config->layers - 1];
    plan.tile_rows_heads = options->table->tile_rows_heads;
    plan.split_tokens = options->table->split_tokens;
    plan.prefix_reads_min = options->table->prefix_reads_min;
    plan.page_count = executor->ledger.page_count;
    err = plan_attention_open(&executor->plan, &plan, error);
    return err == OK ? open_arrays(executor, error) : err;
}

enum err executor_gpu_open(struct executor *ret_executor,
                           const struct executor_gpu_options *options, struct error *error) {
    static const struct executor_ops one_ops = {.backend = &one_step_ops,
                                                .logits = run_for_logits,
                                                .describe = describe,
                                                .close = close_executor};
    static const struct executor_ops two_ops = {.backend = &two_steps_ops,
                                                .logits = run_for_logits,
                                                .describe = describe,
                                                .close = close_executor};
    struct executor_gpu *executor = mem_new(1, sizeof *executor);
    executor->table = options->table;
    executor->gpu = options->gpu;
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

enum err executor_gpu_rows(const struct executor *executor, uint32_t *ret_rows,
                           struct error *error) {
    const struct executor_gpu *gpu = executor->self;
    const uint32_t most = gpu->limits.rows_max;
    const int64_t begin_ns = clock_monotonic_ns();
    const bool waits_for_bus = gpu->limits.experts_away > 0;
    enum err err = OK;
    *ret_rows = most;
    if (!waits_for_bus) err = gpu_rows_enough(gpu->table, gpu->gpu, most, ret_rows, error);
    if (err == OK)
        log_info("event=device_rows rows=%u most=%u seconds=%.3f", *ret_rows, most,
                 (double)(clock_monotonic_ns() - begin_ns) * 1e-9);
    return err;
}
