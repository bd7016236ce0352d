/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include "base/rng.h"
#include "fake_backend.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/scheduler.h"
#include "scheduler/state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PREFIXES 6u
#define PREFIX_TOKENS_MAX 200u
#define PROMPT_TOKENS_MAX 320u
#define VOCAB_MAX 64u
#define STOP_TOKEN 5

struct expected_sequence {
    uint64_t hash; /* limit of prompt and generated tokens */
    uint64_t seed;
    uint32_t scored; /* tokens of the prompt */
    uint32_t generated;
    uint32_t given;    /* tokens that it was given last and that have not come */
    uint32_t asked_at; /* tokens it has behind those it was given when asked last; +1 */
    bool has_sampled;
    uint32_t preemptions;
    bool has_started;
    bool is_finished;
    bool is_due; /* must bring FINISHED next, for this reason */
    enum finish_reason due_reason;
    bool due_stop_token;
};

struct expected_request {
    int32_t prompt[PROMPT_TOKENS_MAX];
    struct sampling sampling;
    uint32_t prompt_count;
    uint32_t generated_max;
    uint32_t open_count;
    uint32_t sequence_count;
    bool is_constrained;
    bool is_urgent;
    uint64_t begun_before; /* sequences of its line that had begun when it came */
    struct expected_sequence *sequences;
};

struct world {
    struct rng rng;
    struct fake_options fake;
    struct backend backend;
    struct scheduler *scheduler;
    uint32_t context_tokens_max;
    uint32_t running_max;
    uint32_t steps_max;        /* steps under way: 1 or 2 */
    uint32_t load;             /* requests the world tries to keep waiting */
    uint32_t urgent_one_in;    /* one request in this number is urgent; 0: none is */
    bool is_reckless;          /* admission expects much less than comes */
    struct admission reckless; /* the sentence expected then */
    bool is_one_priority;
    bool is_under_way; /* between begin and end */
    bool is_passing;   /* inside scheduler_advance */
    bool is_meddling;  /* calls the scheduler from inside events */
    bool is_giving;    /* constrained sequences are given tokens now and then */
    bool has_times;    /* the scheduler is told how long steps take */
    int32_t prefixes[PREFIXES][PREFIX_TOKENS_MAX];
    uint32_t prefix_counts[PREFIXES];
    uint32_t allowed[(VOCAB_MAX + 31) / 32];

    struct expected_request **requests; /* (request_count of request_room) by id; NULL once over */
    uint32_t request_count;
    uint32_t request_room;
    uint32_t open_sequences;
    uint32_t open_peak;
    uint64_t begun[2]; /* sequences with a first token, and those of urgent requests */
    struct world_totals *totals;
};

static uint32_t below(struct world *world, uint32_t bound) {
    return (uint32_t)rng_below(&world->rng, bound);
}

static bool one_in(struct world *world, uint32_t count) {
    return below(world, count) == 0;
}

static uint32_t between(struct world *world, uint32_t low, uint32_t high) {
    return low + below(world, high - low + 1);
}

/* Blocks of one sequence that has the cache to itself. */
static uint32_t blocks_alone(const struct world *world) {
    return world->fake.caps.page_count /
           (world->fake.caps.full_pages + world->fake.caps.window_pages);
}

/* ---- requests ---- */

static void make_prefixes(struct world *world) {
    for (uint32_t i = 0; i < PREFIXES; i++) {
        uint32_t count = one_in(world, 2) ? 16 * between(world, 1, PREFIX_TOKENS_MAX / 16)
                                          : between(world, 1, PREFIX_TOKENS_MAX);
        /* Some grow out of others, so that the tree has inner nodes. */
        if (i > 0 && one_in(world, 2))
            memcpy(world->prefixes[i], world->prefixes[i - 1], sizeof world->prefixes[i]);
        uint32_t own = i > 0 ? below(world, count + 1) : 0;
        for (uint32_t k = own; k < PREFIX_TOKENS_MAX; k++)
            world->prefixes[i][k] = (int32_t)below(world, world->fake.caps.vocab);
        world->prefix_counts[i] = world->is_reckless ? 1 + count % 20 : count;
    }
}

