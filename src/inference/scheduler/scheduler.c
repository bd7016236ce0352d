/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/scheduler.h"

#include "base/min_max.h"
#include "base/rng.h"
#include "base/str.h"
#include "scheduler/kv_pages.h"
#include "scheduler/kv_pool.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"
#include "scheduler/state_places.h"

#include <assert.h>
#include <stdlib.h>

/* In a cache of window pages only: blocks per block that has its pages. */
#define SEEN_SHARE 8u

/* The option, at most the backend's limit; 0 stands for that limit. */
static uint32_t option_or(uint32_t option, uint32_t limit) {
    return option == 0 ? limit : min_u32(option, limit);
}

static enum err check_pages(const struct backend_caps *caps, struct error *error) {
    uint64_t groups = (uint64_t)caps->full_pages + caps->window_pages;
    if (groups == 0 || groups > BACKEND_GROUPS_MAX)
        return err_set(error, ERR_INVALID, "backend: %llu pages to a block are outside 1..%u",
                       (unsigned long long)groups, BACKEND_GROUPS_MAX);
    if ((caps->window_pages > 0) != (caps->window_tokens > 0))
        return err_set(error, ERR_INVALID, "backend: %u window pages and a window of %u tokens",
                       caps->window_pages, caps->window_tokens);
    if (caps->page_count < groups || caps->page_count > KV_BLOCKS_MAX)
        return err_set(error, ERR_INVALID, "backend: %u pages are outside %u..%u", caps->page_count,
                       (uint32_t)groups, KV_BLOCKS_MAX);
    return OK;
}

static enum err check_options(const struct scheduler_options *options, struct error *error) {
    const struct backend_caps *caps = &options->backend->caps;
    if (caps->block_tokens != BACKEND_BLOCK_TOKENS)
        return err_set(error, ERR_INVALID, "backend: blocks of %u tokens, not %u",
                       caps->block_tokens, BACKEND_BLOCK_TOKENS);
    if (caps->rows_max == 0 || caps->sequences_max == 0 || caps->context_tokens_max < 2)
        return err_set(error, ERR_INVALID,
                       "backend: rows_max %u, sequences_max %u or context_tokens_max %u is too "
                       "small",
                       caps->rows_max, caps->sequences_max, caps->context_tokens_max);
    if (caps->logit_rows_max > 0 &&
        caps->logit_rows_max < min_u32(caps->sequences_max, caps->rows_max))
        return err_set(error, ERR_INVALID, "backend: logit_rows_max %u is less than the sequences",
                       caps->logit_rows_max);
    enum err err = check_pages(caps, error);
    if (err) return err;
    if (caps->vocab == 0 || caps->vocab > INT32_MAX)
        return err_set(error, ERR_INVALID, "backend: a vocabulary of %u is outside 1..%d",
                       caps->vocab, INT32_MAX);
    bool holds_two =
        caps->steps_max == 2 && options->backend->ops->sample && !options->backend->ops->advance;
    if (caps->steps_max != 1 && !holds_two)
        return err_set(error, ERR_INVALID, "backend: it cannot have %u steps under way",
                       caps->steps_max);
    if (caps->state_places > 0 && caps->state_places < caps->sequences_max)
        return err_set(error, ERR_INVALID, "backend: %u places for the states of %u sequences",
                       caps->state_places, caps->sequences_max);
    if (options->max_model_len == 1)
        return err_set(error, ERR_INVALID, "max_model_len: 1 leaves no room for a generated token");
    if (options->draft_tokens_max > SCHEDULER_DRAFT_TOKENS_MAX)
        return err_set(error, ERR_INVALID, "draft_tokens_max: %u is outside 0..%u",
                       options->draft_tokens_max, SCHEDULER_DRAFT_TOKENS_MAX);
    if (options->requests_max > SCHEDULER_REQUESTS_MAX)
        return err_set(error, ERR_INVALID, "requests_max: %u is outside 0..%u",
                       options->requests_max, SCHEDULER_REQUESTS_MAX);
    return OK;
}

