/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/executor_cpu.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/min_max.h"
#include "cpu/cpu_notes.h"
#include "cpu/forward.h"
#include "cpu/sampler.h"
#include "cpu/step_trials.h"
#include "cpu/trial_step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Rows of logits made at a time: enough to pay for reading the head once, and 134 MB at the
 * largest vocabulary. */
#define LOGIT_ROWS_MAX 128u
/* Rows of an urgent step: a long prompt comes in several, between which a short one may start. */
#define URGENT_ROWS_MAX 256u
/* Rows of a step that the trials leave to prompts while every sequence generates. */
#define PROMPT_ROWS_LEAST 64u
/* Places for states that running sequences leave: at least 1/STORED_SHARE of all, but STORED_LEAST
 * are enough, and more than STORED_MOST are of no use. */
#define STORED_SHARE 4u
#define STORED_LEAST 8u
#define STORED_MOST 4096u

/* The place where a step is computed. An urgent step that passes another has a lane of its own. */
struct lane {
    struct forward *forward;
    uint32_t logit_rows_max;
    uint32_t *wanted;       /* (rows_max) rows of the step that have logits */
    struct sample *samples; /* (rows_max) samples of the step under way */
    const struct step *step;
    bool is_computed;        /* all layers are computed; only the head is left */
    uint32_t sampled;        /* entries of step.logit_rows that are sampled */
    uint32_t nonfinite_rows; /* rows of these with NaN or +inf */
};

enum { LANE_PLAIN, LANE_URGENT, LANE_COUNT };

struct executor_cpu {
    struct executor_cpu_options options;
    struct backend_caps caps;
    struct lane lanes[LANE_COUNT];
    struct sampler *samplers; /* (threads of the pool) */
};

/* ---- the backend ---- */

struct sample_job {
    struct executor_cpu *executor;
    const struct logit_row *rows;
    const float *logits;
    struct sample *samples;
};

static void sample_task(void *context, uint32_t task, uint32_t worker) {
    const struct sample_job *job = context;
    struct executor_cpu *executor = job->executor;
    sampler_sample(&executor->samplers[worker], &job->rows[task],
                   job->logits + (size_t)task * executor->options.config->vocab_rows,
                   &job->samples[task]);
}

static void begin_step(struct lane *lane, const struct step *step) {
    assert(step->logit_count <= step->row_count);
    for (uint32_t i = 0; i < step->logit_count; i++) lane->wanted[i] = step->logit_rows[i].row;
    lane->step = step;
    lane->sampled = lane->nonfinite_rows = 0;
    forward_begin(lane->forward, step, lane->wanted, step->logit_count);
    lane->is_computed = false;
}

/* What the samplers of all threads have counted since the last call. */
static uint32_t take_nonfinite_rows(struct executor_cpu *executor) {
    uint32_t rows = 0;
    for (uint32_t i = 0; i < pool_threads(executor->options.pool); i++) {
        rows += executor->samplers[i].nonfinite_rows;
        executor->samplers[i].nonfinite_rows = 0;
    }
    return rows;
}

/* A slice of the layers, or of the head. True when all is done. */
static bool advance_step(struct executor_cpu *executor, struct lane *lane) {
    const struct step *step = lane->step;
    if (!lane->is_computed) {
        lane->is_computed = forward_advance(lane->forward);
        return lane->is_computed && step->logit_count == 0;
    }
    uint32_t done = lane->sampled;
    uint32_t count = step->logit_count - done;
    if (count > lane->logit_rows_max) count = lane->logit_rows_max;
    if (count > 0) {
        struct sample_job job = {.executor = executor,
                                 .rows = step->logit_rows + done,
                                 .logits = forward_logits(lane->forward, done, count),
                                 .samples = lane->samples + done};
        pool_run(executor->options.pool, sample_task, &job, count);
        lane->nonfinite_rows += take_nonfinite_rows(executor);
    }
    lane->sampled = done + count;
    return lane->sampled == step->logit_count;
}

static void end_step(struct executor_cpu *executor, struct lane *lane, struct step_result *result) {
    while (!advance_step(executor, lane)) continue;
    for (uint32_t i = 0; i < lane->sampled; i++)
        sample_copy(&result->samples[i], &lane->samples[i]);
    result->nonfinite_rows = lane->nonfinite_rows;
}