static uint32_t make_prompt(struct world *world, int32_t *ret_prompt) {
    uint32_t which = below(world, PREFIXES);
    uint32_t count = world->prefix_counts[which];
    memcpy(ret_prompt, world->prefixes[which], count * sizeof *ret_prompt);
    uint32_t more = 0;
    uint32_t kind = below(world, 5);
    if (kind == 0) more = 0; /* equal to other prompts, and perhaps to a cached prefix */
    if (kind == 1) more = (16 - count % 16) % 16 + 16 * below(world, 3); /* whole blocks */
    if (kind == 2) more = between(world, 1, 8);
    if (kind >= 3 && world->is_reckless) more = below(world, 8);
    if (kind >= 3 && !world->is_reckless)
        more = between(world, 1, PROMPT_TOKENS_MAX - PREFIX_TOKENS_MAX);
    for (uint32_t i = 0; i < more; i++)
        ret_prompt[count + i] = (int32_t)below(world, world->fake.caps.vocab);
    return count + more;
}

static struct sampling make_sampling(struct world *world) {
    static const int32_t end_tokens[] = {FAKE_END_TOKEN};
    static const int32_t stop_tokens[] = {STOP_TOKEN};
    struct sampling sampling = {.end_tokens = end_tokens, .end_token_count = 1};
    sampling.temperature = one_in(world, 2) ? 1.0f : 0.0f;
    sampling.has_seed = one_in(world, 2);
    sampling.seed = below(world, 3);
    sampling.max_tokens = between(world, 1, 60);
    if (one_in(world, 10)) sampling.max_tokens = 1;
    if (one_in(world, 20)) sampling.max_tokens = 0;
    if (one_in(world, 40)) sampling.max_tokens = between(world, 200, 20000);
    if (one_in(world, 8) && sampling.max_tokens > 0)
        sampling.min_tokens = below(world, sampling.max_tokens + 1);
    sampling.ignore_eos = one_in(world, 5);
    sampling.stop_tokens = stop_tokens;
    sampling.stop_token_count = one_in(world, 8);
    if (world->is_reckless && one_in(world, 2)) {
        uint32_t pool_tokens = 16 * blocks_alone(world);
        sampling.max_tokens =
            between(world, 60, one_in(world, 4) ? pool_tokens - 60 : pool_tokens / 4);
        sampling.min_tokens = 0;
        sampling.ignore_eos = true;
        sampling.stop_token_count = 0;
    }
    if (world->steps_max > 1 && one_in(world, 6)) sampling.presence_penalty = 1; /* late rows */
    sampling.logprobs = one_in(world, 6);
    sampling.top_logprobs = sampling.logprobs ? below(world, 21) : 0;
    sampling.prompt_logprobs = one_in(world, 8);
    sampling.prompt_top_logprobs = sampling.prompt_logprobs ? below(world, 21) : 0;
    return sampling;
}

/* The result that scheduler_submit must give. */
static bool is_too_large(const struct world *world, struct expected_request *request) {
    uint64_t context = world->context_tokens_max;
    uint64_t pool = (uint64_t)blocks_alone(world) * BACKEND_BLOCK_TOKENS + 1;
    uint64_t most = context < pool ? context : pool;
    uint64_t wanted = request->sampling.max_tokens > 0 ? request->sampling.max_tokens : 1;
    if (request->prompt_count + wanted > most) return true;
    request->generated_max = request->sampling.max_tokens > 0
                                 ? request->sampling.max_tokens
                                 : (uint32_t)most - request->prompt_count;
    return false;
}

static void release_request(struct world *world, uint32_t index) {
    free(world->requests[index]->sequences);
    free(world->requests[index]);
    world->requests[index] = NULL;
}

static void remember(struct world *world, struct expected_request *request) {
    if (world->request_count == world->request_room) {
        world->request_room = world->request_room > 0 ? world->request_room * 2 : 64;
        world->requests =
            realloc(world->requests, world->request_room * sizeof(struct expected_request *));
        if (!world->requests) abort();
    }
    uint32_t id = world->request_count;
    world->requests[world->request_count++] = request;
    uint64_t hash = FAKE_HASH_START;
    for (uint32_t i = 0; i < request->prompt_count; i++) hash = fake_hash(hash, request->prompt[i]);
    uint64_t seed = request->sampling.has_seed ? request->sampling.seed : rng_at(99, id);
    for (uint32_t i = 0; i < request->sequence_count; i++) {
        request->sequences[i].hash = hash;
        request->sequences[i].seed = i == 0 ? seed : rng_at(seed, i);
    }
    request->open_count = request->sequence_count;
    request->begun_before = world->begun[request->is_urgent];
    world->open_sequences += request->sequence_count;
    if (world->open_sequences > world->open_peak) world->open_peak = world->open_sequences;
    world->totals->requests++;
    world->totals->sequences += request->sequence_count;
}