static bool open_plan(struct plan *plan, uint32_t rows_max, size_t sequences, size_t groups) {
    size_t rows = rows_max > 0 ? rows_max : 1;
    plan->rows_max = rows_max;
    plan->tokens = calloc(rows, sizeof *plan->tokens);
    plan->positions = calloc(rows, sizeof *plan->positions);
    plan->sequences = calloc(sequences, sizeof *plan->sequences);
    plan->logit_rows = calloc(rows, sizeof *plan->logit_rows);
    plan->late_rows = calloc(sequences, sizeof *plan->late_rows);
    plan->copies = calloc(sequences * groups, sizeof *plan->copies);
    plan->members = calloc(sequences, sizeof(struct sequence *));
    plan->is_unstored = calloc(sequences, sizeof *plan->is_unstored);
    plan->samples = calloc(rows, sizeof *plan->samples);
    plan->step.tokens = plan->tokens;
    plan->step.positions = plan->positions;
    plan->step.sequences = plan->sequences;
    plan->step.logit_rows = plan->logit_rows;
    plan->step.copies = plan->copies;
    return plan->tokens && plan->positions && plan->sequences && plan->logit_rows &&
           plan->late_rows && plan->copies && plan->members && plan->is_unstored && plan->samples;
}

static void close_plan(struct plan *plan) {
    free(plan->samples);
    free(plan->is_unstored);
    free(plan->members);
    free(plan->copies);
    free(plan->late_rows);
    free(plan->logit_rows);
    free(plan->sequences);
    free(plan->positions);
    free(plan->tokens);
}

static bool allocate(struct scheduler *scheduler) {
    size_t sequences = scheduler->running_max;
    scheduler->running = calloc(sequences, sizeof *scheduler->running);
    scheduler->free_slots = calloc(sequences, sizeof *scheduler->free_slots);
    size_t entries = sequences * scheduler->table_blocks_max;
    size_t groups = kv_pages_per_block(scheduler->pages);
    scheduler->tables = calloc(entries, sizeof *scheduler->tables);
    scheduler->page_tables = calloc(entries * groups, sizeof *scheduler->page_tables);
    scheduler->preempted_events = calloc(sequences, sizeof *scheduler->preempted_events);
    scheduler->drafts = calloc(DRAFT_SEQUENCES_MAX, sizeof *scheduler->drafts);
    size_t blocks = kv_pool_block_count(scheduler->pool);
    scheduler->written_in = calloc(blocks, sizeof *scheduler->written_in);
    bool is_open = true;
    for (uint32_t i = 0; i < scheduler->steps_max; i++)
        is_open =
            is_open && open_plan(&scheduler->plans[i], scheduler->rows_max, sequences, groups);
    return is_open && scheduler->running && scheduler->free_slots && scheduler->tables &&
           scheduler->page_tables && scheduler->preempted_events && scheduler->written_in &&
           scheduler->drafts &&
           open_plan(&scheduler->urgent,
                     min_u32(scheduler->backend->caps.urgent_rows_max, scheduler->rows_max),
                     sequences, groups);
}

/* The number of blocks. Each block in use has its full pages. Without full pages, a block that no
 * row sees any more takes only a number, so that blocks may outnumber pages. */
static uint32_t blocks_of(const struct backend_caps *caps) {
    if (caps->full_pages > 0) return caps->page_count / caps->full_pages;
    return min_u32(caps->page_count, KV_BLOCKS_MAX / SEEN_SHARE) * SEEN_SHARE;
}

/* The blocks that a single sequence can have together with all their window pages. */
static uint32_t blocks_alone(const struct backend_caps *caps) {
    return caps->page_count / (caps->full_pages + caps->window_pages);
}