static enum err submit(void *self, const struct step *step, struct error *error) {
    (void)error; /* arithmetic cannot fail */
    struct executor_cpu *executor = self;
    begin_step(&executor->lanes[LANE_PLAIN], step);
    return OK;
}

static enum err advance(void *self, bool *ret_done, struct error *error) {
    (void)error;
    struct executor_cpu *executor = self;
    *ret_done = advance_step(executor, &executor->lanes[LANE_PLAIN]);
    return OK;
}

static enum err wait_for_step(void *self, struct step_result *result, struct error *error) {
    (void)error;
    struct executor_cpu *executor = self;
    end_step(executor, &executor->lanes[LANE_PLAIN], result);
    return OK;
}

static enum err interject(void *self, const struct step *step, struct step_result *result,
                          struct error *error) {
    (void)error;
    struct executor_cpu *executor = self;
    begin_step(&executor->lanes[LANE_URGENT], step);
    end_step(executor, &executor->lanes[LANE_URGENT], result);
    return OK;
}

static const struct backend_ops backend_ops = {
    .submit = submit, .wait = wait_for_step, .advance = advance, .interject = interject};

/* ---- the executor ---- */

static enum err logits(void *self, const struct step *step, float *ret_logits,
                       struct error *error) {
    (void)error;
    struct executor_cpu *executor = self;
    struct lane *lane = &executor->lanes[LANE_PLAIN];
    const size_t vocab = executor->caps.vocab, rows = executor->options.config->vocab_rows;
    for (uint32_t i = 0; i < step->logit_count; i++) lane->wanted[i] = step->logit_rows[i].row;
    forward_run(lane->forward, step, lane->wanted, step->logit_count);
    for (uint32_t done = 0; done < step->logit_count;) {
        uint32_t part = step->logit_count - done;
        if (part > lane->logit_rows_max) part = lane->logit_rows_max;
        const float *from = forward_logits(lane->forward, done, part);
        for (uint32_t i = 0; i < part; i++, ret_logits += vocab)
            memcpy(ret_logits, from + i * rows, vocab * sizeof *ret_logits);
        done += part;
    }
    return OK;
}

static uint64_t page_bytes(const struct executor_cpu *executor) {
    const struct executor_cpu_options *options = &executor->options;
    return forward_page_bytes(options->layout, options->kernels, options->kv_is_int8);
}

static void describe(const void *self, struct executor_description *ret_description) {
    const struct executor_cpu *executor = self;
    const struct executor_cpu_options *options = &executor->options;
    const struct backend_caps *caps = &executor->caps;
    const uint32_t threads = pool_threads(options->pool);
    const uint64_t block_bytes = page_bytes(executor) * kv_layout_groups(options->layout);
    *ret_description = (struct executor_description){
        .kv_type = kv_type_name(config_is_latent(options->config) ? options->kernels->latent_type
                                : options->kv_is_int8             ? TENSOR_KV_INT8
                                                                  : options->kernels->kv_type),
        .threads = threads,
        .kv_bytes_per_token = block_bytes / KV_BLOCK_TOKENS,
        .kv_bytes = page_bytes(executor) * caps->page_count,
        .state_bytes = forward_state_bytes(options->config),
        .states_bytes = forward_state_bytes(options->config) * executor->caps.state_places,
        .workspace_bytes = threads * sampler_bytes(options->config->token_count) +
                           (caps->rows_max + caps->urgent_rows_max) * sizeof(struct sample)};
    for (int i = 0; i < LANE_COUNT; i++)
        ret_description->workspace_bytes += forward_workspace_bytes(executor->lanes[i].forward);
    size_t bytes = strlen(options->kernels->name);
    assert(bytes < sizeof ret_description->name);
    memcpy(ret_description->name, options->kernels->name, bytes + 1);
}

static void close_executor(void *self) {
    struct executor_cpu *executor = self;
    for (uint32_t i = 0; executor->samplers && i < pool_threads(executor->options.pool); i++)
        sampler_close(&executor->samplers[i]);
    free(executor->samplers);
    for (int i = LANE_COUNT; i-- > 0;) {
        free(executor->lanes[i].samples);
        free(executor->lanes[i].wanted);
        forward_close(executor->lanes[i].forward);
    }
    free(executor);
}

