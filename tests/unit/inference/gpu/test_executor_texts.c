/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "executor_rig.h"
#include "scheduler/scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The executor of a GPU below a scheduler: texts and samples are those of the CPU. */

#define EVENTS_MAX 400u
#define WORDS_MAX 2048u

static const struct executor_limits small_limits = {
    .rows_max = 64, .sequences_max = 8, .context_max = 256, .block_count = 8 * 16};

static uint32_t below(struct rng *rng, uint32_t bound) {
    return (uint32_t)rng_below(rng, bound);
}

struct event {
    enum scheduler_event_kind kind;
    uint32_t sequence;
    uint32_t tokens; /* FINISHED: generated */
    struct sample sample;
};

/* The events of one request, and the mask of its next token. */
struct story {
    struct event events[EVENTS_MAX];
    uint32_t event_count;
    uint32_t last[2]; /* token of each sequence */
    uint32_t words[2][WORDS_MAX];
};

#define REQUESTS 14u

struct run {
    struct scheduler *scheduler;
    uint32_t vocab;
    uint32_t most_under_way;
    struct story stories[REQUESTS];
};

static void on_event(void *user, const struct scheduler_event *event) {
    struct run *run = user;
    struct story *story = &run->stories[event->id];
    if (event->kind == SCHEDULER_PREEMPTED || event->kind == SCHEDULER_STARTED) return;
    assert_true(story->event_count < EVENTS_MAX);
    struct event *to = &story->events[story->event_count++];
    to->kind = event->kind;
    to->sequence = event->sequence;
    if (event->kind == SCHEDULER_FINISHED) {
        to->tokens = event->generated_tokens;
        return;
    }
    if (event->sample) sample_copy(&to->sample, event->sample);
    to->sample.token = event->token;
    if (event->kind == SCHEDULER_TOKEN) story->last[event->sequence] = (uint32_t)event->token;
}

/* A third of the tokens, by the token before. */
static const uint32_t *allowed(void *user, uint64_t id, uint32_t sequence) {
    struct run *run = user;
    struct story *story = &run->stories[id];
    uint32_t *words = story->words[sequence];
    assert_true((run->vocab + 31) / 32 <= WORDS_MAX);
    memset(words, 0, sizeof story->words[sequence]);
    for (uint32_t i = story->last[sequence] % 3; i < run->vocab; i += 3)
        words[i / 32] |= 1u << i % 32;
    return words;
}

static const int32_t allowed_tokens[] = {5, 17, 100, 101, 102, 103, 150, 200, 211, 222, 250};
static const int32_t bad_words[] = {1, 17, 2, 100, 101, 3, 5, 5, 5};
static const struct logit_bias biases[] = {{20, 4.0f}, {21, -100.0f}, {22, 3.5f}, {300, 5.0f}};
static const int32_t stop_tokens[] = {22, 300};
static const int32_t named[] = {3, 99, 20, 22};

/* The ways of sampling; request i has way i. */
static const struct sampling ways[REQUESTS] = {
    {.max_tokens = 40},
    {.max_tokens = 40, .logprobs = true, .top_logprobs = 5},
    {.max_tokens = 30, .temperature = 0.8f, .has_seed = true, .seed = 7},
    {.max_tokens = 30, .temperature = 1.2f, .top_p = 0.9f, .has_seed = true, .seed = 8},
    {.max_tokens = 30,
     .temperature = 1.0f,
     .top_k = 20,
     .min_p = 0.01f,
     .has_seed = true,
     .seed = 9},
    {.max_tokens = 30, .repetition_penalty = 1.3f, .logprobs = true},
    {.max_tokens = 30,
     .temperature = 0.7f,
     .presence_penalty = 0.5f,
     .frequency_penalty = 0.7f,
     .has_seed = true,
     .seed = 10},
    {.max_tokens = 30, .allowed_tokens = allowed_tokens, .allowed_token_count = 11},
    {.max_tokens = 30,
     .allowed_tokens = allowed_tokens,
     .allowed_token_count = 11,
     .bad_words = bad_words,
     .bad_word_ints = 9},
    {.max_tokens = 30,
     .biases = biases,
     .bias_count = 4,
     .min_tokens = 6,
     .stop_tokens = stop_tokens,
     .stop_token_count = 2},
    {.max_tokens = 3, .logprobs = true, .prompt_logprobs = true, .prompt_top_logprobs = 3},
    {.max_tokens = 20, .logprobs = true, .logprob_tokens = named, .logprob_token_count = 4},
    {.max_tokens = 30}, /* constrained */
    {.max_tokens = 20,
     .temperature = 1.0f,
     .top_p = 0.8f,
     .has_seed = true,
     .seed = 11}, /* in two */
};