static void apply_options(struct scheduler *scheduler, const struct scheduler_options *options) {
    const struct backend_caps *caps = &options->backend->caps;
    scheduler->backend = options->backend;
    scheduler->steps_max = caps->steps_max;
    scheduler->on_event = options->on_event;
    scheduler->allowed = options->allowed;
    scheduler->given = options->given;
    scheduler->ahead = options->ahead;
    scheduler->draft_tokens_max = options->draft_tokens_max;
    scheduler->guess = options->guess;
    scheduler->guesser = options->guesser;
    scheduler->user = options->user;
    scheduler->seed = options->seed;
    scheduler->is_caching = options->enable_prefix_caching;
    scheduler->rows_max = option_or(options->max_num_batched_tokens, caps->rows_max);
    scheduler->logit_rows_max = caps->logit_rows_max > 0 ? caps->logit_rows_max : caps->rows_max;
    /* Each running sequence must have room for a row in every step. */
    uint32_t sequences_max = min_u32(caps->sequences_max, scheduler->rows_max);
    uint64_t wanted = (uint64_t)options->max_num_seqs + options->urgent_seqs;
    scheduler->running_max = sequences_max;
    if (options->max_num_seqs > 0 && wanted < sequences_max)
        scheduler->running_max = (uint32_t)wanted;
    /* Without a place to spare no state can be stored, and a prefix is of no use without one. */
    if (caps->state_places > 0 && caps->state_places <= scheduler->running_max)
        scheduler->is_caching = false;
    scheduler->others_max =
        scheduler->running_max - min_u32(options->urgent_seqs, scheduler->running_max / 4);
    /* A small max_num_seqs holds for the others although fewer slots are then kept for urgent
     * ones. */
    if (options->max_num_seqs > 0 && options->max_num_seqs < scheduler->others_max)
        scheduler->others_max = options->max_num_seqs;
    scheduler->urgent_max = scheduler->running_max -
                            (scheduler->running_max + URGENT_SLOTS_SHARE - 1) / URGENT_SLOTS_SHARE;
    scheduler->urgent_pages_max = caps->page_count - caps->page_count / URGENT_PAGES_SHARE;
    scheduler->context_tokens_max = option_or(options->max_model_len, caps->context_tokens_max);
    scheduler->requests_max = option_or(options->requests_max, SCHEDULER_REQUESTS_MAX);
    scheduler->table_blocks_max =
        min_u32(backend_blocks_for(scheduler->context_tokens_max), blocks_alone(caps));
}

static enum err open_cache(struct scheduler *scheduler, struct error *error) {
    const struct backend_caps *caps = &scheduler->backend->caps;
    struct kv_shape shape = {caps->page_count, caps->full_pages, caps->window_pages};
    uint32_t blocks = blocks_of(caps);
    enum err err = kv_pool_open(&scheduler->pool, blocks, error);
    if (!err) err = kv_pages_open(&scheduler->pages, &shape, blocks, error);
    if (!err && caps->state_places > 0)
        err = state_places_open(&scheduler->states, caps->state_places, blocks, error);
    if (!err)
        err = prefix_tree_open(&scheduler->tree, scheduler->pool, scheduler->pages,
                               scheduler->states, error);
    return err;
}

enum err scheduler_open(struct scheduler **ret_scheduler, const struct scheduler_options *options,
                        struct error *error) {
    assert(options->backend);
    enum err err = check_options(options, error);
    if (err) return err;
    struct scheduler *scheduler = calloc(1, sizeof *scheduler);
    if (!scheduler) return err_set(error, ERR_LIMIT, "scheduler: no memory");
    apply_options(scheduler, options);
    admission_init(&scheduler->admission);
    err = open_cache(scheduler, error);
    if (!err && !allocate(scheduler))
        err = err_set(error, ERR_LIMIT, "scheduler: no memory for %u sequences of %u blocks",
                      scheduler->running_max, scheduler->table_blocks_max);
    if (err) {
        scheduler_close(scheduler);
        return err;
    }
    for (uint32_t i = 0; i < scheduler->running_max; i++)
        scheduler->free_slots[i] = scheduler->running_max - 1 - i;
    scheduler->free_slot_count = scheduler->running_max;
    *ret_scheduler = scheduler;
    return OK;
}

