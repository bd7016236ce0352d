/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/scheduler.h"

#include "scheduler/state.h"

#include <math.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VOCAB 1000u
#define IDS_MAX 64u
#define NEXT 7 /* the token that is sampled always */

/* A backend with two steps under way, and the events of each request. */
struct fixture {
    struct backend backend;
    struct scheduler_options options;
    struct scheduler *scheduler;
    struct step newest; /* as submitted last; its arrays are the scheduler's */
    uint32_t logit_counts[2];
    uint32_t under_way;
    uint64_t sampled_number; /* number in the last call of sample */
    uint32_t sampled_count;
    struct logit_row sampled;
    uint32_t tokens[IDS_MAX];
    uint32_t finished_with[IDS_MAX]; /* tokens; UINT32_MAX while it runs */
    uint32_t preempted;
    uint32_t give; /* tokens to give when asked next */
};

static enum err submit(void *self, const struct step *step, struct error *error) {
    (void)error;
    struct fixture *fixture = self;
    assert_in_range(fixture->under_way, 0, 1);
    fixture->newest = *step;
    fixture->logit_counts[fixture->under_way++] = step->logit_count;
    return OK;
}

static enum err sample(void *self, uint64_t number, const struct logit_row *rows, uint32_t count,
                       struct error *error) {
    (void)error;
    struct fixture *fixture = self;
    assert_int_equal(fixture->under_way, 1);
    assert_in_range(count, 1, VOCAB);
    fixture->sampled_number = number;
    fixture->sampled_count = count;
    fixture->sampled = rows[0];
    return OK;
}

static enum err wait_for_step(void *self, struct step_result *result, struct error *error) {
    (void)error;
    struct fixture *fixture = self;
    assert_in_range(fixture->under_way, 1, 2);
    for (uint32_t i = 0; i < fixture->logit_counts[0]; i++)
        result->samples[i] = (struct sample){.token = NEXT};
    fixture->logit_counts[0] = fixture->logit_counts[1];
    fixture->under_way--;
    return OK;
}

static void close_backend(void *self) {
    (void)self;
}

static void on_event(void *user, const struct scheduler_event *event) {
    struct fixture *fixture = user;
    fixture->tokens[event->id] += event->kind == SCHEDULER_TOKEN;
    fixture->preempted += event->kind == SCHEDULER_PREEMPTED;
    if (event->kind == SCHEDULER_FINISHED)
        fixture->finished_with[event->id] = event->generated_tokens;
}

static const uint32_t *allow_all(void *user, uint64_t id, uint32_t sequence) {
    (void)user;
    (void)id;
    (void)sequence;
    return NULL;
}

static uint32_t give(void *user, uint64_t id, uint32_t sequence, uint32_t room,
                     int32_t *ret_tokens) {
    struct fixture *fixture = user;
    (void)id;
    (void)sequence;
    uint32_t count = fixture->give < room ? fixture->give : room;
    for (uint32_t i = 0; i < count; i++) ret_tokens[i] = 100 + (int32_t)i;
    fixture->give = 0;
    return count;
}

static void open_fixture(struct fixture *fixture, uint32_t pages) {
    static const struct backend_ops ops = {
        .submit = submit, .sample = sample, .wait = wait_for_step, .close = close_backend};
    memset(fixture, 0, sizeof *fixture);
    memset(fixture->finished_with, 0xff, sizeof fixture->finished_with);
    fixture->backend = (struct backend){.ops = &ops,
                                        .self = fixture,
                                        .caps = {.block_tokens = BACKEND_BLOCK_TOKENS,
                                                 .page_count = pages,
                                                 .full_pages = 1,
                                                 .rows_max = 100,
                                                 .sequences_max = 8,
                                                 .context_tokens_max = 500,
                                                 .vocab = VOCAB,
                                                 .steps_max = 2}};
    fixture->options = (struct scheduler_options){.backend = &fixture->backend,
                                                  .enable_prefix_caching = true,
                                                  .on_event = on_event,
                                                  .allowed = allow_all,
                                                  .given = give,
                                                  .user = fixture};
    assert_int_equal(scheduler_open(&fixture->scheduler, &fixture->options, NULL), OK);
}

static void submit_one(struct fixture *fixture, uint64_t id, uint32_t prompt_count,
                       const struct sampling *sampling, bool is_constrained) {
    int32_t prompt[400];
    for (uint32_t i = 0; i < prompt_count; i++) prompt[i] = (int32_t)(id * 10 + i) % (int32_t)VOCAB;
    struct scheduler_request request = {.id = id,
                                        .prompt = prompt,
                                        .prompt_count = prompt_count,
                                        .sampling = *sampling,
                                        .is_constrained = is_constrained};
    struct error error;
    assert_int_equal(scheduler_submit(fixture->scheduler, &request, &error), OK);
}

static void submit_request(struct fixture *fixture, uint64_t id, uint32_t prompt_count,
                           const struct sampling *sampling) {
    submit_one(fixture, id, prompt_count, sampling, false);
}