static void submit_ways(struct run *run) {
    struct rng rng = {99};
    int32_t shared[80], prompt[200];
    struct error error;
    for (uint32_t i = 0; i < 80; i++) shared[i] = (int32_t)below(&rng, run->vocab);
    for (uint32_t id = 0; id < REQUESTS; id++) {
        uint32_t common = id % 3 == 2 ? 40 : 80, count = common + 1 + below(&rng, 70);
        for (uint32_t i = 0; i < count; i++)
            prompt[i] = i < common ? shared[i] : (int32_t)below(&rng, run->vocab);
        struct scheduler_request request = {.id = id,
                                            .sequence_count = id == 13 ? 2 : 1,
                                            .prompt = prompt,
                                            .prompt_count = count,
                                            .sampling = ways[id],
                                            .is_constrained = id == 12};
        must(scheduler_submit(run->scheduler, &request, &error), &error);
    }
}

static void run_all(struct run *run, const struct backend *backend, void (*submit)(struct run *)) {
    struct scheduler_options options = {.backend = backend,
                                        .enable_prefix_caching = true,
                                        .on_event = on_event,
                                        .allowed = allowed,
                                        .user = run};
    struct error error;
    run->vocab = backend->caps.vocab;
    must(scheduler_open(&run->scheduler, &options, &error), &error);
    submit(run);
    while (scheduler_has_work(run->scheduler) || scheduler_under_way(run->scheduler) > 0) {
        bool started = true;
        while (started && scheduler_under_way(run->scheduler) < scheduler_steps_max(run->scheduler))
            must(scheduler_begin(run->scheduler, &started, &error), &error);
        uint32_t under_way = scheduler_under_way(run->scheduler);
        if (under_way > run->most_under_way) run->most_under_way = under_way;
        if (under_way > 0) must(scheduler_end(run->scheduler, &error), &error);
    }
    scheduler_close(run->scheduler);
}

static void expect_sample(const struct sample *expected, const struct sample *sample) {
    assert_int_equal(sample->token, expected->token);
    assert_true(fabsf(sample->logprob - expected->logprob) < 2e-3f);
    assert_int_equal(sample->rank, expected->rank);
    assert_int_equal(sample->top_count, expected->top_count);
    for (uint32_t i = 0; i < expected->top_count; i++) {
        assert_int_equal(sample->top[i].token, expected->top[i].token);
        assert_true(fabsf(sample->top[i].logprob - expected->top[i].logprob) < 2e-3f);
    }
}

/* The events of a sequence in both runs; those of two sequences of a request may change places. */
static void expect_story(const struct story *expected, const struct story *story,
                         uint32_t sequence) {
    uint32_t j = 0;
    for (uint32_t i = 0; i < expected->event_count; i++) {
        const struct event *event = &expected->events[i];
        if (event->sequence != sequence) continue;
        while (j < story->event_count && story->events[j].sequence != sequence) j++;
        assert_true(j < story->event_count);
        assert_int_equal(story->events[j].kind, event->kind);
        assert_int_equal(story->events[j].tokens, event->tokens);
        expect_sample(&event->sample, &story->events[j++].sample);
    }
}

static void texts_are_those_of_the_cpu_with_one_step_and_with_two(void **state) {
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        struct run *runs[3];
        for (uint32_t steps = 0; steps < 3; steps++) {
            struct rig rig;
            runs[steps] = calloc(1, sizeof *runs[steps]);
            if (steps == 0)
                open_cpu(&rig, models[i], &small_limits);
            else
                open_gpu(&rig, quern_gpu_table(), models[i], steps, &small_limits);
            run_all(runs[steps], &rig.backend, submit_ways);
            close_rig(&rig);
        }
        assert_int_equal(runs[1]->most_under_way, 1);
        assert_int_equal(runs[2]->most_under_way, 2);
        for (uint32_t steps = 1; steps < 3; steps++)
            for (uint32_t id = 0; id < REQUESTS; id++) {
                assert_int_equal(runs[steps]->stories[id].event_count,
                                 runs[0]->stories[id].event_count);
                for (uint32_t sequence = 0; sequence < 2; sequence++)
                    expect_story(&runs[0]->stories[id], &runs[steps]->stories[id], sequence);
            }
        for (uint32_t steps = 0; steps < 3; steps++) free(runs[steps]);
    }
}

