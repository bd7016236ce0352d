/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/scheduler.h"

#include "base/rng.h"
#include "scheduler/state.h"

#include <math.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VOCAB 1000u
#define EVENTS_MAX 4096u
#define SEQUENCES_MAX 16u

/* A backend whose next token is a constant, with a scheduler on it and all events it brought. */
struct fixture {
    struct backend backend;
    struct scheduler_options options;
    struct scheduler *scheduler;
    const struct step *step; /* result of the last submit */
    int32_t next_token;
    enum err submit_err;
    enum err wait_err;
    struct scheduler_event events[EVENTS_MAX];
    uint32_t event_count;
    uint64_t finish_at_token; /* calls scheduler_finish inside the event of this index */
    bool resubmit;            /* submits the same id once more inside its FINISHED event */
    const uint32_t *allowed;
};

static enum err fake_submit(void *self, const struct step *step, struct error *error) {
    struct fixture *fixture = self;
    fixture->step = step;
    if (fixture->submit_err) return err_set(error, fixture->submit_err, "submit fails");
    return OK;
}

static enum err fake_wait(void *self, struct step_result *result, struct error *error) {
    struct fixture *fixture = self;
    if (fixture->wait_err) return err_set(error, fixture->wait_err, "wait fails");
    for (uint32_t i = 0; i < fixture->step->logit_count; i++) {
        memset(&result->samples[i], 0, sizeof result->samples[i]);
        result->samples[i].token = fixture->next_token;
        result->samples[i].logprob = -0.5f;
    }
    return OK;
}

static void fake_close(void *self) {
    (void)self;
}

static void submit_plain(struct fixture *fixture, uint64_t id, int32_t first, uint32_t prompt_count,
                         uint32_t max_tokens);

static void on_event(void *user, const struct scheduler_event *event) {
    struct fixture *fixture = user;
    if (event->kind == SCHEDULER_STARTED) return; /* tests/sim checks these */
    assert_true(fixture->event_count < EVENTS_MAX);
    fixture->events[fixture->event_count++] = *event;
    if (event->kind == SCHEDULER_TOKEN && event->token_index == fixture->finish_at_token) {
        scheduler_finish(fixture->scheduler, event->id, event->sequence);
        scheduler_finish(fixture->scheduler, event->id, event->sequence);
    }
    if (event->kind == SCHEDULER_FINISHED && fixture->resubmit) {
        fixture->resubmit = false;
        submit_plain(fixture, event->id, 500, 8, 1);
    }
}

static const uint32_t *allowed(void *user, uint64_t id, uint32_t sequence) {
    (void)id;
    (void)sequence;
    return ((struct fixture *)user)->allowed;
}

static void open_fixture(struct fixture *fixture, uint32_t block_count, uint32_t rows_max) {
    static const struct backend_ops ops = {
        .submit = fake_submit, .wait = fake_wait, .close = fake_close};
    memset(fixture, 0, sizeof *fixture);
    fixture->next_token = 1;
    fixture->finish_at_token = UINT64_MAX;
    fixture->backend = (struct backend){.ops = &ops,
                                        .self = fixture,
                                        .caps = {.block_tokens = BACKEND_BLOCK_TOKENS,
                                                 .page_count = block_count,
                                                 .full_pages = 1,
                                                 .rows_max = rows_max,
                                                 .sequences_max = SEQUENCES_MAX,
                                                 .context_tokens_max = 2000,
                                                 .vocab = VOCAB,
                                                 .steps_max = 1}};
    fixture->options = (struct scheduler_options){.backend = &fixture->backend,
                                                  .enable_prefix_caching = true,
                                                  .on_event = on_event,
                                                  .allowed = allowed,
                                                  .user = fixture};
    assert_int_equal(scheduler_open(&fixture->scheduler, &fixture->options, NULL), OK);
}

static void reopen(struct fixture *fixture) {
    scheduler_close(fixture->scheduler);
    fixture->scheduler = NULL;
    assert_int_equal(scheduler_open(&fixture->scheduler, &fixture->options, NULL), OK);
}

static const int32_t *prompt_of(int32_t first, uint32_t count) {
    static int32_t prompt[2048];
    for (uint32_t i = 0; i < count; i++)
        prompt[i] = (int32_t)((uint32_t)first + i) % (int32_t)VOCAB;
    return prompt;
}

static struct scheduler_request request_of(uint64_t id, int32_t first, uint32_t prompt_count,
                                           uint32_t max_tokens) {
    return (struct scheduler_request){.id = id,
                                      .prompt = prompt_of(first, prompt_count),
                                      .prompt_count = prompt_count,
                                      .sampling = {.max_tokens = max_tokens}};
}

