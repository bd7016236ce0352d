/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/scheduler.h"

#include "scheduler/state.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VOCAB 1000u
#define IDS_MAX 4096u
#define SLICES 5u

/* A backend of SLICES slices per step whose next token is always 1, and the events of each
 * request. */
struct fixture {
    struct backend backend;
    struct scheduler_options options;
    struct scheduler *scheduler;
    struct step passed;      /* the urgent step last seen; its arrays are gone */
    uint32_t passed_count;   /* urgent steps */
    uint32_t passed_kv;      /* kv_tokens of its first sequence */
    const struct step *step; /* under way */
    uint32_t slices_left;
    uint32_t tokens[IDS_MAX];
    bool is_finished[IDS_MAX];
    uint32_t preempted[IDS_MAX];
};

static enum err submit(void *self, const struct step *step, struct error *error) {
    (void)error;
    struct fixture *fixture = self;
    fixture->step = step;
    fixture->slices_left = SLICES;
    return OK;
}

static void sample(const struct step *step, struct step_result *result) {
    memset(result->samples, 0, step->logit_count * sizeof *result->samples);
    for (uint32_t i = 0; i < step->logit_count; i++) result->samples[i].token = 1;
}

static enum err wait(void *self, struct step_result *result, struct error *error) {
    (void)error;
    sample(((struct fixture *)self)->step, result);
    return OK;
}

static enum err advance(void *self, bool *ret_done, struct error *error) {
    (void)error;
    struct fixture *fixture = self;
    assert_true(fixture->slices_left > 0);
    *ret_done = --fixture->slices_left == 0;
    return OK;
}

static enum err interject(void *self, const struct step *step, struct step_result *result,
                          struct error *error) {
    (void)error;
    struct fixture *fixture = self;
    fixture->passed = *step;
    fixture->passed_kv = step->sequences[0].kv_tokens;
    fixture->passed_count++;
    sample(step, result);
    return OK;
}

static void on_event(void *user, const struct scheduler_event *event) {
    struct fixture *fixture = user;
    assert_true(event->id < IDS_MAX);
    if (event->kind == SCHEDULER_TOKEN) fixture->tokens[event->id]++;
    if (event->kind == SCHEDULER_FINISHED) fixture->is_finished[event->id] = true;
    if (event->kind == SCHEDULER_PREEMPTED) fixture->preempted[event->id]++;
}

static const struct backend_ops sliced_ops = {
    .submit = submit, .wait = wait, .advance = advance, .interject = interject};
static const struct backend_ops whole_ops = {.submit = submit, .wait = wait};

struct shape {
    uint32_t blocks, rows, sequences, urgent_rows, urgent_seqs, max_num_seqs;
    bool is_whole;
};

static void open_fixture(struct fixture *fixture, struct shape shape) {
    memset(fixture, 0, sizeof *fixture);
    fixture->backend = (struct backend){.ops = shape.is_whole ? &whole_ops : &sliced_ops,
                                        .self = fixture,
                                        .caps = {.block_tokens = BACKEND_BLOCK_TOKENS,
                                                 .page_count = shape.blocks,
                                                 .full_pages = 1,
                                                 .rows_max = shape.rows,
                                                 .sequences_max = shape.sequences,
                                                 .context_tokens_max = 2000,
                                                 .vocab = VOCAB,
                                                 .urgent_rows_max = shape.urgent_rows,
                                                 .steps_max = 1}};
    fixture->options = (struct scheduler_options){.backend = &fixture->backend,
                                                  .enable_prefix_caching = true,
                                                  .urgent_seqs = shape.urgent_seqs,
                                                  .max_num_seqs = shape.max_num_seqs,
                                                  .on_event = on_event,
                                                  .user = fixture};
    assert_int_equal(scheduler_open(&fixture->scheduler, &fixture->options, NULL), OK);
}

static void close_fixture(struct fixture *fixture) {
    scheduler_check(fixture->scheduler);
    scheduler_close(fixture->scheduler);
}

