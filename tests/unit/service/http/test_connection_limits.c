/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "http/connection_limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPENED_MAX 600

/* The gate's side: connections that only have places. */
struct gate_side {
    struct connection_limits limits;
    struct gate_options options;
    struct gate_connection *opened[OPENED_MAX];
    size_t count;
    int64_t now_ms;
};

static struct gate_side *new_side(uint32_t connections_max, uint32_t per_peer_max) {
    struct gate_side *side = mem_new(1, sizeof *side);
    side->options.connections_max = connections_max;
    side->options.connections_per_peer_max = per_peer_max;
    side->now_ms = 5000;
    return side;
}

static void close_one(struct gate_side *side, struct gate_connection *c) {
    size_t at = 0;
    while (side->opened[at] != c) at++;
    side->opened[at] = side->opened[--side->count];
    connection_limits_remove(&side->limits, c);
    free(c);
}

static void free_side(struct gate_side *side) {
    while (side->count > 0) close_one(side, side->opened[0]);
    for (size_t i = 0; i < CONNECTIONS_BUCKETS; i++) assert_null(side->limits.peers[i]);
    assert_null(side->limits.first);
    assert_null(side->limits.last);
    free(side);
}

static struct address address_of(const char *text) {
    struct address address;
    assert_true(address_read(&address, str_from(text)));
    return address;
}

/* A silent connection of the address; NULL if it has no place. *ret_left (NULL allowed) tells which
 * one left for it; it is closed then. */
static struct gate_connection *come(struct gate_side *side, const char *text,
                                    const struct gate_connection **ret_left) {
    struct address peer = address_of(text);
    struct gate_connection *leaves;
    bool has_place =
        connection_limits_find(&side->limits, &side->options, &peer, side->now_ms, &leaves);
    if (ret_left) *ret_left = leaves;
    if (!has_place) return NULL;
    if (leaves) close_one(side, leaves);
    struct gate_connection *c = mem_new(1, sizeof *c);
    assert_true(side->count < OPENED_MAX);
    side->opened[side->count++] = c;
    c->peer = peer;
    c->served_ms = side->now_ms;
    connection_limits_add(&side->limits, c);
    return c;
}

/* The connection had its header block, or took a byte of its answer. */
static void serve(struct gate_side *side, struct gate_connection *c) {
    c->served_ms = side->now_ms;
    connection_limits_renew(&side->limits, c);
}

static void an_address_at_its_bound_loses_its_own_longest_idle(void **state) {
    (void)state;
    struct gate_side *side = new_side(100, 3);
    const struct gate_connection *left;
    struct gate_connection *other = come(side, "10.0.0.1", NULL);
    struct gate_connection *first = come(side, "10.0.0.2", NULL);
    struct gate_connection *second = come(side, "10.0.0.2", NULL);
    assert_non_null(come(side, "::ffff:10.0.0.2", NULL));
    side->now_ms += 500;
    serve(side, first);
    assert_null(come(side, "10.0.0.2", NULL)); /* all have come just now */
    side->now_ms += 600;
    assert_non_null(come(side, "10.0.0.2", &left));
    assert_ptr_equal(left, second);
    assert_non_null(come(side, "10.0.0.3", &left));
    assert_null(left);
    assert_ptr_equal(side->limits.first, other);
    free_side(side);
}

static void a_full_server_loses_the_longest_idle_of_all(void **state) {
    (void)state;
    struct gate_side *side = new_side(3, 3);
    const struct gate_connection *left;
    struct gate_connection *first = come(side, "10.0.0.1", NULL);
    struct gate_connection *second = come(side, "10.0.0.2", NULL);
    struct gate_connection *third = come(side, "10.0.0.3", NULL);
    side->now_ms += 1000;
    first->reading = RELAY_LENGTH; /* it sends a body */
    atomic_store(&second->unanswered, 1);
    assert_non_null(come(side, "10.0.0.4", &left));
    assert_ptr_equal(left, third);
    assert_null(come(side, "10.0.0.5", NULL));
    side->now_ms += 20000;
    second->stalled_ms = side->now_ms - 10000; /* it takes nothing of its answer */
    assert_non_null(come(side, "10.0.0.5", &left));
    assert_ptr_equal(left, second);
    free_side(side);
}

/* Addresses that meet in a bucket keep accounts of their own. */
static void each_of_many_addresses_has_its_own_bound(void **state) {
    (void)state;
    struct gate_side *side = new_side(OPENED_MAX, 2);
    char text[32];
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < OPENED_MAX / 2; i++) {
            snprintf(text, sizeof text, "10.1.%d.%d", i / 256, i % 256);
            assert_int_equal(come(side, text, NULL) != NULL, round < 2);
        }
    assert_int_equal(side->limits.count, OPENED_MAX);
    free_side(side);
}

static void loopback_leaves_an_eighth_and_others_have_256(void **state) {
    (void)state;
    struct gate_side *side = new_side(600, 0);
    int local = 0, remote = 0;
    while (come(side, "127.0.0.1", NULL)) local++;
    assert_int_equal(local, 525);
    while (come(side, "10.0.0.1", NULL)) remote++;
    assert_int_equal(remote, 75);
    free_side(side);
    side = new_side(600, 0);
    for (remote = 0; come(side, "10.0.0.1", NULL);) remote++;
    assert_int_equal(remote, 256);
    free_side(side);
}

static void an_address_is_crowded_by_its_own_connections_only(void **state) {
    (void)state;
    struct gate_side *side = new_side(100, 100);
    struct gate_connection *c = NULL;
    for (int i = 0; i < CONNECTIONS_CROWD; i++) {
        c = come(side, "10.0.0.1", NULL);
        assert_false(connection_limits_is_crowded(c));
    }
    assert_true(connection_limits_is_crowded(come(side, "::ffff:10.0.0.1", NULL)));
    assert_false(connection_limits_is_crowded(come(side, "10.0.0.2", NULL)));
    close_one(side, c);
    assert_false(connection_limits_is_crowded(come(side, "10.0.0.3", NULL)));
    free_side(side);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_at_its_bound_loses_its_own_longest_idle),
        cmocka_unit_test(a_full_server_loses_the_longest_idle_of_all),
        cmocka_unit_test(each_of_many_addresses_has_its_own_bound),
        cmocka_unit_test(loopback_leaves_an_eighth_and_others_have_256),
        cmocka_unit_test(an_address_is_crowded_by_its_own_connections_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