static void submit(struct fixture *fixture, const struct scheduler_request *request) {
    assert_int_equal(scheduler_submit(fixture->scheduler, request, NULL), OK);
}

static void submit_plain(struct fixture *fixture, uint64_t id, int32_t first, uint32_t prompt_count,
                         uint32_t max_tokens) {
    struct scheduler_request request = request_of(id, first, prompt_count, max_tokens);
    submit(fixture, &request);
}

static void step(struct fixture *fixture) {
    assert_int_equal(scheduler_step(fixture->scheduler, NULL), OK);
    scheduler_check(fixture->scheduler);
}

static void run(struct fixture *fixture) {
    while (scheduler_has_work(fixture->scheduler)) step(fixture);
}

static struct scheduler_stats stats_of(const struct fixture *fixture) {
    struct scheduler_stats stats;
    scheduler_stats(fixture->scheduler, &stats);
    return stats;
}

static const struct scheduler_event *last_event(const struct fixture *fixture) {
    assert_true(fixture->event_count > 0);
    return &fixture->events[fixture->event_count - 1];
}

static uint32_t count_events(const struct fixture *fixture, enum scheduler_event_kind kind,
                             uint64_t id) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < fixture->event_count; i++)
        count += fixture->events[i].kind == kind && fixture->events[i].id == id;
    return count;
}

static void a_request_brings_its_tokens_and_ends_by_length(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 10, 100);
    submit_plain(&fixture, 7, 10, 20, 3);
    run(&fixture);
    assert_int_equal(fixture.event_count, 4);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(fixture.events[i].kind, SCHEDULER_TOKEN);
        assert_int_equal(fixture.events[i].token, 1);
        assert_int_equal(fixture.events[i].token_index, i);
        assert_null(fixture.events[i].sample);
    }
    const struct scheduler_event *end = last_event(&fixture);
    assert_int_equal(end->kind, SCHEDULER_FINISHED);
    assert_int_equal(end->id, 7);
    assert_int_equal(end->reason, FINISH_LENGTH);
    assert_int_equal(end->prompt_tokens, 20);
    assert_int_equal(end->generated_tokens, 3);
    assert_int_equal(stats_of(&fixture).pages_used, 0);
    assert_int_equal(stats_of(&fixture).requests, 0);
    /* 20 rows of prompt and one for each token but the last. */
    assert_int_equal(stats_of(&fixture).rows, 22);
    scheduler_close(fixture.scheduler);
}

static void an_end_token_is_reported_and_ends_with_stop(void **state) {
    (void)state;
    static const int32_t end_tokens[] = {5, 1};
    struct fixture fixture;
    open_fixture(&fixture, 10, 100);
    struct scheduler_request request = request_of(1, 10, 20, 100);
    request.sampling.end_tokens = end_tokens;
    request.sampling.end_token_count = 2;
    request.sampling.logprobs = true;
    submit(&fixture, &request);
    run(&fixture);
    assert_int_equal(fixture.event_count, 2);
    assert_int_equal(fixture.events[0].kind, SCHEDULER_TOKEN);
    assert_non_null(fixture.events[0].sample);
    assert_int_equal(last_event(&fixture)->reason, FINISH_STOP);
    assert_true(last_event(&fixture)->has_stop_token);
    assert_int_equal(last_event(&fixture)->token, 1);
    scheduler_close(fixture.scheduler);
}

static void without_max_tokens_a_sequence_runs_to_the_end_of_the_context_or_the_pool(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 4, 100);
    submit_plain(&fixture, 1, 10, 20, 0);
    run(&fixture);
    /* The last token needs no place in the cache. */
    assert_int_equal(last_event(&fixture)->generated_tokens, 4 * 16 + 1 - 20);
    fixture.options.max_model_len = 30;
    reopen(&fixture);
    submit_plain(&fixture, 1, 10, 20, 0);
    run(&fixture);
    assert_int_equal(last_event(&fixture)->generated_tokens, 10);
    scheduler_close(fixture.scheduler);
}