/* The prompt is first, first + 1, … */
static void ask(struct fixture *fixture, uint64_t id, bool is_urgent, int32_t first,
                uint32_t prompt_count, uint32_t max_tokens) {
    int32_t prompt[2000];
    for (uint32_t i = 0; i < prompt_count; i++)
        prompt[i] = (int32_t)(((uint32_t)first + i) % VOCAB);
    struct scheduler_request request = {.id = id,
                                        .prompt = prompt,
                                        .prompt_count = prompt_count,
                                        .sampling = {.max_tokens = max_tokens},
                                        .is_urgent = is_urgent};
    assert_int_equal(scheduler_submit(fixture->scheduler, &request, NULL), OK);
}

static void begin(struct fixture *fixture) {
    bool started = false;
    assert_int_equal(scheduler_begin(fixture->scheduler, &started, NULL), OK);
    assert_true(started);
}

static bool advance_once(struct fixture *fixture) {
    bool done = false;
    assert_int_equal(scheduler_advance(fixture->scheduler, &done, NULL), OK);
    scheduler_check(fixture->scheduler);
    return done;
}

static void end(struct fixture *fixture) {
    assert_int_equal(scheduler_end(fixture->scheduler, NULL), OK);
    scheduler_check(fixture->scheduler);
}

static void step(struct fixture *fixture) {
    begin(fixture);
    while (!advance_once(fixture)) continue;
    end(fixture);
}

static struct scheduler_stats stats_of(const struct fixture *fixture) {
    struct scheduler_stats stats;
    scheduler_stats(fixture->scheduler, &stats);
    return stats;
}

static const struct shape usual = {
    .blocks = 100, .rows = 64, .sequences = 16, .urgent_rows = 32, .urgent_seqs = 4};

static void an_urgent_request_has_its_first_token_before_the_step_under_way_ends(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, usual);
    ask(&fixture, 1, false, 0, 40, 5);
    begin(&fixture);
    assert_false(advance_once(&fixture));
    ask(&fixture, 2, true, 500, 20, 5);
    assert_false(advance_once(&fixture));
    assert_int_equal(fixture.tokens[2], 1);
    assert_int_equal(fixture.tokens[1], 0);
    assert_int_equal(fixture.passed.row_count, 20);
    while (!advance_once(&fixture)) continue;
    end(&fixture);
    assert_int_equal(fixture.tokens[1], 1);
    step(&fixture); /* from here on both decode in the same steps */
    assert_int_equal(fixture.tokens[1], 2);
    assert_int_equal(fixture.tokens[2], 2);
    close_fixture(&fixture);
}

static void what_is_not_urgent_never_passes(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, usual);
    ask(&fixture, 1, false, 0, 40, 5);
    begin(&fixture);
    ask(&fixture, 2, false, 500, 20, 5);
    while (!advance_once(&fixture)) continue;
    assert_int_equal(fixture.passed_count, 0);
    end(&fixture);
    close_fixture(&fixture);
}

static void a_backend_without_slices_serves_an_urgent_request_in_the_next_step(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture,
                 (struct shape){.blocks = 100, .rows = 64, .sequences = 16, .is_whole = true});
    for (uint64_t id = 1; id <= 20; id++) ask(&fixture, id, false, (int32_t)id * 7, 60, 5);
    begin(&fixture);
    ask(&fixture, 30, true, 500, 20, 5);
    assert_true(advance_once(&fixture));
    end(&fixture);
    step(&fixture);
    assert_int_equal(fixture.tokens[30], 1);
    close_fixture(&fixture);
}

static void a_long_prompt_passes_in_pieces(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, usual);
    ask(&fixture, 1, false, 0, 60, 5);
    begin(&fixture);
    ask(&fixture, 2, true, 500, 70, 5);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(fixture.tokens[2], 0);
        assert_false(advance_once(&fixture));
    }
    assert_int_equal(fixture.tokens[2], 1);
    assert_int_equal(fixture.passed_count, 3);
    assert_int_equal(fixture.passed.row_count, 70 - 2 * 32);
    close_fixture(&fixture);
}