static void submit_copies(struct world *world, const struct expected_request *model) {
    struct expected_request *request = malloc(sizeof *request);
    if (!request) abort();
    *request = *model;
    request->sequence_count = one_in(world, 8) ? between(world, 2, 5) : 1;
    request->is_constrained = one_in(world, world->is_giving ? 2 : 10);
    bool wants_haste = world->urgent_one_in > 0 && one_in(world, world->urgent_one_in);
    request->is_urgent = wants_haste && world->scheduler->urgent_max > 0 &&
                         backend_blocks_for(request->prompt_count) *
                                 (world->fake.caps.full_pages + world->fake.caps.window_pages) <=
                             world->scheduler->urgent_pages_max;
    request->sequences = calloc(request->sequence_count, sizeof *request->sequences);
    if (!request->sequences) abort();
    struct scheduler_request ask = {
        .id = world->request_count,
        .priority = world->is_one_priority ? 0 : (int64_t)below(world, 4) - 1,
        .sequence_count = request->sequence_count,
        .prompt = request->prompt,
        .prompt_count = request->prompt_count,
        .sampling = request->sampling,
        .is_constrained = request->is_constrained,
        .is_urgent = wants_haste,
    };
    struct error error;
    bool refuse = is_too_large(world, request);
    if (!refuse && one_in(world, 50) && world->open_sequences > 0) {
        for (uint32_t i = 0; i < world->request_count; i++) {
            if (!world->requests[i]) continue;
            struct scheduler_request again = ask;
            again.id = i;
            enum err conflict = scheduler_submit(world->scheduler, &again, &error);
            assert(conflict == ERR_CONFLICT);
            break;
        }
    }
    /* Known before, because given tokens come inside scheduler_submit. */
    if (!refuse) remember(world, request);
    enum err err = scheduler_submit(world->scheduler, &ask, &error);
    assert(err == (refuse ? ERR_LIMIT : OK));
    if (!refuse) return;
    world->totals->refused++;
    free(request->sequences);
    free(request);
}

static void submit_some(struct world *world) {
    struct expected_request model = {.sampling = make_sampling(world)};
    model.prompt_count = make_prompt(world, model.prompt);
    uint32_t copies = one_in(world, 12) ? between(world, 2, 12) : 1;
    for (uint32_t i = 0; i < copies; i++) submit_copies(world, &model);
}

/* ---- cancelling and finishing ---- */

static void expect_end(struct world *world, struct expected_sequence *sequence,
                       enum finish_reason reason) {
    if (sequence->is_finished || sequence->is_due) return;
    sequence->is_due = true;
    sequence->due_reason = reason;
    sequence->due_stop_token = false;
    world->totals->cancelled += reason == FINISH_CANCELLED;
    world->totals->finished_by_caller += reason == FINISH_STOP;
    world->totals->ended_under_way += world->is_under_way;
}

static void cancel_or_finish(struct world *world, uint32_t id) {
    struct expected_request *request = world->requests[id];
    if (request && one_in(world, 2)) {
        uint32_t index = below(world, request->sequence_count);
        expect_end(world, &request->sequences[index], FINISH_STOP);
        scheduler_finish(world->scheduler, id, index);
        if (one_in(world, 4)) scheduler_finish(world->scheduler, id, index); /* idempotent */
        return;
    }
    for (uint32_t i = 0; request && i < request->sequence_count; i++)
        expect_end(world, &request->sequences[i], FINISH_CANCELLED);
    scheduler_cancel(world->scheduler, id);
}

static void meddle(struct world *world) {
    if (world->request_count > 0 && one_in(world, 30)) {
        /* Mostly a recent one; also one that is long over. */
        uint32_t back = one_in(world, 4) ? world->request_count : 40;
        if (back > world->request_count) back = world->request_count;
        cancel_or_finish(world, world->request_count - 1 - below(world, back));
    }
    if (one_in(world, 60)) submit_some(world);
}

/* ---- events ---- */