static void what_could_never_finish_is_refused_with_the_numbers(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 4, 100);
    struct error error;
    struct scheduler_request request = request_of(1, 10, 60, 5);
    assert_int_equal(scheduler_submit(fixture.scheduler, &request, &error), OK);
    request = request_of(2, 10, 60, 6);
    assert_int_equal(scheduler_submit(fixture.scheduler, &request, &error), ERR_LIMIT);
    assert_string_equal(error.text, "a prompt of 60 tokens and 6 generated tokens need more than "
                                    "the whole KV cache of 4 blocks of 16 tokens");
    request = request_of(3, 10, 1999, 2);
    assert_int_equal(scheduler_submit(fixture.scheduler, &request, &error), ERR_LIMIT);
    assert_string_equal(error.text, "a prompt of 1999 tokens and 2 generated tokens are more than "
                                    "the context of 2000 tokens");
    request = request_of(4, 10, 10, UINT32_MAX);
    assert_int_equal(scheduler_submit(fixture.scheduler, &request, &error), ERR_LIMIT);
    run(&fixture);
    assert_int_equal(fixture.event_count, 6);
    scheduler_close(fixture.scheduler);
}

static void a_request_that_makes_no_sense_is_refused(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 4, 100);
    fixture.options.requests_max = 1;
    reopen(&fixture);
    struct error error;
    struct scheduler_request request = request_of(1, 10, 0, 5);
    assert_int_equal(scheduler_submit(fixture.scheduler, &request, &error), ERR_INVALID);
    static const int32_t bad[] = {1, 1000};
    request = request_of(1, 10, 2, 5);
    request.prompt = bad;
    assert_int_equal(scheduler_submit(fixture.scheduler, &request, &error), ERR_INVALID);
    assert_string_equal(error.text, "the prompt has token 1000 at 1, outside 0..999");
    request = request_of(1, 10, 2, 5);
    request.sequence_count = 129;
    assert_int_equal(scheduler_submit(fixture.scheduler, &request, &error), ERR_INVALID);
    request.sequence_count = 1;
    request.sampling.temperature = -1;
    assert_int_equal(scheduler_submit(fixture.scheduler, &request, &error), ERR_INVALID);
    assert_false(scheduler_has_work(fixture.scheduler));

    submit_plain(&fixture, 1, 10, 2, 1);
    request = request_of(1, 10, 2, 5);
    assert_int_equal(scheduler_submit(fixture.scheduler, &request, &error), ERR_CONFLICT);
    request.id = 2;
    assert_int_equal(scheduler_submit(fixture.scheduler, &request, &error), ERR_UNAVAILABLE);
    scheduler_close(fixture.scheduler);
}

static void a_backend_or_options_out_of_range_do_not_open(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 4, 100);
    scheduler_close(fixture.scheduler);
    const struct backend_caps good = fixture.backend.caps;
    struct scheduler *none = NULL;
    struct error error;
    fixture.backend.caps.block_tokens = 32;
    assert_int_equal(scheduler_open(&none, &fixture.options, &error), ERR_INVALID);
    fixture.backend.caps = good;
    fixture.backend.caps.page_count = 0;
    assert_int_equal(scheduler_open(&none, &fixture.options, &error), ERR_INVALID);
    fixture.backend.caps = good;
    fixture.backend.caps.rows_max = 0;
    assert_int_equal(scheduler_open(&none, &fixture.options, &error), ERR_INVALID);
    fixture.backend.caps = good;
    fixture.backend.caps.logit_rows_max = SEQUENCES_MAX - 1;
    assert_int_equal(scheduler_open(&none, &fixture.options, &error), ERR_INVALID);
    fixture.backend.caps = good;
    fixture.backend.caps.steps_max = 2; /* without `sample` */
    assert_int_equal(scheduler_open(&none, &fixture.options, &error), ERR_INVALID);
    fixture.backend.caps = good;
    fixture.options.max_model_len = 1;
    assert_int_equal(scheduler_open(&none, &fixture.options, &error), ERR_INVALID);
    assert_null(none);
}

static void a_long_prompt_is_computed_in_chunks_beside_decode(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 40, 30);
    submit_plain(&fixture, 1, 10, 10, 10);
    step(&fixture);
    submit_plain(&fixture, 2, 100, 70, 1);
    step(&fixture);
    assert_int_equal(fixture.step->row_count, 30);
    assert_int_equal(fixture.step->sequences[0].row_count, 1);
    assert_int_equal(fixture.step->sequences[1].row_count, 29);
    assert_int_equal(fixture.step->logit_count, 1);
    step(&fixture);
    assert_int_equal(fixture.step->sequences[1].kv_tokens, 29);
    assert_int_equal(fixture.step->sequences[1].row_count, 29);
    step(&fixture);
    assert_int_equal(fixture.step->sequences[1].row_count, 12);
    assert_int_equal(fixture.step->logit_count, 2);
    assert_int_equal(fixture.step->logit_rows[1].row, 12);
    run(&fixture);
    scheduler_close(fixture.scheduler);
}