static void a_block_the_step_under_way_writes_is_not_found_by_who_passes(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, usual);
    ask(&fixture, 1, false, 0, 60, 5);
    begin(&fixture);
    ask(&fixture, 2, true, 0, 30, 5); /* its prompt begins the other's */
    assert_false(advance_once(&fixture));
    assert_int_equal(fixture.passed_kv, 0);
    assert_int_equal(fixture.passed.row_count, 30);
    while (!advance_once(&fixture)) continue;
    end(&fixture);
    /* Written, it is. */
    begin(&fixture);
    ask(&fixture, 3, true, 0, 37, 5);
    uint32_t before = fixture.passed_count;
    advance_once(&fixture);
    assert_int_equal(fixture.passed_count, before + (fixture.tokens[3] > 0));
    while (!advance_once(&fixture)) continue;
    end(&fixture);
    assert_int_equal(stats_of(&fixture).prefix_hit_tokens, 32);
    close_fixture(&fixture);
}

static void at_most_three_urgent_rows_pass_a_row(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, usual);
    ask(&fixture, 1, false, 0, 20, 5);
    begin(&fixture);
    for (uint64_t id = 2; id < 10; id++) ask(&fixture, id, true, (int32_t)id * 50, 30, 5);
    while (!advance_once(&fixture)) continue;
    assert_int_equal(stats_of(&fixture).urgent_rows, 60);
    end(&fixture);
    close_fixture(&fixture);
}

static void a_slot_is_kept_for_urgent_requests(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(
        &fixture,
        (struct shape){
            .blocks = 400, .rows = 512, .sequences = 8, .urgent_rows = 64, .urgent_seqs = 2});
    for (uint64_t id = 1; id <= 20; id++) ask(&fixture, id, false, (int32_t)id * 40, 20, 50);
    step(&fixture);
    assert_int_equal(stats_of(&fixture).sequences_running, 6);
    begin(&fixture);
    ask(&fixture, 30, true, 900, 10, 50);
    assert_false(advance_once(&fixture));
    assert_int_equal(fixture.tokens[30], 1);
    close_fixture(&fixture);
}

static void a_small_max_num_seqs_holds_next_to_many_urgent_slots(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, (struct shape){.blocks = 400,
                                          .rows = 512,
                                          .sequences = 32,
                                          .urgent_rows = 64,
                                          .urgent_seqs = 16,
                                          .max_num_seqs = 4});
    for (uint64_t id = 1; id <= 20; id++) ask(&fixture, id, false, (int32_t)id * 40, 20, 50);
    step(&fixture);
    assert_int_equal(stats_of(&fixture).sequences_running, 4);
    ask(&fixture, 30, true, 900, 10, 50);
    step(&fixture);
    assert_int_equal(stats_of(&fixture).sequences_running, 5);
    close_fixture(&fixture);
}

/* Runs others until they hold the pool. */
static void fill_pool(struct fixture *fixture, uint32_t steps) {
    for (uint64_t id = 1; id <= 12; id++) ask(fixture, id, false, (int32_t)id * 70, 110, 40);
    for (uint32_t i = 0; i < steps; i++) step(fixture);
}

static void an_urgent_request_takes_blocks_from_others_at_the_next_step(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(
        &fixture,
        (struct shape){
            .blocks = 60, .rows = 64, .sequences = 12, .urgent_rows = 64, .urgent_seqs = 2});
    fill_pool(&fixture, 20);
    struct scheduler_stats before = stats_of(&fixture);
    ask(&fixture, 30, true, 900, 600, 5);
    assert_true(before.pages_free + before.pages_cached < 38);
    for (uint32_t i = 0; i < 20 && fixture.tokens[30] == 0; i++) step(&fixture);
    assert_int_equal(fixture.tokens[30], 1);
    assert_true(stats_of(&fixture).preemptions > before.preemptions);
    assert_int_equal(fixture.preempted[30], 0);
    while (scheduler_has_work(fixture.scheduler)) step(&fixture);
    for (uint64_t id = 1; id <= 12; id++) assert_int_equal(fixture.tokens[id], 40);
    close_fixture(&fixture);
}