static void mix_event(struct world *world, const struct scheduler_event *event) {
    uint64_t hash = world->totals->events_hash;
    hash = rng_at(hash, event->id * 8 + event->kind);
    hash = rng_at(hash, (uint64_t)event->sequence << 32 | (uint32_t)event->token);
    world->totals->events_hash = rng_at(hash, event->generated_tokens);
}

/* The token that follows a prefix where one is given: never one that ends a sequence. */
static int32_t given_token(uint64_t hash) {
    return 1 + (int32_t)(rng_at(hash, 77) % (STOP_TOKEN - 1));
}

/* Tokens are given at places that the prefix tells, so that equal sequences are given equal
 * ones. */
static uint32_t given(void *user, uint64_t id, uint32_t index, uint32_t room, int32_t *ret_tokens) {
    struct world *world = user;
    struct expected_request *request = world->requests[id];
    struct expected_sequence *sequence = &request->sequences[index];
    assert(request->is_constrained && index < request->sequence_count && !sequence->is_due);
    assert(room > 0 && room <= request->generated_max - sequence->generated);
    assert(sequence->given == 0);
    sequence->asked_at = sequence->generated + 1;
    uint64_t drawn = rng_at(sequence->hash, 78), hash = sequence->hash;
    if (!world->is_giving || drawn % 3 != 0) return 0;
    uint32_t count = 1 + (uint32_t)(rng_at(drawn, 1) % (drawn % 7 == 0 ? 60 : 6));
    if (count > room) count = room;
    for (uint32_t i = 0; i < count; i++) {
        ret_tokens[i] = given_token(hash);
        hash = fake_hash(hash, ret_tokens[i]);
    }
    sequence->given = count;
    sequence->asked_at += count;
    return count;
}

/* Notes the first token that was computed; a given one may come before the sequence runs. */
static void begin(struct world *world, const struct expected_request *request,
                  struct expected_sequence *sequence) {
    uint64_t waited = world->begun[request->is_urgent]++ - request->begun_before;
    sequence->has_sampled = true;
    world->totals->urgent += request->is_urgent;
    world->totals->passed += request->is_urgent && world->is_passing;
    /* Two sweeps of at most twice the requests that were ever open, and the sequences that
     * began before. */
    if (world->is_one_priority) assert(waited <= 4 * world->open_peak + world->running_max);
}

static int32_t expected_token(struct world *world, const struct expected_request *request,
                              struct expected_sequence *sequence, bool is_given) {
    if (is_given) {
        assert(sequence->given > 0);
        sequence->given--;
        world->totals->given++;
        return given_token(sequence->hash);
    }
    assert(sequence->given == 0);
    bool is_asked =
        request->is_constrained && (sequence->generated > 0 || !request->sampling.prompt_logprobs);
    assert(!is_asked || sequence->asked_at == sequence->generated + 1);
    return fake_next_token(&world->fake, sequence->hash, &request->sampling, sequence->seed,
                           sequence->generated, request->is_constrained ? world->allowed : NULL);
}

static void on_token(struct world *world, struct expected_request *request,
                     const struct scheduler_event *event) {
    struct expected_sequence *sequence = &request->sequences[event->sequence];
    assert(!sequence->is_due && event->token_index == sequence->generated);
    world->totals->late += world->steps_max > 1 && sequence->generated > 0 &&
                           (request->is_constrained || request->sampling.presence_penalty > 0);
    assert(event->is_given || sequence->has_started);
    assert(sequence->scored == (request->sampling.prompt_logprobs ? request->prompt_count - 1 : 0));
    if (!event->is_given && !sequence->has_sampled) begin(world, request, sequence);
    int32_t token = expected_token(world, request, sequence, event->is_given);
    assert(event->token == token);
    assert((event->sample != NULL) == (request->sampling.logprobs && !event->is_given));
    assert(!event->sample || event->sample->top_count == request->sampling.top_logprobs);
    sequence->hash = fake_hash(sequence->hash, token);
    sequence->generated++;
    world->totals->tokens++;

    if (world->is_meddling && one_in(world, 60)) {
        expect_end(world, sequence, FINISH_STOP);
        scheduler_finish(world->scheduler, event->id, event->sequence);
    }
    if (world->is_meddling) meddle(world);
    if (sequence->is_due) return;
    bool is_stop = (token == FAKE_END_TOKEN && !request->sampling.ignore_eos) ||
                   (token == STOP_TOKEN && request->sampling.stop_token_count > 0);
    if (is_stop && sequence->generated > request->sampling.min_tokens) {
        sequence->is_due = sequence->due_stop_token = true;
        sequence->due_reason = FINISH_STOP;
    } else if (sequence->generated == request->generated_max) {
        sequence->is_due = true;
        sequence->due_reason = FINISH_LENGTH;
    }
}