void scheduler_close(struct scheduler *scheduler) {
    if (!scheduler) return;
    while (scheduler->running_count > 0) {
        struct sequence *last = scheduler->running[scheduler->running_count - 1];
        last->steps = 0; /* above 0 after an error of the backend */
        stop_running(scheduler, last);
    }
    request_table_release(&scheduler->requests);
    prefix_tree_close(scheduler->tree);
    state_places_close(scheduler->states);
    kv_pages_close(scheduler->pages);
    kv_pool_close(scheduler->pool);
    free(scheduler->drafts);
    free(scheduler->preempted_events);
    close_plan(&scheduler->urgent);
    for (uint32_t i = 0; i < BACKEND_STEPS_MAX; i++) close_plan(&scheduler->plans[i]);
    free(scheduler->written_in);
    free(scheduler->page_tables);
    free(scheduler->tables);
    free(scheduler->free_slots);
    free(scheduler->running);
    free(scheduler);
}

/* The most tokens that a sequence of this request can have: prompt and max_tokens, which must fit,
 * or without max_tokens as many as fit. */
static enum err find_tokens_max(const struct scheduler *scheduler,
                                const struct scheduler_request *request, uint32_t *ret_tokens_max,
                                struct error *error) {
    uint64_t prompt = request->prompt_count;
    uint64_t output = request->sampling.max_tokens;
    if (output == 0) output = request->sampling.min_tokens > 0 ? request->sampling.min_tokens : 1;
    uint64_t context = scheduler->context_tokens_max;
    if (prompt + output > context)
        return err_set(error, ERR_LIMIT,
                       "a prompt of %u tokens and %u generated tokens are more than the context "
                       "of %u tokens",
                       request->prompt_count, (uint32_t)output, scheduler->context_tokens_max);
    /* The last generated token needs no place in the cache. */
    uint32_t blocks = blocks_alone(&scheduler->backend->caps);
    uint64_t pool = (uint64_t)blocks * BACKEND_BLOCK_TOKENS + 1;
    if (prompt + output > pool)
        return err_set(error, ERR_LIMIT,
                       "a prompt of %u tokens and %u generated tokens need more than the whole KV "
                       "cache of %u blocks of %u tokens",
                       request->prompt_count, (uint32_t)output, blocks, BACKEND_BLOCK_TOKENS);
    uint64_t most = context < pool ? context : pool;
    *ret_tokens_max = (uint32_t)(request->sampling.max_tokens == 0 ? most : prompt + output);
    return OK;
}

static enum err check_request(const struct scheduler *scheduler,
                              const struct scheduler_request *request, struct error *error) {
    uint32_t vocab = scheduler->backend->caps.vocab;
    if (request->prompt_count == 0) return err_set(error, ERR_INVALID, "the prompt has no tokens");
    if (request->sequence_count > SCHEDULER_SEQUENCES_PER_REQUEST_MAX)
        return err_set(error, ERR_INVALID, "n: %u is outside 1..%u", request->sequence_count,
                       SCHEDULER_SEQUENCES_PER_REQUEST_MAX);
    for (uint32_t i = 0; i < request->prompt_count; i++)
        if (request->prompt[i] < 0 || (uint32_t)request->prompt[i] >= vocab)
            return err_set(error, ERR_INVALID, "the prompt has token %d at %u, outside 0..%u",
                           request->prompt[i], i, vocab - 1);
    return sampling_check(&request->sampling, vocab, error);
}

/* Appends the tokens that come first in the sequences of a new request, which on_event may end. */
static void give_first(struct scheduler *scheduler, struct live_request *request) {
    uint32_t count = request->sequence_count;
    /* Scores of the prompt come before all tokens. */
    if (!scheduler->given || !request->is_constrained || request->sampling.prompt_logprobs) return;
    /* Held as if they had rows under way, so that the request stays until all are done. */
    for (uint32_t i = 0; i < count; i++) request->sequences[i].steps++;
    for (uint32_t i = 0; i < count; i++) take_given(scheduler, &request->sequences[i]);
    for (uint32_t i = 0; i < count; i++) request->sequences[i].steps--;
    let_go_leaving(scheduler);
}

