/* SPDX-License-Identifier: Apache-2.0 */

/* The limit, the breaker and the key of an upstream, on a clock that the tests turn. */

#include "workers/upstream/breaker.h"
#include "workers/upstream/key.h"
#include "workers/upstream/limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MS ((int64_t)1000000)
#define S (1000 * MS)

/* --- the limit, against a server of so many places --- */

/* A server that runs `places` at a time, each for `service_ns`; what is beyond waits, or is
 * refused. More than `comfort` in flight slow everything down by their share. */
struct server {
    uint32_t places;
    uint32_t comfort; /* 0: never slower */
    int64_t service_ns;
    bool refuses;
};

struct flight {
    int64_t sent_ns, ends_ns;
    bool is_refused;
};

struct play {
    struct upstream_limit limit;
    struct flight flights[256];
    uint32_t count;
    int64_t now_ns;
    uint64_t answered, refused;
    uint32_t peak;
};

static void send_more(struct play *play, const struct server *server) {
    while (play->count < upstream_limit_level(&play->limit) &&
           !upstream_limit_is_paused(&play->limit, play->now_ns)) {
        uint32_t ahead = play->count / server->places;
        bool is_refused = server->refuses && play->count >= server->places;
        int64_t service_ns = server->service_ns;
        if (server->comfort && play->count > server->comfort)
            service_ns = service_ns * play->count * play->count / server->comfort / server->comfort;
        int64_t takes_ns = is_refused ? MS : service_ns * (1 + (server->refuses ? 0 : ahead));
        play->flights[play->count++] =
            (struct flight){play->now_ns, play->now_ns + takes_ns, is_refused};
        if (play->count > play->peak) play->peak = play->count;
    }
}

static void run_server(struct play *play, const struct server *server, int64_t for_ns) {
    for (int64_t end_ns = play->now_ns + for_ns; play->now_ns < end_ns; play->now_ns += MS) {
        upstream_limit_tick(&play->limit, play->count >= upstream_limit_level(&play->limit),
                            play->now_ns);
        for (uint32_t i = 0; i < play->count;) {
            struct flight flight = play->flights[i];
            if (flight.ends_ns > play->now_ns) {
                i++;
                continue;
            }
            if (flight.is_refused)
                upstream_limit_refused(&play->limit, flight.sent_ns, play->now_ns, -1, 0.5);
            else
                upstream_limit_answered(&play->limit, flight.sent_ns, play->now_ns, 1, true);
            play->answered += !flight.is_refused;
            play->refused += flight.is_refused;
            play->flights[i] = play->flights[--play->count];
        }
        send_more(play, server);
    }
}

static struct play new_play(uint32_t max) {
    struct play play = {.now_ns = S};
    upstream_limit_init(&play.limit, max);
    return play;
}

static void it_starts_small_and_finds_the_top_within_a_second(void **state) {
    (void)state;
    const struct server server = {.places = 1000, .service_ns = 200 * MS};
    struct play play = new_play(64);
    assert_true(upstream_limit_level(&play.limit) <= 8);
    run_server(&play, &server, S);
    assert_int_equal(upstream_limit_level(&play.limit), 64);
    assert_int_equal(play.peak, 64);
}

static void a_server_that_only_queues_keeps_all_in_flight(void **state) {
    (void)state;
    const struct server server = {.places = 4, .service_ns = 50 * MS};
    struct play play = new_play(64);
    run_server(&play, &server, 60 * S);
    assert_true(upstream_limit_level(&play.limit) >= 48);
}

static void a_server_that_refuses_is_held_near_its_places(void **state) {
    (void)state;
    const struct server server = {.places = 20, .service_ns = 200 * MS, .refuses = true};
    struct play play = new_play(64);
    run_server(&play, &server, 10 * S);
    uint64_t before = play.answered, refused = play.refused;
    run_server(&play, &server, 60 * S);
    assert_in_range(upstream_limit_level(&play.limit), 10, 26);
    /* Four fifths of what it could do, and refusals are rare. */
    assert_true(play.answered - before >= 20 * 5 * 60 * 8 / 10);
    assert_true(play.refused - refused < (play.answered - before) / 10);
}

static void a_server_that_does_less_with_more_is_given_less(void **state) {
    (void)state;
    const struct server good = {.places = 1000, .service_ns = 100 * MS};
    const struct server bad = {.places = 1000, .service_ns = 100 * MS, .comfort = 16};
    struct play play = new_play(64);
    run_server(&play, &good, 5 * S);
    assert_int_equal(upstream_limit_level(&play.limit), 64);
    run_server(&play, &bad, 30 * S);
    for (int i = 0; i < 60; i++) {
        assert_in_range(upstream_limit_level(&play.limit), 8, 52);
        run_server(&play, &bad, S);
    }
    run_server(&play, &good, 60 * S);
    assert_int_equal(upstream_limit_level(&play.limit), 64);
}