static const struct executor_ops executor_ops = {
    .backend = &backend_ops, .logits = logits, .describe = describe, .close = close_executor};

/* ---- opening ---- */

static uint32_t or_default(uint32_t value, uint32_t fallback) {
    return value > 0 ? value : fallback;
}

/* How many KV pages the limits ask for. */
static enum err count_pages(const struct executor_cpu *executor, uint32_t *ret_count,
                            struct error *error) {
    const struct executor_limits *limits = &executor->options.limits;
    const struct backend_caps *caps = &executor->caps;
    uint64_t groups = kv_layout_groups(executor->options.layout);
    uint64_t bytes = limits->kv_bytes > 0 ? limits->kv_bytes : EXECUTOR_CPU_KV_BYTES;
    uint64_t count = bytes / page_bytes(executor);
    uint64_t useful =
        (uint64_t)caps->sequences_max * backend_blocks_for(caps->context_tokens_max) * groups;
    if (count > useful) count = useful;
    if (limits->block_count > 0) count = limits->block_count * groups;
    if (count > EXECUTOR_PAGES_MAX) count = EXECUTOR_PAGES_MAX;
    if (count < groups)
        return err_set(error, ERR_INVALID,
                       "kv_bytes is %llu, less than the %llu that one block of %d tokens takes",
                       (unsigned long long)bytes,
                       (unsigned long long)(groups * page_bytes(executor)), KV_BLOCK_TOKENS);
    *ret_count = (uint32_t)count;
    return OK;
}

/* The number of places that no running sequence takes: the beginnings of prompts that
 * others share are stored there, and a branching tree of prompts has few on one path. */
static uint64_t places_to_spare(uint64_t places) {
    if (places <= 1) return 0;
    const uint64_t share = places / STORED_SHARE;
    return share < 1 ? 1 : min_u64(share, STORED_LEAST);
}

/* As many places and sequences as have a state within the memory for states. */
static enum err count_states(struct executor_cpu *executor, struct error *error) {
    const uint64_t limit = executor->options.limits.state_bytes;
    const uint64_t bytes = limit > 0 ? limit : EXECUTOR_CPU_STATE_BYTES;
    const uint64_t each = forward_state_bytes(executor->options.config);
    struct backend_caps *caps = &executor->caps;
    if (each == 0) return OK;
    if (bytes < each)
        return err_set(error, ERR_INVALID,
                       "the memory for states is %llu bytes, less than the %llu of one sequence",
                       (unsigned long long)bytes, (unsigned long long)each);
    uint64_t places = bytes / each;
    caps->sequences_max = (uint32_t)min_u64(caps->sequences_max, places - places_to_spare(places));
    places = min_u64(places, (uint64_t)caps->sequences_max + STORED_MOST);
    caps->state_places = (uint32_t)places;
    return OK;
}

static enum err set_caps(struct executor_cpu *executor, struct error *error) {
    const struct executor_cpu_options *options = &executor->options;
    const struct executor_limits *limits = &options->limits;
    const uint32_t rows_max = or_default(limits->rows_max, EXECUTOR_CPU_ROWS);
    executor->caps = (struct backend_caps){
        .block_tokens = BACKEND_BLOCK_TOKENS,
        .full_pages = options->layout->full_groups,
        .window_pages = options->layout->window_groups,
        .window_tokens = options->layout->window_tokens,
        .rows_max = rows_max,
        .sequences_max = or_default(limits->sequences_max, EXECUTOR_CPU_SEQUENCES),
        .context_tokens_max = limits->context_max,
        .vocab = options->config->token_count,
        .urgent_rows_max = min_u32(rows_max, URGENT_ROWS_MAX),
        .steps_max = 1,
        .copies_pages = true};
    enum err err = count_states(executor, error);
    return err == OK ? count_pages(executor, &executor->caps.page_count, error) : err;
}

static void size_lane(struct lane *lane, const struct backend_caps *caps, uint32_t rows_max) {
    lane->logit_rows_max = min_u32(min_u32(caps->sequences_max, rows_max), LOGIT_ROWS_MAX);
    lane->wanted = mem_new(rows_max, sizeof *lane->wanted);
    lane->samples = mem_new(rows_max, sizeof *lane->samples);
}