enum err scheduler_submit(struct scheduler *scheduler, const struct scheduler_request *request,
                          struct error *error) {
    enum err err = check_request(scheduler, request, error);
    if (err) return err;
    uint32_t tokens_max = 0;
    err = find_tokens_max(scheduler, request, &tokens_max, error);
    if (err) return err;
    assert(!request->is_constrained || scheduler->allowed);
    if (request_table_find(&scheduler->requests, request->id))
        return err_set(error, ERR_CONFLICT, "request %llu is already here",
                       (unsigned long long)request->id);
    if (scheduler->requests.count >= scheduler->requests_max)
        return err_set(error, ERR_UNAVAILABLE, "%u %s waiting or running",
                       scheduler->requests.count,
                       plural(scheduler->requests.count, "request is", "requests are"));

    uint64_t seed =
        request->sampling.has_seed ? request->sampling.seed : rng_at(scheduler->seed, request->id);
    uint32_t sequence_count = request->sequence_count > 0 ? request->sequence_count : 1;
    /* A prompt over the share of all urgent sequences would starve the others. */
    struct scheduler_request known = *request;
    uint64_t pages =
        (uint64_t)backend_blocks_for(request->prompt_count) * kv_pages_per_block(scheduler->pages);
    known.is_urgent =
        request->is_urgent && scheduler->urgent_max > 0 && pages <= scheduler->urgent_pages_max;
    struct live_request *copy = live_request_open(&known, sequence_count, tokens_max, seed);
    /* A limit that the context sets is no guess at the length of the answer. */
    const bool is_limited = tokens_max < scheduler->context_tokens_max;
    if (!copy->is_urgent)
        copy->waiting.answer_max = is_limited ? tokens_max - request->prompt_count : UINT32_MAX;
    request_table_add(&scheduler->requests, copy);
    scheduler->open_sequences += sequence_count;
    waiting_add(&scheduler->lines[copy->is_urgent ? LINE_URGENT : LINE_OTHERS].waiting,
                &copy->waiting);
    give_first(scheduler, copy);
    return OK;
}

void scheduler_finish(struct scheduler *scheduler, uint64_t id, uint32_t sequence) {
    struct live_request *request = request_table_find(&scheduler->requests, id);
    if (!request || sequence >= request->sequence_count) return;
    mark_leaving(scheduler, &request->sequences[sequence], FINISH_STOP);
    let_go_leaving(scheduler);
}

void scheduler_cancel(struct scheduler *scheduler, uint64_t id) {
    struct live_request *request = request_table_find(&scheduler->requests, id);
    if (!request) return;
    for (uint32_t i = request->sequence_count; i-- > 0;)
        mark_leaving(scheduler, &request->sequences[i], FINISH_CANCELLED);
    let_go_leaving(scheduler);
}

/* Called when the step has been submitted and on_event may call the scheduler. It may have ended a
 * preempted sequence before its event. */
static void report_preempted(const struct scheduler *scheduler) {
    for (uint32_t i = 0; i < scheduler->preempted_event_count && scheduler->on_event; i++) {
        struct preempted_event at = scheduler->preempted_events[i];
        const struct live_request *request = request_table_find(&scheduler->requests, at.id);
        if (!request || at.sequence >= request->sequence_count ||
            request->sequences[at.sequence].state != SEQUENCE_PREEMPTED)
            continue;
        struct scheduler_event event = {
            .kind = SCHEDULER_PREEMPTED,
            .id = at.id,
            .sequence = at.sequence,
        };
        scheduler->on_event(scheduler->user, &event);
    }
}

uint32_t scheduler_under_way(const struct scheduler *scheduler) {
    return scheduler->under_way;
}

uint32_t scheduler_newest_rows(struct scheduler *scheduler) {
    assert(scheduler->under_way > 0);
    return plan_at(scheduler, scheduler->under_way - 1)->step.row_count;
}

uint32_t scheduler_steps_max(const struct scheduler *scheduler) {
    return scheduler->steps_max;
}