static void what_was_sent_before_a_cut_says_nothing_new(void **state) {
    (void)state;
    struct upstream_limit limit;
    upstream_limit_init(&limit, 64);
    for (int i = 1; i < 8; i++) upstream_limit_tick(&limit, true, i * 100 * MS);
    assert_int_equal(upstream_limit_level(&limit), 64);
    for (int i = 0; i < 64; i++) upstream_limit_refused(&limit, S, 2 * S + i, -1, 1);
    assert_int_equal(upstream_limit_level(&limit), 44); /* one cut */
    assert_int_equal(limit.refusals, 1);
    upstream_limit_refused(&limit, 3 * S, 3 * S, -1, 1);
    assert_int_equal(upstream_limit_level(&limit), 31);
}

static void a_refusal_pauses_as_long_as_it_asks_for(void **state) {
    (void)state;
    struct upstream_limit limit;
    upstream_limit_init(&limit, 64);
    upstream_limit_refused(&limit, S, S, 7000, 0);
    assert_true(upstream_limit_is_paused(&limit, 8 * S - 1));
    assert_false(upstream_limit_is_paused(&limit, 8 * S));
    /* A later one that asks for less does not shorten it. */
    upstream_limit_refused(&limit, S, S + MS, 10, 0);
    assert_true(upstream_limit_is_paused(&limit, 8 * S - 1));
    /* Nobody is believed who asks for years. */
    upstream_limit_refused(&limit, 9 * S, 9 * S, INT64_MAX / 2, 0);
    assert_false(upstream_limit_is_paused(&limit, 9 * S + 3600 * S));
}

static void pauses_double_and_are_random(void **state) {
    (void)state;
    struct upstream_limit limit;
    upstream_limit_init(&limit, 64);
    int64_t now_ns = S, longest_ns = 0;
    for (int i = 0; i < 20; i++) {
        upstream_limit_refused(&limit, now_ns, now_ns, -1, 0.999);
        longest_ns = limit.pause_until_ns - now_ns;
        now_ns = limit.pause_until_ns + 1;
    }
    assert_in_range(longest_ns, 29 * S, 30 * S);
    upstream_limit_refused(&limit, now_ns, now_ns, -1, 0);
    assert_false(upstream_limit_is_paused(&limit, now_ns));
    /* An answer ends the row. */
    upstream_limit_answered(&limit, now_ns, now_ns, 1, false);
    upstream_limit_refused(&limit, now_ns + 1, now_ns + 1, -1, 0.999);
    assert_true(limit.pause_until_ns - now_ns <= 100 * MS);
    assert_int_equal(upstream_limit_level(&limit), 1);
}

/* --- the breaker --- */

static void five_failures_in_a_row_open_it_and_a_good_probe_half_opens_it(void **state) {
    (void)state;
    struct upstream_breaker breaker = {.state = UPSTREAM_BREAKER_CLOSED};
    for (int i = 0; i < 4; i++) assert_false(upstream_breaker_failed(&breaker, S, 2 * S, 0.5));
    assert_false(upstream_breaker_answered(&breaker, S));
    for (int i = 0; i < 4; i++) assert_false(upstream_breaker_failed(&breaker, S, 2 * S, 0.5));
    assert_true(upstream_breaker_failed(&breaker, S, 2 * S, 0.5));
    assert_int_equal(breaker.state, UPSTREAM_BREAKER_OPEN);
    assert_false(upstream_breaker_wants_probe(&breaker, 2 * S));
    assert_true(upstream_breaker_wants_probe(&breaker, 3 * S));
    upstream_breaker_probed(&breaker, true, 3 * S, 0.5);
    assert_int_equal(breaker.state, UPSTREAM_BREAKER_HALF_OPEN);
    /* Neither an answer nor a failure from before counts. */
    assert_false(upstream_breaker_answered(&breaker, 2 * S));
    assert_false(upstream_breaker_failed(&breaker, 2 * S, 4 * S, 0.5));
    assert_int_equal(breaker.state, UPSTREAM_BREAKER_HALF_OPEN);
    assert_true(upstream_breaker_answered(&breaker, 3 * S));
    assert_int_equal(breaker.state, UPSTREAM_BREAKER_CLOSED);
}

static void bad_probes_come_later_and_later_up_to_half_a_minute(void **state) {
    (void)state;
    struct upstream_breaker breaker = {.state = UPSTREAM_BREAKER_CLOSED};
    int64_t now_ns = S, last_ns = 0;
    for (int i = 0; i < 5; i++) (void)upstream_breaker_failed(&breaker, now_ns, now_ns, 0.5);
    for (int i = 0; i < 12; i++) {
        now_ns = breaker.probe_ns;
        assert_true(upstream_breaker_wants_probe(&breaker, now_ns));
        upstream_breaker_probed(&breaker, false, now_ns, 0.5);
        assert_true(breaker.probe_ns - now_ns >= last_ns);
        last_ns = breaker.probe_ns - now_ns;
    }
    assert_in_range(last_ns, 15 * S, 30 * S);
}