static void a_cached_prompt_is_computed_from_its_last_whole_block_on(void **state) {
    (void)state;
    const struct {
        uint32_t prompt;
        uint32_t cached;
    } cases[] = {{1, 0}, {16, 0}, {17, 16}, {32, 16}, {33, 32}, {40, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture fixture;
        open_fixture(&fixture, 40, 100);
        submit_plain(&fixture, 1, 10, cases[i].prompt, 1);
        run(&fixture);
        assert_int_equal(last_event(&fixture)->cached_tokens, 0);
        submit_plain(&fixture, 2, 10, cases[i].prompt, 1);
        step(&fixture);
        assert_int_equal(last_event(&fixture)->cached_tokens, cases[i].cached);
        assert_int_equal(fixture.step->row_count, cases[i].prompt - cases[i].cached);
        assert_int_equal(fixture.step->positions[0], cases[i].cached);
        scheduler_close(fixture.scheduler);
    }
}

/* A prompt that begins as that of prompt_of(10, …) for `common` tokens. */
static const int32_t *forked_prompt(uint32_t common, uint32_t count) {
    static int32_t prompt[200];
    memcpy(prompt, prompt_of(10, count), count * sizeof *prompt);
    for (uint32_t i = common; i < count; i++) prompt[i] = (prompt[i] + 7) % (int32_t)VOCAB;
    return prompt;
}

static void submit_forked(struct fixture *fixture, uint64_t id, uint32_t common, uint32_t count) {
    struct scheduler_request request = request_of(id, 10, count, 1);
    request.prompt = forked_prompt(common, count);
    submit(fixture, &request);
}

static void a_prefix_that_ends_in_a_block_is_copied(void **state) {
    (void)state;
    const struct {
        uint32_t common, count; /* tokens of the second prompt; the first has 64 */
        uint32_t cached;
        uint32_t copies;
    } cases[] = {{43, 60, 43, 1}, {32, 60, 32, 0}, {1, 60, 1, 1},  {0, 60, 0, 0},
                 {47, 48, 47, 1}, {48, 48, 47, 1}, {64, 64, 63, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture fixture;
        open_fixture(&fixture, 40, 100);
        fixture.backend.caps.copies_pages = true;
        submit_plain(&fixture, 1, 10, 64, 1);
        step(&fixture);
        const uint32_t first = fixture.step->sequences[0].pages[cases[i].cached / 16];
        run(&fixture);
        submit_forked(&fixture, 2, cases[i].common, cases[i].count);
        step(&fixture);
        const struct step *second = fixture.step;
        assert_int_equal(last_event(&fixture)->cached_tokens, cases[i].cached);
        assert_int_equal(second->positions[0], cases[i].cached);
        assert_int_equal(second->row_count, cases[i].count - cases[i].cached);
        assert_int_equal(second->copy_count, cases[i].copies);
        if (cases[i].copies > 0) {
            assert_int_equal(second->copies[0].from, first);
            assert_int_not_equal(second->copies[0].to, first);
            /* A prompt that ends like the first one shares its block again after the step. */
            bool is_whole = cases[i].common == cases[i].count;
            assert_int_equal(second->sequences[0].pages[cases[i].cached / 16],
                             is_whole ? first : second->copies[0].to);
        }
        scheduler_close(fixture.scheduler);
    }
}

/* A step copies before it computes, so a block of the same step is no source; and a block is left
 * alone that would have to be evicted for the sequence that copies it. */
static void a_part_needs_a_block_that_is_computed_and_can_be_kept(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 40, 200);
    fixture.backend.caps.copies_pages = true;
    submit_plain(&fixture, 1, 10, 64, 1);
    submit_forked(&fixture, 2, 43, 60);
    step(&fixture);
    assert_int_equal(fixture.step->sequence_count, 2);
    assert_int_equal(fixture.step->copy_count, 0);
    assert_int_equal(fixture.step->row_count, 64 + 60 - 32);
    scheduler_close(fixture.scheduler);

    open_fixture(&fixture, 4, 200);
    fixture.backend.caps.copies_pages = true;
    submit_plain(&fixture, 1, 10, 64, 1);
    run(&fixture);
    submit_forked(&fixture, 2, 43, 60);
    step(&fixture);
    assert_int_equal(last_event(&fixture)->cached_tokens, 32);
    assert_int_equal(fixture.step->copy_count, 0);
    scheduler_close(fixture.scheduler);
}

static void a_prefix_that_arrives_many_times_at_once_is_computed_once(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 100, 200);
    for (uint64_t id = 0; id < 8; id++) {
        int32_t prompt[70];
        memcpy(prompt, prompt_of(10, 64), 64 * sizeof *prompt);
        memcpy(prompt + 64, prompt_of(200 + 10 * (int32_t)id, 6), 6 * sizeof *prompt);
        struct scheduler_request request = request_of(id, 0, 70, 5);
        request.prompt = prompt;
        submit(&fixture, &request);
    }
    step(&fixture);
    assert_int_equal(fixture.step->sequence_count, 8);
    assert_int_equal(fixture.step->row_count, 64 + 8 * 6);
    assert_int_equal(stats_of(&fixture).pages_used, 4 + 8);
    for (uint32_t i = 1; i < 8; i++)
        assert_memory_equal(fixture.step->sequences[i].pages, fixture.step->sequences[0].pages,
                            4 * sizeof(uint32_t));
    run(&fixture);
    scheduler_close(fixture.scheduler);
}