enum err scheduler_begin(struct scheduler *scheduler, bool *ret_started, struct error *error) {
    assert(scheduler->under_way < scheduler->steps_max);
    *ret_started = false;
    if (!scheduler_has_work(scheduler) || !compose_step(scheduler)) return OK;
    const struct backend *backend = scheduler->backend;
    const struct plan *plan = plan_at(scheduler, scheduler->under_way);
    enum err err = backend->ops->submit(backend->self, &plan->step, error);
    if (err) return err;
    scheduler->under_way++;
    report_preempted(scheduler);
    *ret_started = true;
    return OK;
}

/* Lets the step that has become the oldest sample its late rows, if it has any. */
static enum err sample_late(struct scheduler *scheduler, struct error *error) {
    if (scheduler->under_way == 0) return OK;
    struct plan *plan = plan_at(scheduler, 0);
    uint32_t count = compose_late(scheduler, plan);
    if (count == 0) return OK;
    const struct backend *backend = scheduler->backend;
    return backend->ops->sample(backend->self, plan->step.number, plan->late_rows, count, error);
}

enum err scheduler_end(struct scheduler *scheduler, struct error *error) {
    assert(scheduler->under_way > 0);
    const struct backend *backend = scheduler->backend;
    struct step_result result = {.samples = plan_at(scheduler, 0)->samples};
    enum err err = backend->ops->wait(backend->self, &result, error);
    if (err) return err;
    scheduler->stats.nonfinite_rows += result.nonfinite_rows;
    retire_step(scheduler);
    return sample_late(scheduler, error);
}

enum err scheduler_advance(struct scheduler *scheduler, bool *ret_done, struct error *error) {
    assert(scheduler->under_way > 0);
    const struct backend *backend = scheduler->backend;
    *ret_done = true;
    if (!backend->ops->advance) return OK;
    if (!compose_urgent(scheduler)) return backend->ops->advance(backend->self, ret_done, error);
    struct step_result result = {.samples = scheduler->urgent.samples};
    enum err err = backend->ops->interject(backend->self, &scheduler->urgent.step, &result, error);
    if (err) return err;
    scheduler->stats.nonfinite_rows += result.nonfinite_rows;
    retire_urgent(scheduler);
    *ret_done = false;
    return OK;
}

enum err scheduler_step(struct scheduler *scheduler, struct error *error) {
    bool started;
    enum err err = scheduler_begin(scheduler, &started, error);
    if (err || !started) return err;
    return scheduler_end(scheduler, error);
}

void scheduler_note_time(struct scheduler *scheduler, int64_t ns) {
    step_costs_note(&scheduler->costs, scheduler->ended_rows, ns - scheduler->guessed_ns);
    scheduler->ended_rows = 0;
}

void scheduler_stats(const struct scheduler *scheduler, struct scheduler_stats *ret_stats) {
    struct scheduler_stats stats = scheduler->stats;
    stats.requests = scheduler->requests.count;
    stats.sequences_running = scheduler->running_count;
    for (int kind = 0; kind < LINE_COUNT; kind++)
        for (const struct sequence *at = scheduler->lines[kind].preempted; at;
             at = at->next_preempted)
            stats.sequences_preempted++;
    stats.sequences_waiting =
        scheduler->open_sequences - scheduler->running_count - stats.sequences_preempted;
    uint32_t available = prefix_tree_available_pages(scheduler->tree);
    stats.pages_total = scheduler->backend->caps.page_count;
    stats.pages_free = kv_pages_free_count(scheduler->pages);
    stats.pages_cached = available - stats.pages_free;
    stats.pages_used = stats.pages_total - available;
    stats.evictions = prefix_tree_evictions(scheduler->tree);
    if (scheduler->states) {
        stats.states_total = scheduler->backend->caps.state_places;
        stats.states_used = scheduler->running_count;
        stats.states_stored = state_places_stored_count(scheduler->states);
        stats.state_evictions = state_places_evictions(scheduler->states);
    }
    *ret_stats = stats;
}