/* ---- more edits than a call has room for ---- */

#define EDITED_REQUESTS 2u
#define EDITED_TOKENS 20u

static const struct executor_limits edited_limits = {.rows_max = 256,
                                                     .sequences_max = EDITED_REQUESTS,
                                                     .context_max = 1024,
                                                     .block_count = EDITED_REQUESTS * 64};

static uint32_t sample_calls;

static enum err count_sample(struct gpu *gpu, const struct gpu_samples *samples,
                             struct error *error) {
    sample_calls++;
    return quern_gpu_table()->sample(gpu, samples, error);
}

/* The plain GPU, whose calls of `sample` are counted. */
static const struct gpu_table *counting_table(void) {
    static struct gpu_table table;
    table = *quern_gpu_table();
    table.sample = count_sample;
    sample_calls = 0;
    return &table;
}

/* Requests whose rows need an edit of every kind for many tokens: over 2,048 each. */
static void submit_edited(struct run *run) {
    struct logit_bias all[1024];
    int32_t prompt[1000], words[2 * 256], held[2][256];
    struct error error;
    assert_in_range(run->vocab, 600, 1000);
    for (uint32_t i = 0; i < run->vocab; i++)
        all[i] = (struct logit_bias){(int32_t)i, (float)(i % 7)};
    for (uint32_t i = 0; i < 256; i++) {
        words[2 * i] = 1, words[2 * i + 1] = (int32_t)(2 * i);
        held[0][i] = (int32_t)i, held[1][i] = (int32_t)(256 + i);
    }
    for (uint32_t id = 0; id < EDITED_REQUESTS; id++) {
        for (uint32_t i = 0; i < run->vocab; i++)
            prompt[i] = (int32_t)((i * 7 + id * 11) % run->vocab);
        const struct sampling sampling = {.max_tokens = EDITED_TOKENS,
                                          .min_tokens = EDITED_TOKENS,
                                          .repetition_penalty = 1.3f,
                                          .presence_penalty = 0.5f,
                                          .frequency_penalty = 0.5f,
                                          .biases = all,
                                          .bias_count = run->vocab,
                                          .bad_words = words,
                                          .bad_word_ints = 2 * 256,
                                          .stop_tokens = held[0],
                                          .stop_token_count = 256,
                                          .end_tokens = held[1],
                                          .end_token_count = 256};
        const struct scheduler_request request = {.id = id,
                                                  .sequence_count = 1,
                                                  .prompt = prompt,
                                                  .prompt_count = run->vocab,
                                                  .sampling = sampling};
        must(scheduler_submit(run->scheduler, &request, &error), &error);
    }
}

static void rows_with_more_edits_than_a_call_takes_keep_them_all(void **state) {
    (void)state;
    struct run *runs[3];
    for (uint32_t steps = 0; steps < 3; steps++) {
        struct rig rig;
        runs[steps] = calloc(1, sizeof *runs[steps]);
        if (steps == 0)
            open_cpu(&rig, "gemma3", &edited_limits);
        else
            open_gpu(&rig, counting_table(), "gemma3", steps, &edited_limits);
        run_all(runs[steps], &rig.backend, submit_edited);
        close_rig(&rig);
        if (steps == 0) continue;
        /* One step at once has no late row: the second call of `sample` is for want of room. */
        assert_true(sample_calls >= EDITED_TOKENS - 5);
        for (uint32_t id = 0; id < EDITED_REQUESTS; id++)
            expect_story(&runs[0]->stories[id], &runs[steps]->stories[id], 0);
    }
    for (uint32_t steps = 0; steps < 3; steps++) free(runs[steps]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_of_the_cpu_with_one_step_and_with_two),
        cmocka_unit_test(rows_with_more_edits_than_a_call_takes_keep_them_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