static void the_sequences_of_a_request_share_all_whole_blocks_of_its_prompt(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 100, 200);
    struct scheduler_request request = request_of(1, 10, 40, 3);
    request.sequence_count = 4;
    submit(&fixture, &request);
    assert_int_equal(stats_of(&fixture).sequences_waiting, 4);
    step(&fixture);
    assert_int_equal(stats_of(&fixture).pages_used, 2 + 4);
    assert_int_equal(fixture.step->row_count, 40 + 3 * 8);
    run(&fixture);
    assert_int_equal(count_events(&fixture, SCHEDULER_TOKEN, 1), 12);
    assert_int_equal(count_events(&fixture, SCHEDULER_FINISHED, 1), 4);
    scheduler_close(fixture.scheduler);
}

static void equal_outputs_come_to_share_their_blocks(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 100, 200);
    struct scheduler_request request = request_of(1, 10, 16, 100);
    request.sequence_count = 3;
    submit(&fixture, &request);
    for (uint32_t i = 0; i < 1 + 64 + 5; i++) step(&fixture);
    /* 16 + 69 positions: five whole blocks for all, one of its own for each. */
    assert_int_equal(stats_of(&fixture).pages_used, 5 + 3);
    run(&fixture);
    scheduler_close(fixture.scheduler);
}

static void without_caching_nothing_is_shared_or_kept(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 100, 200);
    fixture.options.enable_prefix_caching = false;
    reopen(&fixture);
    struct scheduler_request request = request_of(1, 10, 40, 3);
    request.sequence_count = 4;
    submit(&fixture, &request);
    step(&fixture);
    assert_int_equal(stats_of(&fixture).pages_used, 4 * 3);
    run(&fixture);
    assert_int_equal(stats_of(&fixture).pages_cached, 0);
    assert_int_equal(stats_of(&fixture).pages_free, 100);
    scheduler_close(fixture.scheduler);
}

static void sequences_that_share_blocks_are_neighbours_whenever_they_came(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 100, 200);
    const int32_t firsts[] = {300, 100, 300, 200, 100, 300, 200};
    for (uint32_t i = 0; i < 7; i++) {
        submit_plain(&fixture, i, firsts[i], 17, 50);
        step(&fixture);
    }
    step(&fixture);
    assert_int_equal(fixture.step->sequence_count, 7);
    const uint32_t group[] = {0, 0, 1, 1, 2, 2, 2};
    for (uint32_t i = 1; i < 7; i++)
        assert_true((fixture.step->sequences[i].pages[0] ==
                     fixture.step->sequences[i - 1].pages[0]) == (group[i] == group[i - 1]));
    run(&fixture);
    scheduler_close(fixture.scheduler);
}

static void a_lower_priority_number_starts_first(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 100, 200);
    fixture.options.max_num_seqs = 1;
    reopen(&fixture);
    const int64_t priorities[] = {5, INT64_MAX, -3, 0, INT64_MIN};
    const uint64_t order[] = {4, 2, 3, 0, 1};
    for (uint64_t id = 0; id < 5; id++) {
        struct scheduler_request request = request_of(id, (int32_t)id, 5, 1);
        request.priority = priorities[id];
        submit(&fixture, &request);
    }
    run(&fixture);
    assert_int_equal(fixture.event_count, 10);
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(fixture.events[2 * i].id, order[i]);
    scheduler_close(fixture.scheduler);
}