static void on_finished(struct world *world, struct expected_request *request,
                        const struct scheduler_event *event) {
    struct expected_sequence *sequence = &request->sequences[event->sequence];
    assert(sequence->is_due && !sequence->is_finished);
    assert(event->reason == sequence->due_reason);
    assert(event->has_stop_token == sequence->due_stop_token);
    assert(event->prompt_tokens == request->prompt_count);
    assert(event->generated_tokens == sequence->generated);
    /* A prompt is found whole where given tokens behind it are, too. */
    assert(event->cached_tokens == request->prompt_count ||
           (event->cached_tokens < request->prompt_count &&
            (world->fake.caps.copies_pages || event->cached_tokens % 16 == 0)));
    sequence->is_finished = true;
    world->open_sequences--;
    if (--request->open_count == 0) release_request(world, (uint32_t)event->id);
}

/* After a preemption a sequence that started before the victim still runs. */
static bool has_older_running(const struct world *world, const struct scheduler_event *event) {
    const struct scheduler *scheduler = world->scheduler;
    const struct live_request *request = request_table_find(&scheduler->requests, event->id);
    for (uint32_t i = 0; i < scheduler->running_count; i++)
        if (scheduler->running[i]->started < request->sequences[event->sequence].started)
            return true;
    return false;
}

static void on_event(void *user, const struct scheduler_event *event) {
    struct world *world = user;
    assert(event->id < world->request_count);
    struct expected_request *request = world->requests[event->id];
    assert(request && event->sequence < request->sequence_count);
    struct expected_sequence *sequence = &request->sequences[event->sequence];
    assert(!sequence->is_finished);
    mix_event(world, event);
    switch (event->kind) {
    case SCHEDULER_STARTED:
        assert(!sequence->has_started);
        sequence->has_started = true;
        break;
    case SCHEDULER_SCORED:
        assert(!sequence->is_due && sequence->generated == 0);
        assert(event->token_index == ++sequence->scored);
        assert(event->token == request->prompt[event->token_index]);
        assert(event->sample->top_count == request->sampling.prompt_top_logprobs);
        if (world->is_meddling) meddle(world);
        break;
    case SCHEDULER_TOKEN: on_token(world, request, event); break;
    case SCHEDULER_FINISHED:
        on_finished(world, request, event);
        if (world->is_meddling) meddle(world);
        break;
    case SCHEDULER_PREEMPTED:
        assert(!sequence->is_due && ++sequence->preemptions <= 2);
        assert(has_older_running(world, event));
        world->totals->preempted_twice += sequence->preemptions == 2;
        if (world->is_meddling) meddle(world);
        break;
    }
}

static const uint32_t *allowed(void *user, uint64_t id, uint32_t sequence) {
    struct world *world = user;
    const struct expected_request *request = world->requests[id];
    assert(request && request->is_constrained && sequence < request->sequence_count);
    return world->allowed;
}

/* A model that is seldom right, and now and then has tokens that the other one does not know. */
static void guess(void *guesser, struct scheduler_guess *guess) {
    struct world *world = guesser;
    assert(guess->sequence > 0 && guess->prompt_count > 0);
    assert(guess->room >= 1 && guess->room <= SCHEDULER_DRAFT_TOKENS_MAX);
    guess->count = below(world, guess->room + 1);
    for (uint32_t i = 0; i < guess->count; i++) {
        guess->tokens[i] = (int32_t)below(world, world->fake.caps.vocab + 2) - 1;
        guess->certainty[i] = (uint8_t)below(world, 256);
    }
    guess->ns = between(world, 1, 1000);
    guess->token_ns = guess->count > 0 && !one_in(world, 4) ? guess->ns / guess->count : 0;
}

/* The first tokens that are allowed, but for those that the prefix tells. */
static uint32_t ahead(void *user, uint64_t id, uint32_t index, const int32_t *tokens,
                      uint32_t count, const uint32_t **ret_allowed) {
    struct world *world = user;
    const struct expected_request *request = world->requests[id];
    assert(request && request->is_constrained && index < request->sequence_count && count > 0);
    uint32_t known = 0;
    uint64_t drawn = rng_at(request->sequences[index].hash, 79);
    if (drawn % 4 == 0) count = (uint32_t)(drawn / 4 % (count + 1));
    while (known < count && world->allowed[tokens[known] / 32] >> (tokens[known] % 32) & 1)
        ret_allowed[known++] = world->allowed;
    return known;
}