/* With prompts of which two fill the pool. */
static void keep_three_waiting(struct fixture *fixture, uint64_t *next) {
    while (fixture->scheduler->lines[LINE_URGENT].waiting.count < 3 && *next < IDS_MAX) {
        ask(fixture, *next, true, (int32_t)(*next * 31 % VOCAB), 296, 8);
        ++*next;
    }
}

static void urgent_requests_without_end_do_not_starve_the_others(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(
        &fixture,
        (struct shape){
            .blocks = 40, .rows = 64, .sequences = 12, .urgent_rows = 64, .urgent_seqs = 2});
    uint64_t next = 100;
    uint32_t others_done = 0;
    bool have_come = false;
    while (others_done < 10 && next < 300) {
        if (next >= 110 && !have_come)
            for (uint64_t id = 1; id <= 10; id++) ask(&fixture, id, false, (int32_t)id, 50, 20);
        have_come = next >= 110;
        keep_three_waiting(&fixture, &next);
        begin(&fixture);
        while (!advance_once(&fixture)) keep_three_waiting(&fixture, &next);
        end(&fixture);
        others_done = 0;
        for (uint64_t id = 1; id <= 10; id++) others_done += fixture.is_finished[id];
    }
    assert_int_equal(others_done, 10);
    close_fixture(&fixture);
}

static void urgent_requests_begin_in_order_of_priority_and_then_arrival(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture,
                 (struct shape){.blocks = 100, .rows = 64, .sequences = 16, .is_whole = true});
    ask(&fixture, 1, true, 700, 64, 1); /* fills the step */
    ask(&fixture, 2, true, 300, 40, 1);
    ask(&fixture, 3, true, 100, 40, 1);
    step(&fixture);
    step(&fixture);
    assert_true(fixture.is_finished[2]);
    assert_false(fixture.is_finished[3]);
    close_fixture(&fixture);
}

static void one_cancelled_in_the_middle_of_a_step_gives_its_blocks_back(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, usual);
    ask(&fixture, 1, false, 0, 40, 5);
    begin(&fixture);
    uint32_t used = stats_of(&fixture).pages_used;
    ask(&fixture, 2, true, 500, 20, 50);
    assert_false(advance_once(&fixture));
    assert_int_equal(stats_of(&fixture).pages_used, used + 2);
    scheduler_cancel(fixture.scheduler, 2); /* at once: the step under way has no row of it */
    assert_true(fixture.is_finished[2]);
    assert_int_equal(stats_of(&fixture).pages_used, used);
    while (!advance_once(&fixture)) continue;
    end(&fixture);
    close_fixture(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_urgent_request_has_its_first_token_before_the_step_under_way_ends),
        cmocka_unit_test(what_is_not_urgent_never_passes),
        cmocka_unit_test(a_backend_without_slices_serves_an_urgent_request_in_the_next_step),
        cmocka_unit_test(a_long_prompt_passes_in_pieces),
        cmocka_unit_test(a_block_the_step_under_way_writes_is_not_found_by_who_passes),
        cmocka_unit_test(at_most_three_urgent_rows_pass_a_row),
        cmocka_unit_test(a_slot_is_kept_for_urgent_requests),
        cmocka_unit_test(a_small_max_num_seqs_holds_next_to_many_urgent_slots),
        cmocka_unit_test(an_urgent_request_takes_blocks_from_others_at_the_next_step),
        cmocka_unit_test(urgent_requests_without_end_do_not_starve_the_others),
        cmocka_unit_test(urgent_requests_begin_in_order_of_priority_and_then_arrival),
        cmocka_unit_test(one_cancelled_in_the_middle_of_a_step_gives_its_blocks_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