static void a_sequence_finished_inside_its_event_brings_no_more_tokens(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 10, 100);
    fixture.finish_at_token = 2;
    submit_plain(&fixture, 1, 10, 20, 50);
    run(&fixture);
    assert_int_equal(count_events(&fixture, SCHEDULER_TOKEN, 1), 3);
    assert_int_equal(count_events(&fixture, SCHEDULER_FINISHED, 1), 1);
    assert_int_equal(last_event(&fixture)->reason, FINISH_STOP);
    assert_false(last_event(&fixture)->has_stop_token);
    assert_int_equal(last_event(&fixture)->generated_tokens, 3);
    scheduler_finish(fixture.scheduler, 1, 0);
    assert_int_equal(fixture.event_count, 4);
    scheduler_close(fixture.scheduler);
}

static void a_sequence_cancelled_under_way_keeps_its_blocks_until_the_step_ends(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 10, 100);
    submit_plain(&fixture, 1, 10, 20, 50);
    step(&fixture);
    bool started = false;
    assert_int_equal(scheduler_begin(fixture.scheduler, &started, NULL), OK);
    assert_true(started);
    scheduler_cancel(fixture.scheduler, 1);
    assert_int_equal(fixture.event_count, 1);
    assert_int_equal(stats_of(&fixture).pages_used, 2);
    assert_int_equal(scheduler_end(fixture.scheduler, NULL), OK);
    assert_int_equal(fixture.event_count, 2);
    assert_int_equal(last_event(&fixture)->reason, FINISH_CANCELLED);
    assert_int_equal(last_event(&fixture)->generated_tokens, 1);
    assert_int_equal(stats_of(&fixture).pages_used, 0);
    assert_false(scheduler_has_work(fixture.scheduler));
    scheduler_close(fixture.scheduler);
}

static void waiting_sequences_are_cancelled_at_once(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 10, 100);
    struct scheduler_request request = request_of(1, 10, 20, 50);
    request.sequence_count = 3;
    submit(&fixture, &request);
    scheduler_finish(fixture.scheduler, 1, 0);
    scheduler_finish(fixture.scheduler, 1, 7); /* no such sequence */
    assert_int_equal(fixture.event_count, 1);
    scheduler_check(fixture.scheduler);
    scheduler_cancel(fixture.scheduler, 1);
    assert_int_equal(fixture.event_count, 3);
    scheduler_cancel(fixture.scheduler, 1);
    scheduler_cancel(fixture.scheduler, 99);
    assert_int_equal(fixture.event_count, 3);
    assert_false(scheduler_has_work(fixture.scheduler));
    scheduler_close(fixture.scheduler);
}

static void an_id_can_be_used_again_from_inside_its_last_event(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 10, 100);
    fixture.resubmit = true;
    submit_plain(&fixture, 1, 10, 20, 50);
    scheduler_cancel(fixture.scheduler, 1);
    assert_int_equal(count_events(&fixture, SCHEDULER_FINISHED, 1), 1);
    run(&fixture);
    assert_int_equal(count_events(&fixture, SCHEDULER_FINISHED, 1), 2);
    assert_int_equal(last_event(&fixture)->reason, FINISH_LENGTH);
    scheduler_close(fixture.scheduler);
}

static void an_error_of_the_backend_is_handed_on(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 10, 100);
    submit_plain(&fixture, 1, 10, 20, 50);
    fixture.submit_err = ERR_IO;
    struct error error;
    assert_int_equal(scheduler_step(fixture.scheduler, &error), ERR_IO);
    assert_string_equal(error.text, "submit fails");
    scheduler_close(fixture.scheduler);

    open_fixture(&fixture, 10, 100);
    submit_plain(&fixture, 1, 10, 20, 50);
    fixture.wait_err = ERR_IO;
    assert_int_equal(scheduler_step(fixture.scheduler, &error), ERR_IO);
    scheduler_close(fixture.scheduler);
}

static void a_step_without_work_does_nothing(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 10, 100);
    bool started = true;
    assert_int_equal(scheduler_begin(fixture.scheduler, &started, NULL), OK);
    assert_false(started);
    assert_int_equal(scheduler_step(fixture.scheduler, NULL), OK);
    assert_null(fixture.step);
    scheduler_close(fixture.scheduler);
}