static struct forward_options forward_options_of(const struct executor_cpu *executor) {
    const struct executor_cpu_options *options = &executor->options;
    const struct backend_caps *caps = &executor->caps;
    return (struct forward_options){.config = options->config,
                                    .weights = options->weights,
                                    .kernels = options->kernels,
                                    .pool = options->pool,
                                    .rows_max = caps->rows_max,
                                    .logit_rows_max = executor->lanes[LANE_PLAIN].logit_rows_max,
                                    .layout = options->layout,
                                    .page_count = caps->page_count,
                                    .state_count = caps->state_places,
                                    .kv_is_int8 = options->kv_is_int8};
}

static enum err open_lanes(struct executor_cpu *executor, struct error *error) {
    const struct backend_caps *caps = &executor->caps;
    struct lane *plain = &executor->lanes[LANE_PLAIN];
    struct lane *urgent = &executor->lanes[LANE_URGENT];
    size_lane(plain, caps, caps->rows_max);
    size_lane(urgent, caps, caps->urgent_rows_max);
    const struct forward_options forward = forward_options_of(executor);
    enum err err = forward_open(&plain->forward, &forward, error);
    if (err != OK) return err;
    return forward_open_beside(&urgent->forward, plain->forward, caps->urgent_rows_max,
                               urgent->logit_rows_max, error);
}

static enum err open_samplers(struct executor_cpu *executor, struct error *error) {
    const struct executor_cpu_options *options = &executor->options;
    uint32_t threads = pool_threads(options->pool);
    executor->samplers = mem_new(threads, sizeof *executor->samplers);
    enum err err = OK;
    for (uint32_t i = 0; i < threads && err == OK; i++)
        err = sampler_open(&executor->samplers[i], options->kernels, options->config->token_count,
                           error);
    return err;
}

enum err executor_cpu_open(struct executor *ret_executor,
                           const struct executor_cpu_options *options, struct error *error) {
    _Static_assert(BACKEND_BLOCK_TOKENS == KV_BLOCK_TOKENS, "one block size for both sides");
    struct executor_cpu *executor = mem_new(1, sizeof *executor);
    executor->options = *options;
    enum err err = set_caps(executor, error);
    if (err == OK) err = open_lanes(executor, error);
    if (err == OK) err = open_samplers(executor, error);
    if (err == OK)
        *ret_executor =
            (struct executor){.ops = &executor_ops, .self = executor, .caps = executor->caps};
    else
        close_executor(executor);
    return err;
}

/* ---- the rows of a step ---- */

/* By trials; 0: they told nothing. */
static uint32_t try_rows(const struct executor_cpu *executor, uint32_t least) {
    const struct forward_options options = forward_options_of(executor);
    struct trial_step *step = trial_step_open(executor->lanes[LANE_PLAIN].forward, &options);
    if (!step) return 0;
    const int64_t begin_ns = clock_monotonic_ns();
    const struct step_trials trials = {.most = executor->caps.rows_max,
                                       .least = least,
                                       .run = trial_step_run,
                                       .now_ns = clock_monotonic_ns,
                                       .context = step};
    uint32_t rows = 0;
    const bool is_known = step_trials_choose(&trials, &rows);
    trial_step_close(step);
    log_info("event=step_trials rows=%u ms=%lld", is_known ? rows : 0,
             (long long)(clock_monotonic_ns() - begin_ns) / 1000000);
    return is_known ? rows : 0;
}

uint32_t executor_cpu_rows(const struct executor *executor,
                           const struct executor_cpu_notes *place) {
    const struct executor_cpu *cpu = executor->self;
    const uint32_t most = cpu->caps.rows_max;
    struct cpu_notes notes;
    struct cpu_notes_key key = {.model = place->model,
                                .model_bytes = place->model_bytes,
                                .kernels = cpu->options.kernels->name,
                                .threads = pool_threads(cpu->options.pool),
                                .most = most,
                                .least = cpu->caps.sequences_max + PROMPT_ROWS_LEAST};
    if (!cpu_notes_open(&notes, place->dir, &key)) return most;
    for (uint32_t rows = most; rows >= key.least; rows /= 2)
        if (cpu_notes_say(&notes, rows)) return rows;
    const uint32_t rows = place->may_write ? try_rows(cpu, key.least) : 0;
    if (rows == 0) return most;
    cpu_notes_keep(&notes, rows);
    return rows;
}