/* The life. */

/* Geometric lengths with a mean rest of a block or two, however far a sequence got. */
static void make_reckless(struct admission *ret_admission) {
    memset(ret_admission, 0, sizeof *ret_admission);
    double weight = 0x1p-20;
    for (uint32_t i = 64; i-- > 0; weight *= 2) {
        double tokens = 16.0 * i + 8;
        ret_admission->buckets[i] =
            (struct admission_sums){weight, weight * tokens, weight * tokens * tokens};
        struct admission_sums *above = &ret_admission->above[i];
        *above = ret_admission->above[i + 1];
        above->weight += ret_admission->buckets[i].weight;
        above->length += ret_admission->buckets[i].length;
        above->square += ret_admission->buckets[i].square;
    }
}

/* In every other world sequences have states. Some have no place to spare, some one or two. */
static void make_states(struct world *world) {
    struct backend_caps *caps = &world->fake.caps;
    if (one_in(world, 2)) return;
    caps->state_places =
        caps->sequences_max + (one_in(world, 2) ? below(world, 4) : below(world, 100));
}

/* In every other world some layers, or all, see a window only. */
static void make_windows(struct world *world) {
    struct backend_caps *caps = &world->fake.caps;
    caps->full_pages = 1;
    if (one_in(world, 2)) return;
    caps->full_pages = one_in(world, 4) ? 0 : between(world, 1, 2);
    caps->window_pages = between(world, 1, 5);
    caps->window_tokens = one_in(world, 4) ? between(world, 2, 20) : between(world, 2, 300);
    caps->page_count *= caps->full_pages + caps->window_pages;
    caps->page_count += below(world, 5);
}

static void world_open(struct world *world) {
    struct backend_caps *caps = &world->fake.caps;
    world->is_reckless = one_in(world, 3);
    caps->block_tokens = BACKEND_BLOCK_TOKENS;
    caps->steps_max = world->steps_max;
    caps->copies_pages = !one_in(world, 4);
    caps->page_count = one_in(world, 3) ? between(world, 20, 60) : between(world, 20, 500);
    caps->rows_max = one_in(world, 3) ? between(world, 1, 40) : between(world, 20, 600);
    caps->sequences_max = one_in(world, 4) ? between(world, 1, 4) : between(world, 2, 48);
    caps->context_tokens_max = one_in(world, 3) ? between(world, 50, 400) : 10000;
    caps->vocab = between(world, 8, VOCAB_MAX);
    world->fake.end_one_in = one_in(world, 3) ? 0 : between(world, 2, 60);
    world->fake.period = one_in(world, 3) ? between(world, 1, 20) : 0;
    world->is_one_priority = one_in(world, 2);
    world->is_meddling = one_in(world, 2);
    world->is_giving = one_in(world, 2);
    world->load = one_in(world, 3) ? between(world, 100, 300) : between(world, 1, 60);
    for (uint32_t i = 0; i < sizeof world->allowed / sizeof world->allowed[0]; i++)
        world->allowed[i] = (uint32_t)rng_next(&world->rng) | 2; /* token 1 at least */
    if (world->is_reckless) { /* many sequences, which need much more memory than exists */
        caps->page_count = between(world, 20, 80);
        caps->rows_max = between(world, 40, 600);
        caps->sequences_max = between(world, 8, 48);
        caps->context_tokens_max = 10000;
        world->load = between(world, 60, 300);
    }
    make_windows(world);
    make_states(world);
    world->urgent_one_in = one_in(world, 3) ? 0 : between(world, 1, 12);
    if (world->steps_max == 1 && world->urgent_one_in > 0 && !one_in(world, 4)) {
        world->fake.slices = between(world, 1, 6);
        caps->urgent_rows_max = between(world, 1, one_in(world, 2) ? 20 : 300);
    }
    if (one_in(world, 2)) caps->logit_rows_max = caps->sequences_max + below(world, 20);
    make_reckless(&world->reckless);
    make_prefixes(world);
    fake_backend_open(&world->backend, &world->fake);

    struct scheduler_options options = {
        .backend = &world->backend,
        .max_num_seqs = one_in(world, 2) ? 0 : between(world, 1, 64),
        .urgent_seqs = one_in(world, 2) ? 0 : between(world, 1, 16),
        .max_num_batched_tokens = one_in(world, 2) ? 0 : between(world, 1, 600),
        .max_model_len = one_in(world, 2) ? 0 : between(world, 40, 2000),
        .enable_prefix_caching = !one_in(world, 8),
        .seed = 99,
        .on_event = on_event,
        .allowed = allowed,
        .given = given,
        .ahead = one_in(world, 4) ? NULL : ahead,
        .guess = one_in(world, 2) ? NULL : guess,
        .guesser = world,
        .draft_tokens_max = one_in(world, 3) ? 0 : between(world, 1, SCHEDULER_DRAFT_TOKENS_MAX),
        .user = world,
    };
    world->has_times = one_in(world, 2);
    world->context_tokens_max = caps->context_tokens_max;
    if (options.max_model_len > 0 && options.max_model_len < world->context_tokens_max)
        world->context_tokens_max = options.max_model_len;
    world->running_max = caps->sequences_max;
    struct error error;
    enum err err = scheduler_open(&world->scheduler, &options, &error);
    assert(err == OK);
}