static void a_scored_prompt_leaves_logit_rows_to_others(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 100, 200);
    fixture.backend.caps.logit_rows_max = SEQUENCES_MAX;
    reopen(&fixture);
    struct scheduler_request scored = request_of(1, 10, 60, 4);
    scored.sampling.prompt_logprobs = true;
    submit(&fixture, &scored);
    submit_plain(&fixture, 2, 300, 50, 4);
    step(&fixture);
    assert_int_equal(fixture.step->sequences[0].row_count, SEQUENCES_MAX / 2);
    assert_int_equal(fixture.step->sequences[1].row_count, 50);
    assert_int_equal(count_events(&fixture, SCHEDULER_SCORED, 1), SEQUENCES_MAX / 2);
    assert_int_equal(count_events(&fixture, SCHEDULER_TOKEN, 2), 1);
    run(&fixture);
    assert_int_equal(count_events(&fixture, SCHEDULER_SCORED, 1), 59);
    assert_int_equal(count_events(&fixture, SCHEDULER_TOKEN, 1), 4);
    scheduler_close(fixture.scheduler);
}

static void a_logit_row_says_what_sampling_depends_on(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 100, 200);
    uint32_t mask = 3;
    fixture.allowed = &mask;
    struct scheduler_request request = request_of(1, 10, 5, 4);
    request.sequence_count = 2;
    request.is_constrained = true;
    request.sampling.has_seed = true;
    request.sampling.seed = 77;
    submit(&fixture, &request);
    for (uint32_t i = 0; i < 4; i++) {
        step(&fixture);
        const struct logit_row *rows = fixture.step->logit_rows;
        assert_int_equal(fixture.step->logit_count, 2);
        assert_int_equal(rows[0].seed, 77);
        assert_int_equal(rows[1].seed, rng_at(77, 1));
        assert_int_equal(rows[0].prompt_count, 5);
        assert_ptr_equal(rows[0].allowed, &mask);
        assert_int_equal(rows[1].counter, i);
    }
    scheduler_close(fixture.scheduler);

    /* Without a seed one is made of the scheduler's and the id. */
    open_fixture(&fixture, 100, 200);
    submit_plain(&fixture, 3, 10, 5, 1);
    step(&fixture);
    assert_int_equal(fixture.step->logit_rows[0].seed, rng_at(0, 3));
    assert_null(fixture.step->logit_rows[0].allowed);
    scheduler_close(fixture.scheduler);
}

static void the_rows_of_a_prompt_are_scored_and_none_are_taken_from_the_cache(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 100, 20);
    submit_plain(&fixture, 1, 7, 50, 1);
    run(&fixture);
    struct scheduler_request request = request_of(2, 7, 50, 2);
    request.sampling.prompt_logprobs = true;
    submit(&fixture, &request);
    fixture.event_count = 0;
    /* 20 rows, 20 rows, 10 rows of which the last samples, and one more token. */
    static const uint32_t logits[] = {20, 20, 10, 1};
    for (uint32_t i = 0; i < 4; i++) {
        step(&fixture);
        assert_int_equal(fixture.step->logit_count, logits[i]);
    }
    assert_int_equal(fixture.event_count, 49 + 2 + 1);
    for (uint32_t i = 0; i < 49; i++) {
        assert_int_equal(fixture.events[i].kind, SCHEDULER_SCORED);
        assert_int_equal(fixture.events[i].token_index, i + 1);
        assert_int_equal(fixture.events[i].token, prompt_of(7, 50)[i + 1]);
    }
    assert_int_equal(fixture.events[49].kind, SCHEDULER_TOKEN);
    assert_int_equal(last_event(&fixture)->cached_tokens, 0);
    /* The blocks that it computed are shared as before. */
    submit_plain(&fixture, 3, 7, 50, 1);
    run(&fixture);
    assert_int_equal(last_event(&fixture)->cached_tokens, 48);
    scheduler_close(fixture.scheduler);
}

static void prefixes_are_shared_within_a_salt_only(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 100, 200);
    static const struct {
        uint64_t salt;
        uint32_t cached;
    } cases[] = {{0, 0}, {5, 0}, {6, 0}, {5, 32}, {0, 32}, {6, 32}};
    for (uint32_t i = 0; i < 6; i++) {
        struct scheduler_request request = request_of(i, 7, 40, 1);
        request.cache_salt = cases[i].salt;
        submit(&fixture, &request);
        run(&fixture);
        assert_int_equal(last_event(&fixture)->cached_tokens, cases[i].cached);
    }
    scheduler_close(fixture.scheduler);
}

/* The state after two preemptions. */
static void reserve(struct fixture *fixture, uint64_t id) {
    struct live_request *request = request_table_find(&fixture->scheduler->requests, id);
    assert_non_null(request);
    request->sequences[0].preemptions = PREEMPTIONS_MAX;
}