static bool begin(struct fixture *fixture) {
    bool started;
    assert_int_equal(scheduler_begin(fixture->scheduler, &started, NULL), OK);
    scheduler_check(fixture->scheduler);
    return started;
}

static void end(struct fixture *fixture) {
    assert_int_equal(scheduler_end(fixture->scheduler, NULL), OK);
    scheduler_check(fixture->scheduler);
}

static uint32_t pages_used(const struct fixture *fixture) {
    struct scheduler_stats stats;
    scheduler_stats(fixture->scheduler, &stats);
    return stats.pages_used;
}

static void the_second_step_takes_a_token_that_the_first_one_samples(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 20);
    submit_request(&fixture, 1, 20, &(struct sampling){.max_tokens = 10});
    assert_true(begin(&fixture));
    assert_int_equal(fixture.newest.row_count, 20);
    assert_non_null(fixture.newest.logit_rows[0].sampling);
    assert_true(begin(&fixture));
    assert_int_equal(scheduler_under_way(fixture.scheduler), 2);
    assert_int_equal(fixture.newest.row_count, 1);
    assert_int_equal(fixture.newest.positions[0], 20);
    assert_int_equal(fixture.newest.tokens[0], backend_pending(fixture.newest.sequences[0].slot));
    assert_int_equal(fixture.newest.logit_rows[0].counter, 1);
    assert_null(fixture.newest.logit_rows[0].generated);
    assert_false(fixture.newest.logit_rows[0].is_late);
    assert_int_equal(fixture.tokens[1], 0);
    end(&fixture);
    assert_int_equal(fixture.tokens[1], 1);
    end(&fixture);
    assert_int_equal(fixture.tokens[1], 2);
    /* While none is under way every token is known. */
    assert_true(begin(&fixture));
    assert_int_equal(fixture.newest.tokens[0], NEXT);
    assert_int_equal(fixture.newest.logit_rows[0].generated[1], NEXT);
    scheduler_close(fixture.scheduler); /* with a step under way */
}

static void the_last_token_of_max_tokens_has_no_row_behind_it(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 20);
    submit_request(&fixture, 1, 20, &(struct sampling){.max_tokens = 2});
    assert_true(begin(&fixture));
    assert_true(begin(&fixture));
    end(&fixture);
    assert_false(begin(&fixture));
    assert_int_equal(fixture.finished_with[1], UINT32_MAX);
    end(&fixture);
    assert_int_equal(fixture.finished_with[1], 2);
    assert_int_equal(pages_used(&fixture), 0);
    assert_false(scheduler_has_work(fixture.scheduler));
    scheduler_close(fixture.scheduler);
}

static void who_ends_by_its_token_leaves_when_the_next_step_has_ended(void **state) {
    (void)state;
    static const int32_t stops[] = {NEXT};
    struct fixture fixture;
    open_fixture(&fixture, 20);
    submit_request(
        &fixture, 1, 20,
        &(struct sampling){.max_tokens = 10, .stop_tokens = stops, .stop_token_count = 1});
    submit_request(&fixture, 2, 20, &(struct sampling){.max_tokens = 10});
    assert_true(begin(&fixture));
    assert_true(begin(&fixture));
    assert_int_equal(fixture.newest.sequence_count, 2);
    end(&fixture);
    assert_int_equal(fixture.tokens[1], 1);
    assert_int_equal(fixture.finished_with[1], UINT32_MAX);
    assert_int_equal(pages_used(&fixture), 4);
    assert_true(begin(&fixture));
    assert_int_equal(fixture.newest.sequence_count, 1); /* it has no further row */
    end(&fixture);
    assert_int_equal(fixture.finished_with[1], 1);
    assert_int_equal(fixture.tokens[1], 1);
    assert_int_equal(pages_used(&fixture), 2);
    scheduler_close(fixture.scheduler);
}

static void a_row_that_needs_its_last_token_is_sampled_when_that_is_known(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 20);
    submit_request(&fixture, 1, 20, &(struct sampling){.max_tokens = 10});
    submit_request(&fixture, 2, 20,
                   &(struct sampling){.max_tokens = 10, .frequency_penalty = 0.5f});
    assert_true(begin(&fixture));
    assert_true(begin(&fixture));
    assert_false(fixture.newest.logit_rows[0].is_late);
    assert_true(fixture.newest.logit_rows[1].is_late);
    assert_int_equal(fixture.sampled_count, 0);
    end(&fixture);
    assert_int_equal(fixture.sampled_number, fixture.newest.number);
    assert_int_equal(fixture.sampled_count, 1);
    assert_int_equal(fixture.sampled.index, 1);
    assert_int_equal(fixture.sampled.counter, 1);
    assert_int_equal(fixture.sampled.generated[0], NEXT);
    /* A sequence that has ended is not sampled for. */
    assert_true(begin(&fixture));
    scheduler_cancel(fixture.scheduler, 2);
    fixture.sampled_count = 0;
    end(&fixture);
    assert_int_equal(fixture.sampled_count, 0);
    end(&fixture);
    assert_int_equal(fixture.finished_with[2], 1);
    scheduler_close(fixture.scheduler);
}