static void check_stats(struct world *world) {
    struct scheduler_stats stats;
    scheduler_stats(world->scheduler, &stats);
    assert(stats.pages_free + stats.pages_cached + stats.pages_used == stats.pages_total);
    assert(stats.pages_total == world->fake.caps.page_count);
    assert(stats.sequences_running <= world->running_max);
    assert(stats.sequences_waiting + stats.sequences_running + stats.sequences_preempted ==
           world->open_sequences);
    scheduler_check(world->scheduler);
}

/* Once a step is composed, each running sequence has blocks for all tokens that it was given,
 * unless the cache is full: they are computed in one step, however many blocks they take. */
static void check_blocks(const struct world *world) {
    const struct scheduler *scheduler = world->scheduler;
    uint32_t block_pages = world->fake.caps.full_pages + world->fake.caps.window_pages;
    bool is_full = prefix_tree_available_pages(scheduler->tree) < 2 * block_pages;
    for (uint32_t i = 0; i < scheduler->running_count && !is_full; i++) {
        const struct sequence *sequence = scheduler->running[i];
        uint32_t tokens_with_block = sequence->block_count * BACKEND_BLOCK_TOKENS;
        assert(sequence->is_leaving || sequence_token_count(sequence) <= tokens_with_block);
    }
}

/* Slices of the step of `rows` rows under way, with new requests in between. */
static void advance_some(struct world *world, uint64_t rows) {
    struct scheduler_stats before;
    struct scheduler_stats after;
    struct error error;
    bool is_done = false;
    scheduler_stats(world->scheduler, &before);
    for (uint32_t left = below(world, 12); left > 0 && !is_done; left--) {
        world->is_passing = true;
        enum err err = scheduler_advance(world->scheduler, &is_done, &error);
        assert(err == OK);
        world->is_passing = false;
        check_stats(world);
        if (one_in(world, 3)) submit_some(world);
        if (one_in(world, 3)) meddle(world);
    }
    scheduler_stats(world->scheduler, &after);
    assert(after.preemptions == before.preemptions);
    assert(after.urgent_rows - before.urgent_rows == after.rows - before.rows);
    assert(after.urgent_rows - before.urgent_rows <= 3 * rows); /* the others keep a quarter */
}

/* Begins a step, and returns its rows; 0 when the one under way must end first. */
static uint64_t begin_one(struct world *world) {
    struct error error;
    struct scheduler_stats before;
    struct scheduler_stats after;
    bool started = false;
    bool is_ahead = scheduler_under_way(world->scheduler) > 0;
    if (world->is_reckless) world->scheduler->admission = world->reckless;
    scheduler_stats(world->scheduler, &before);
    enum err err = scheduler_begin(world->scheduler, &started, &error);
    assert(err == OK && (started || is_ahead)); /* liveness */
    scheduler_stats(world->scheduler, &after);
    assert(started == (after.rows > before.rows));
    if (started) check_blocks(world);
    assert(!is_ahead || after.preemptions == before.preemptions);
    world->is_under_way = true;
    world->totals->ahead += is_ahead && started;
    world->totals->put_off += is_ahead && !started;
    check_stats(world);
    if (one_in(world, 3)) meddle(world);
    return after.rows - before.rows;
}