/* Admission that expects nothing, so that sequences start which do not fit together. */
static void expect_nothing(struct fixture *fixture) {
    struct admission *admission = &fixture->scheduler->admission;
    memset(admission, 0, sizeof *admission);
    for (uint32_t i = 0; i < 60; i++) admission->above[i].weight = ldexp(1, 600 - 10 * (int)i);
}

static void the_one_that_loses_least_is_preempted_and_goes_on_later(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 10, 100);
    submit_plain(&fixture, 1, 100, 30, 80); /* up to 7 blocks */
    expect_nothing(&fixture);
    step(&fixture);
    submit_plain(&fixture, 2, 300, 30, 60); /* up to 6 */
    expect_nothing(&fixture);
    run(&fixture);
    assert_int_equal(count_events(&fixture, SCHEDULER_PREEMPTED, 1), 0); /* started first */
    assert_int_equal(count_events(&fixture, SCHEDULER_PREEMPTED, 2), 1);
    assert_int_equal(count_events(&fixture, SCHEDULER_TOKEN, 1), 80);
    assert_int_equal(count_events(&fixture, SCHEDULER_TOKEN, 2), 60);
    scheduler_close(fixture.scheduler);
}

static void who_finds_no_block_and_nobody_to_preempt_sits_out(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 10, 100);
    submit_plain(&fixture, 1, 100, 16, 140); /* up to 10 blocks */
    expect_nothing(&fixture);
    step(&fixture);
    submit_plain(&fixture, 2, 300, 16, 70); /* up to 6, taken at the start */
    reserve(&fixture, 2);
    expect_nothing(&fixture);
    uint32_t sat_out = 0;
    while (scheduler_has_work(fixture.scheduler)) {
        bool both = stats_of(&fixture).sequences_running == 2;
        step(&fixture);
        sat_out += both && fixture.step->sequence_count == 1;
    }
    assert_true(sat_out > 0);
    assert_int_equal(stats_of(&fixture).preemptions, 0);
    assert_int_equal(count_events(&fixture, SCHEDULER_TOKEN, 1), 140);
    assert_int_equal(count_events(&fixture, SCHEDULER_TOKEN, 2), 70);
    scheduler_close(fixture.scheduler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_brings_its_tokens_and_ends_by_length),
        cmocka_unit_test(an_end_token_is_reported_and_ends_with_stop),
        cmocka_unit_test(without_max_tokens_a_sequence_runs_to_the_end_of_the_context_or_the_pool),
        cmocka_unit_test(what_could_never_finish_is_refused_with_the_numbers),
        cmocka_unit_test(a_request_that_makes_no_sense_is_refused),
        cmocka_unit_test(a_backend_or_options_out_of_range_do_not_open),
        cmocka_unit_test(a_long_prompt_is_computed_in_chunks_beside_decode),
        cmocka_unit_test(a_cached_prompt_is_computed_from_its_last_whole_block_on),
        cmocka_unit_test(a_prefix_that_ends_in_a_block_is_copied),
        cmocka_unit_test(a_part_needs_a_block_that_is_computed_and_can_be_kept),
        cmocka_unit_test(the_rows_of_a_prompt_are_scored_and_none_are_taken_from_the_cache),
        cmocka_unit_test(prefixes_are_shared_within_a_salt_only),
        cmocka_unit_test(a_prefix_that_arrives_many_times_at_once_is_computed_once),
        cmocka_unit_test(the_sequences_of_a_request_share_all_whole_blocks_of_its_prompt),
        cmocka_unit_test(equal_outputs_come_to_share_their_blocks),
        cmocka_unit_test(without_caching_nothing_is_shared_or_kept),
        cmocka_unit_test(sequences_that_share_blocks_are_neighbours_whenever_they_came),
        cmocka_unit_test(a_lower_priority_number_starts_first),
        cmocka_unit_test(a_sequence_finished_inside_its_event_brings_no_more_tokens),
        cmocka_unit_test(a_sequence_cancelled_under_way_keeps_its_blocks_until_the_step_ends),
        cmocka_unit_test(waiting_sequences_are_cancelled_at_once),
        cmocka_unit_test(an_id_can_be_used_again_from_inside_its_last_event),
        cmocka_unit_test(an_error_of_the_backend_is_handed_on),
        cmocka_unit_test(a_step_without_work_does_nothing),
        cmocka_unit_test(a_scored_prompt_leaves_logit_rows_to_others),
        cmocka_unit_test(a_logit_row_says_what_sampling_depends_on),
        cmocka_unit_test(the_one_that_loses_least_is_preempted_and_goes_on_later),
        cmocka_unit_test(who_finds_no_block_and_nobody_to_preempt_sits_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