static void without_a_block_the_first_step_ends_before_any_sequence_is_preempted(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 7);
    submit_request(&fixture, 1, 30, &(struct sampling){.max_tokens = 60});
    submit_request(&fixture, 2, 30, &(struct sampling){.max_tokens = 60});
    struct admission *admission = &fixture.scheduler->admission; /* expects nearly no tokens */
    memset(admission, 0, sizeof *admission);
    for (uint32_t i = 0; i < 60; i++) admission->above[i].weight = ldexp(1, 600 - 10 * (int)i);
    assert_true(begin(&fixture));
    for (uint32_t i = 0; i < 60 && begin(&fixture); i++) end(&fixture);
    assert_int_equal(scheduler_under_way(fixture.scheduler), 1);
    assert_int_equal(fixture.preempted, 0);
    end(&fixture);
    assert_true(begin(&fixture));
    assert_int_equal(fixture.preempted, 1);
    while (scheduler_has_work(fixture.scheduler)) {
        if (scheduler_under_way(fixture.scheduler) < 2 && begin(&fixture)) continue;
        end(&fixture);
    }
    assert_int_equal(fixture.finished_with[1], 60);
    assert_int_equal(fixture.finished_with[2], 60);
    scheduler_close(fixture.scheduler);
}

static void a_block_is_found_when_its_last_token_is_known(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 20);
    /* The second step fills a block with the pending token. */
    submit_request(&fixture, 1, 15, &(struct sampling){.max_tokens = 10});
    assert_true(begin(&fixture));
    assert_true(begin(&fixture));
    assert_int_equal(fixture.scheduler->running[0]->computed, 16);
    assert_int_equal(fixture.scheduler->running[0]->node_count, 0);
    end(&fixture);
    assert_int_equal(fixture.scheduler->running[0]->node_count, 1);
    scheduler_close(fixture.scheduler);
}

static void tokens_that_are_given_are_rows_of_one_step(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 20);
    submit_one(&fixture, 1, 20, &(struct sampling){.max_tokens = 60}, true);
    assert_true(begin(&fixture)); /* the prompt */
    assert_true(begin(&fixture)); /* a pending token, sampled late */
    assert_true(fixture.newest.logit_rows[0].is_late);
    fixture.give = 40; /* more than its blocks have room for */
    end(&fixture);
    assert_int_equal(fixture.tokens[1], 41);
    assert_int_equal(fixture.sampled_number, 0); /* its place has a token */
    assert_true(begin(&fixture));
    assert_int_equal(fixture.newest.row_count, 40);
    assert_int_equal(fixture.newest.positions[0], 21);
    assert_int_equal(fixture.newest.tokens[0], 100);
    assert_int_equal(fixture.newest.tokens[39], 139);
    assert_false(fixture.newest.logit_rows[0].is_late);
    assert_int_equal(fixture.newest.logit_rows[0].counter, 41);
    end(&fixture); /* what it sampled is for nothing */
    assert_int_equal(fixture.tokens[1], 41);
    assert_true(begin(&fixture));
    assert_true(backend_is_pending(fixture.newest.tokens[0]));
    fixture.give = 100; /* to the end: the row under way was for nothing */
    end(&fixture);
    assert_int_equal(fixture.tokens[1], 60);
    while (begin(&fixture) || scheduler_under_way(fixture.scheduler) > 0) end(&fixture);
    assert_int_equal(fixture.finished_with[1], 60);
    assert_int_equal(pages_used(&fixture), 0);
    scheduler_close(fixture.scheduler);
}

static void tokens_that_come_first_are_computed_with_the_prompt(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 20);
    fixture.give = 5;
    submit_one(&fixture, 1, 20, &(struct sampling){.max_tokens = 10}, true);
    assert_int_equal(fixture.tokens[1], 5);
    assert_true(begin(&fixture));
    assert_int_equal(fixture.newest.row_count, 25);
    assert_int_equal(fixture.newest.logit_count, 1);
    assert_int_equal(fixture.newest.logit_rows[0].counter, 5);
    end(&fixture);
    fixture.give = 2; /* all that max_tokens leaves: nothing is computed */
    submit_one(&fixture, 2, 20, &(struct sampling){.max_tokens = 2}, true);
    assert_int_equal(fixture.finished_with[2], 2);
    while (begin(&fixture) || scheduler_under_way(fixture.scheduler) > 0) end(&fixture);
    assert_int_equal(fixture.finished_with[1], 10);
    scheduler_close(fixture.scheduler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_that_are_given_are_rows_of_one_step),
        cmocka_unit_test(tokens_that_come_first_are_computed_with_the_prompt),
        cmocka_unit_test(the_second_step_takes_a_token_that_the_first_one_samples),
        cmocka_unit_test(the_last_token_of_max_tokens_has_no_row_behind_it),
        cmocka_unit_test(who_ends_by_its_token_leaves_when_the_next_step_has_ended),
        cmocka_unit_test(a_row_that_needs_its_last_token_is_sampled_when_that_is_known),
        cmocka_unit_test(without_a_block_the_first_step_ends_before_any_sequence_is_preempted),
        cmocka_unit_test(a_block_is_found_when_its_last_token_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