static void end_one(struct world *world) {
    struct error error;
    struct scheduler_stats before;
    struct scheduler_stats after;
    scheduler_stats(world->scheduler, &before);
    enum err err = scheduler_end(world->scheduler, &error);
    assert(err == OK);
    world->is_under_way = scheduler_under_way(world->scheduler) > 0;
    if (world->has_times) scheduler_note_time(world->scheduler, between(world, 0, 1000));
    scheduler_stats(world->scheduler, &after);
    world->totals->ended_all_at_once +=
        before.sequences_running > 1 && after.sequences_running == 0;
    world->totals->steps++;
    check_stats(world);
}

/* Begins steps until as many are under way as may be, or now and then fewer; ends the oldest. */
static void step_once(struct world *world) {
    uint32_t wanted = world->steps_max;
    if (wanted > 1 && one_in(world, 8)) wanted = 1;
    uint64_t rows = 1;
    while (rows > 0 && scheduler_under_way(world->scheduler) < wanted) rows = begin_one(world);
    advance_some(world, rows);
    end_one(world);
}

static void world_close(struct world *world, bool must_be_empty) {
    struct scheduler_stats stats;
    scheduler_stats(world->scheduler, &stats);
    if (must_be_empty) {
        assert(world->open_sequences == 0 && stats.requests == 0 && stats.pages_used == 0);
        for (uint32_t i = 0; i < world->request_count; i++) assert(!world->requests[i]);
    }
    world->totals->rows += stats.rows;
    world->totals->preemptions += stats.preemptions;
    world->totals->evictions += stats.evictions;
    world->totals->urgent_steps += stats.urgent_steps;
    world->totals->hit_tokens += stats.prefix_hit_tokens;
    assert(stats.accepted_tokens <= stats.draft_tokens && stats.drafts <= stats.draft_tokens);
    world->totals->guessed += stats.draft_tokens;
    world->totals->accepted += stats.accepted_tokens;
    world->totals->copies += fake_copies(&world->backend);
    uint64_t saves, restores;
    fake_states(&world->backend, &saves, &restores);
    assert(saves == stats.state_saves || !must_be_empty);
    assert(restores <= stats.state_hits);
    world->totals->saves += saves;
    world->totals->restores += restores;
    world->totals->forgotten += stats.state_evictions;
    scheduler_close(world->scheduler);
    world->backend.ops->close(world->backend.self);
    for (uint32_t i = 0; i < world->request_count; i++)
        if (world->requests[i]) release_request(world, i);
    free(world->requests);
    free(world);
}

/* Lets the running requests finish; after `steps` steps the others are cancelled, so that runs stay
 * short. */
static void drain_all(struct world *world, uint32_t steps) {
    world->is_meddling = false;
    for (uint32_t step = 0; step < steps && scheduler_has_work(world->scheduler); step++)
        step_once(world);
    for (uint32_t i = 0; i < world->request_count; i++) {
        struct expected_request *request = world->requests[i];
        for (uint32_t k = 0; request && k < request->sequence_count; k++)
            expect_end(world, &request->sequences[k], FINISH_CANCELLED);
        scheduler_cancel(world->scheduler, i);
    }
    while (scheduler_under_way(world->scheduler) > 0) end_one(world);
    assert(!scheduler_has_work(world->scheduler));
    struct error error;
    enum err err = scheduler_step(world->scheduler, &error); /* nothing to do */
    assert(err == OK);
}

void world_run(uint64_t seed, uint32_t steps, uint32_t steps_max, struct world_totals *totals) {
    struct world *world = calloc(1, sizeof *world);
    if (!world) abort();
    world->rng.state = seed;
    world->totals = totals;
    world->steps_max = steps_max;
    world_open(world);
    for (uint32_t step = 0; step < steps; step++) {
        if (world->open_sequences < world->load || one_in(world, 40))
            for (uint32_t i = below(world, 4); i > 0; i--) submit_some(world);
        meddle(world);
        if (scheduler_has_work(world->scheduler)) step_once(world);
    }
    /* Now and then the scheduler is closed with all its work. */
    bool drain = !one_in(world, 10);
    if (drain) drain_all(world, steps);
    world_close(world, drain);
}
