/* SPDX-License-Identifier: Apache-2.0 */

/* The policy by which models take turns, under a clock of our own: every test counts loads. */

#include "workers/engine/turns.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SECOND_NS ((int64_t)1000000000)
#define MODELS 4
#define LOAD_S 10

static const struct turns_options one_at_a_time = {1, 0, 0};

/* Batches and single requests, each for one model, arriving at a second and needing some. */
struct work {
    int64_t arrives_s;
    uint32_t model;
    int64_t needs_s; /* seconds of the model's time */
    int64_t deadline_s;
    bool is_interactive;
    int64_t done_s; /* 0: not yet */
};

struct world {
    struct turn_member members[MODELS];
    uint32_t loaded_max;
    struct work *work;
    size_t work_count;
    int64_t now_s;
    uint32_t loads;
    char order[64]; /* models in the order in which they were loaded: 'a', 'b', … */
};

/* The first work of the model that has arrived and is not done: what its engine would run. */
static struct work *next_of(struct world *world, uint32_t model) {
    struct work *next = NULL;
    for (size_t i = 0; i < world->work_count; i++) {
        struct work *one = &world->work[i];
        if (one->model != model || one->arrives_s > world->now_s || one->needs_s == 0) continue;
        if (!next || (one->is_interactive && !next->is_interactive)) next = one;
    }
    return next;
}

/* What the workers tell the turns: who waits, and who has what inside. */
static void tell(struct world *world, uint32_t model) {
    struct turn_member *member = &world->members[model];
    struct work *work = next_of(world, model);
    if (member->state == TURN_AWAY && work) {
        enum tier tier = work->is_interactive ? TIER_DEFAULT : TIER_BATCH;
        if (!member->is_wanted) member->wanted_unix_s = world->now_s;
        member->tier = member->is_wanted && member->tier < tier ? member->tier : tier;
        member->is_wanted = true;
        member->deadline_unix_s = work->deadline_s;
    }
    if (member->state != TURN_LOADED) return;
    if (work) {
        member->had_job = true;
        member->was_interactive = work->is_interactive;
        member->jobs_deadline_unix_s = work->deadline_s;
    } else if (member->jobs > 0) {
        member->idle_ns = world->now_s * SECOND_NS;
    }
    member->jobs = work != NULL;
}

/* One second of everything. */
static void step(struct world *world) {
    for (uint32_t i = 0; i < MODELS; i++) {
        struct turn_member *member = &world->members[i];
        if (member->state == TURN_LEAVING) *member = (struct turn_member){.state = TURN_AWAY};
        int64_t now_ns = world->now_s * SECOND_NS;
        if (member->state == TURN_LOADING && now_ns - member->loading_ns >= LOAD_S * SECOND_NS) {
            member->state = TURN_LOADED;
            member->loaded_ns = member->idle_ns = now_ns;
        }
        tell(world, i);
        struct work *work = member->state == TURN_LOADED ? next_of(world, i) : NULL;
        if (!work) continue;
        member->done++;
        if (--work->needs_s == 0) work->done_s = world->now_s;
    }
    const struct turns_options options = {world->loaded_max, SECOND_NS, 0};
    struct turn_decision decision =
        turns_decide(world->members, MODELS, &options, world->now_s * SECOND_NS, world->now_s);
    struct turn_member *member = &world->members[decision.member];
    if (decision.move == TURN_UNLOAD) {
        assert_int_equal(member->state, TURN_LOADED);
        member->state = TURN_LEAVING;
    } else if (decision.move == TURN_LOAD) {
        assert_int_equal(member->state, TURN_AWAY);
        *member =
            (struct turn_member){.state = TURN_LOADING, .loading_ns = world->now_s * SECOND_NS};
        world->order[world->loads++] = (char)('a' + decision.member);
        assert_true(world->loads < sizeof world->order);
    }
    uint32_t in_memory = 0;
    for (uint32_t i = 0; i < MODELS; i++)
        in_memory += world->members[i].state == TURN_LOADED ||
                     world->members[i].state == TURN_LOADING ||
                     world->members[i].state == TURN_LEAVING;
    assert_true(in_memory <= world->loaded_max);
    world->now_s++;
}

/* Until all work is done. */
static void run(struct world *world, uint32_t loaded_max, struct work *work, size_t count) {
    *world = (struct world){.loaded_max = loaded_max, .work = work, .work_count = count};
    world->now_s = 1;
    for (size_t done = 0; done < count;) {
        step(world);
        done = 0;
        for (size_t i = 0; i < count; i++) done += work[i].needs_s == 0;
        assert_true(world->now_s < 1000000);
    }
}