static void a_request_that_fails_behind_good_probes_is_tried_again_soon(void **state) {
    (void)state;
    struct upstream_breaker breaker = {.state = UPSTREAM_BREAKER_CLOSED};
    int64_t now_ns = S;
    for (int i = 0; i < 5; i++) (void)upstream_breaker_failed(&breaker, now_ns, now_ns, 0.5);
    for (int i = 0; i < 20; i++) {
        now_ns = breaker.probe_ns;
        upstream_breaker_probed(&breaker, true, now_ns, 0.5);
        assert_true(upstream_breaker_failed(&breaker, now_ns, now_ns, 0.5));
        assert_true(breaker.probe_ns - now_ns <= S);
    }
}

static void would_open_foretells_every_failure(void **state) {
    (void)state;
    struct upstream_breaker breaker = {.state = UPSTREAM_BREAKER_CLOSED};
    int64_t now_ns = S;
    for (int i = 0; i < 40; i++, now_ns += S / 4) {
        int64_t sent_ns = i % 3 == 0 ? now_ns - S : now_ns;
        bool opens = upstream_breaker_would_open(&breaker, sent_ns);
        assert_int_equal(upstream_breaker_failed(&breaker, sent_ns, now_ns, 0.5), opens);
        if (upstream_breaker_wants_probe(&breaker, now_ns))
            upstream_breaker_probed(&breaker, true, now_ns, 0.5);
    }
}

/* --- the key --- */

static void one_request_alone_proves_nothing_about_the_key(void **state) {
    (void)state;
    struct upstream_key key = {.is_refused = false};
    for (int i = 0; i < 9; i++) {
        assert_true(upstream_key_is_doubted(&key, 401));
        assert_int_equal(upstream_key_outcome(&key, STR("a"), true), OUTCOME_TRY_AGAIN);
        upstream_key_doubt(&key, STR("a"));
    }
    assert_int_equal(upstream_key_outcome(&key, STR("b"), false), OUTCOME_TRY_AGAIN);
    assert_int_equal(upstream_key_outcome(&key, STR("b"), true), OUTCOME_NOT_RUN);
    assert_int_equal(key.requests, 1);
}

static void a_refused_key_runs_nothing_until_anything_else_is_answered(void **state) {
    (void)state;
    struct upstream_key key = {.is_refused = true, .has_answered = true, .requests = 2};
    assert_true(upstream_key_is_doubted(&key, 403));
    assert_int_equal(upstream_key_outcome(&key, STR("a"), false), OUTCOME_NOT_RUN);
    assert_true(upstream_key_accept(&key));
    assert_false(upstream_key_accept(&key));
    assert_int_equal(upstream_key_outcome(&key, STR("a"), true), OUTCOME_TRY_AGAIN);
}

static void a_403_of_an_upstream_that_has_answered_is_the_requests_own(void **state) {
    (void)state;
    struct upstream_key key = {.is_refused = false};
    assert_true(upstream_key_is_doubted(&key, 403));
    (void)upstream_key_accept(&key);
    assert_false(upstream_key_is_doubted(&key, 403));
    assert_true(upstream_key_is_doubted(&key, 401));
    assert_true(upstream_key_is_doubted(&key, 402));
    assert_false(upstream_key_is_doubted(&key, 404));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_starts_small_and_finds_the_top_within_a_second),
        cmocka_unit_test(a_server_that_only_queues_keeps_all_in_flight),
        cmocka_unit_test(a_server_that_refuses_is_held_near_its_places),
        cmocka_unit_test(a_server_that_does_less_with_more_is_given_less),
        cmocka_unit_test(what_was_sent_before_a_cut_says_nothing_new),
        cmocka_unit_test(a_refusal_pauses_as_long_as_it_asks_for),
        cmocka_unit_test(pauses_double_and_are_random),
        cmocka_unit_test(five_failures_in_a_row_open_it_and_a_good_probe_half_opens_it),
        cmocka_unit_test(bad_probes_come_later_and_later_up_to_half_a_minute),
        cmocka_unit_test(a_request_that_fails_behind_good_probes_is_tried_again_soon),
        cmocka_unit_test(would_open_foretells_every_failure),
        cmocka_unit_test(one_request_alone_proves_nothing_about_the_key),
        cmocka_unit_test(a_refused_key_runs_nothing_until_anything_else_is_answered),
        cmocka_unit_test(a_403_of_an_upstream_that_has_answered_is_the_requests_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