static void batches_of_two_models_need_two_loads_in_whatever_order_they_come(void **state) {
    (void)state;
    struct world world;
    struct work work[] = {{1, 0, 100, 86400, false, 0},  {1, 1, 100, 86400, false, 0},
                          {20, 0, 100, 86400, false, 0}, {30, 1, 100, 86400, false, 0},
                          {40, 0, 100, 86400, false, 0}, {50, 1, 100, 86400, false, 0}};
    run(&world, 1, work, 6);
    assert_string_equal(world.order, "ab");
}

static void what_fits_together_is_loaded_once_and_stays(void **state) {
    (void)state;
    struct world world;
    struct work work[] = {{1, 0, 10, 0, true, 0},   {1, 1, 10, 0, true, 0},
                          {500, 0, 10, 0, true, 0}, {500, 1, 10, 0, true, 0},
                          {900, 2, 10, 0, true, 0}, {1500, 0, 10, 0, true, 0}};
    run(&world, 3, work, 6);
    assert_string_equal(world.order, "abc");
}

static void a_single_request_is_loaded_for_before_the_batch_ends(void **state) {
    (void)state;
    struct world world;
    struct work work[] = {{1, 0, 5000, 86400, false, 0}, {200, 1, 1, 0, true, 0}};
    run(&world, 1, work, 2);
    assert_string_equal(world.order, "aba");
    assert_true(work[1].done_s < 200 + LOAD_S + 5);
}

static void two_demands_in_turn_spend_little_time_on_loading(void **state) {
    (void)state;
    struct world world;
    struct work work[41] = {{1, 0, 3000, 86400, false, 0}};
    /* A single request every 50 seconds, for another model than the batch's. */
    for (int i = 0; i < 40; i++) work[1 + i] = (struct work){100 + 50 * i, 1, 1, 0, true, 0};
    run(&world, 1, work, 41);
    int64_t end_s = work[0].done_s;
    assert_true(end_s > 3000);
    /* Every turn of the batch's model lasted at least four times its load. */
    assert_true((int64_t)world.loads * LOAD_S <= end_s * 2 / 5);
    for (int i = 1; i < 41; i++)
        assert_true(work[i].done_s - work[i].arrives_s <= (TURN_STAY_LOADS + 3) * LOAD_S);
}

static void a_batch_at_risk_comes_before_one_that_has_time(void **state) {
    (void)state;
    struct world world;
    struct work work[] = {{1, 0, 20000, 86400, false, 0}, {100, 1, 500, 4100, false, 0}};
    run(&world, 1, work, 2);
    assert_string_equal(world.order, "aba");
    assert_true(work[1].done_s < 4100);
    assert_true(work[1].done_s > 2000); /* and not before it was at risk */
}

static void a_batch_with_time_waits_until_the_other_is_done(void **state) {
    (void)state;
    struct world world;
    struct work work[] = {{1, 0, 2000, 86400, false, 0}, {100, 1, 500, 86400, false, 0}};
    run(&world, 1, work, 2);
    assert_string_equal(world.order, "ab");
}

static void the_earliest_deadline_is_loaded_first(void **state) {
    (void)state;
    struct world world;
    struct work work[] = {{1, 0, 100, 86400, false, 0},
                          {2, 1, 100, 80000, false, 0},
                          {3, 2, 100, 20000, false, 0},
                          {4, 3, 100, 50000, false, 0}};
    run(&world, 1, work, 4);
    assert_string_equal(world.order, "acdb");
}

static void a_model_that_failed_is_not_loaded_again_and_takes_no_place(void **state) {
    (void)state;
    struct turn_member members[2] = {
        {.state = TURN_FAILED, .is_wanted = true, .tier = TIER_DEFAULT},
        {.state = TURN_AWAY, .is_wanted = true, .tier = TIER_BATCH}};
    struct turn_decision decision = turns_decide(members, 2, &one_at_a_time, 0, 0);
    assert_int_equal(decision.move, TURN_LOAD);
    assert_int_equal(decision.member, 1);
    members[1] = (struct turn_member){.state = TURN_LOADED};
    assert_int_equal(turns_decide(members, 2, &one_at_a_time, 100 * SECOND_NS, 100).move,
                     TURN_WAIT);
}

static void a_model_that_was_just_loaded_waits_for_its_first_job(void **state) {
    (void)state;
    struct turn_member members[2] = {
        {.state = TURN_LOADED, .loading_ns = 0, .loaded_ns = SECOND_NS, .idle_ns = SECOND_NS},
        {.state = TURN_AWAY, .is_wanted = true, .tier = TIER_BATCH}};
    int64_t soon_ns = SECOND_NS + TURN_FIRST_JOB_NS;
    assert_int_equal(turns_decide(members, 2, &one_at_a_time, soon_ns - 1, 1).move, TURN_WAIT);
    assert_int_equal(turns_decide(members, 2, &one_at_a_time, soon_ns, 1).move, TURN_UNLOAD);
    members[0].had_job = true;
    members[0].was_interactive = false;
    assert_int_equal(turns_decide(members, 2, &one_at_a_time, SECOND_NS + TURN_IDLE_NS, 1).move,
                     TURN_UNLOAD);
}

static void a_model_stays_until_it_has_finished_something(void **state) {
    (void)state;
    const struct turns_options options = {1, 2 * SECOND_NS, 0};
    struct turn_member members[2] = {{.state = TURN_LOADED, .jobs = 5, .had_job = true},
                                     {.state = TURN_AWAY, .is_wanted = true, .tier = TIER_DEFAULT}};
    int64_t longest_ns = TURN_FRUITLESS * 2 * SECOND_NS;
    assert_int_equal(turns_decide(members, 2, &options, longest_ns - 1, 1).move, TURN_WAIT);
    assert_int_equal(turns_decide(members, 2, &options, longest_ns, 1).move, TURN_UNLOAD);
    members[0].done = 1;
    assert_int_equal(turns_decide(members, 2, &options, 2 * SECOND_NS - 1, 1).move, TURN_WAIT);
    assert_int_equal(turns_decide(members, 2, &options, 2 * SECOND_NS, 1).move, TURN_UNLOAD);
}

static void models_are_loaded_together_as_far_as_their_memory_goes(void **state) {
    (void)state;
    const struct turns_options options = {.loaded_max = 4, .memory_bytes = 100};
    struct turn_member members[3] = {
        {.state = TURN_LOADED, .bytes = 50, .idle_ns = SECOND_NS},
        {.state = TURN_LOADED, .bytes = 30, .idle_ns = 2 * SECOND_NS},
        {.state = TURN_AWAY, .bytes = 20, .is_wanted = true, .tier = TIER_DEFAULT}};
    int64_t now_ns = 100 * SECOND_NS;
    assert_int_equal(turns_decide(members, 3, &options, now_ns, 100).move, TURN_LOAD);
    members[2].bytes = 21;
    struct turn_decision decision = turns_decide(members, 3, &options, now_ns, 100);
    assert_int_equal(decision.move, TURN_UNLOAD);
    assert_int_equal(decision.member, 0); /* the one that was idle for the longest */
    members[0].state = TURN_AWAY;
    assert_int_equal(turns_decide(members, 3, &options, now_ns, 100).move, TURN_LOAD);
    /* A model that alone needs more than all is loaded when no other one is. */
    members[2].bytes = 1000;
    assert_int_equal(turns_decide(members, 3, &options, now_ns, 100).move, TURN_UNLOAD);
    members[1].state = TURN_AWAY;
    decision = turns_decide(members, 3, &options, now_ns, 100);
    assert_int_equal(decision.move, TURN_LOAD);
    assert_int_equal(decision.member, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_of_two_models_need_two_loads_in_whatever_order_they_come),
        cmocka_unit_test(what_fits_together_is_loaded_once_and_stays),
        cmocka_unit_test(a_single_request_is_loaded_for_before_the_batch_ends),
        cmocka_unit_test(two_demands_in_turn_spend_little_time_on_loading),
        cmocka_unit_test(a_batch_at_risk_comes_before_one_that_has_time),
        cmocka_unit_test(a_batch_with_time_waits_until_the_other_is_done),
        cmocka_unit_test(the_earliest_deadline_is_loaded_first),
        cmocka_unit_test(a_model_that_failed_is_not_loaded_again_and_takes_no_place),
        cmocka_unit_test(a_model_that_was_just_loaded_waits_for_its_first_job),
        cmocka_unit_test(a_model_stays_until_it_has_finished_something),
        cmocka_unit_test(models_are_loaded_together_as_far_as_their_memory_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
