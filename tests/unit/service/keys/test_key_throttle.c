/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "keys/key_throttle.h"

#include <arpa/inet.h>
#include <stdio.h>

static struct address peer(const char *text) {
    struct address peer;
    assert_true(address_read(&peer, str_from(text)));
    return peer;
}

/* Sends wrong keys; returns how many of them were looked at. */
static int guess(struct key_throttle *throttle, const char *from, int count, int64_t now_ms) {
    struct address address = peer(from);
    int looked = 0;
    for (int i = 0; i < count; i++) {
        if (!key_throttle_allows(throttle, &address, now_ms)) continue;
        key_throttle_count(throttle, &address, now_ms);
        looked++;
    }
    return looked;
}

static void an_address_has_some_at_once_and_one_per_second(void **state) {
    (void)state;
    struct key_throttle *throttle = key_throttle_new();
    assert_int_equal(guess(throttle, "192.0.2.1", 1000, 5000), KEY_THROTTLE_AT_ONCE);
    assert_int_equal(guess(throttle, "192.0.2.2", 1000, 5000), KEY_THROTTLE_AT_ONCE);
    assert_int_equal(guess(throttle, "192.0.2.1", 1000, 5999), 0);
    assert_int_equal(guess(throttle, "192.0.2.1", 1000, 6000), 1);
    assert_int_equal(guess(throttle, "192.0.2.1", 1000, 16500), 10);
    assert_int_equal(guess(throttle, "192.0.2.1", 1000, 10000000), KEY_THROTTLE_AT_ONCE);
    key_throttle_free(throttle);
}

static void addresses_of_one_network_are_one(void **state) {
    (void)state;
    struct key_throttle *throttle = key_throttle_new();
    assert_int_equal(guess(throttle, "2001:db8::1", 1000, 1), KEY_THROTTLE_AT_ONCE);
    assert_int_equal(guess(throttle, "2001:db8::2:3", 1000, 1), 0);
    assert_int_equal(guess(throttle, "2001:db8:0:1::1", 1000, 1), KEY_THROTTLE_AT_ONCE);
    assert_int_equal(guess(throttle, "192.0.2.1", 1000, 1), KEY_THROTTLE_AT_ONCE);
    assert_int_equal(guess(throttle, "::ffff:192.0.2.1", 1000, 1), 0);
    key_throttle_free(throttle);
}

static void a_flood_of_addresses_displaces_itself(void **state) {
    (void)state;
    struct key_throttle *throttle = key_throttle_new();
    assert_int_equal(guess(throttle, "192.0.2.1", 1000, 1), KEY_THROTTLE_AT_ONCE);
    for (int i = 0; i < 100000; i++) {
        char text[INET_ADDRSTRLEN];
        snprintf(text, sizeof text, "10.%d.%d.%d", i >> 16, i >> 8 & 255, i & 255);
        assert_int_equal(guess(throttle, text, 1, 1), 1);
    }
    assert_int_equal(guess(throttle, "192.0.2.1", 1000, 1), 0);
    key_throttle_free(throttle);
}

static void one_line_of_the_log_per_attack(void **state) {
    (void)state;
    struct key_throttle *throttle = key_throttle_new();
    struct address address = peer("192.0.2.1");
    for (int round = 0; round < 2; round++) {
        int told = 0;
        for (int i = 0; i < 1000; i++)
            told += key_throttle_count(throttle, &address, 1 + round * 1000000 + i * 100);
        assert_int_equal(told, 1);
    }
    key_throttle_free(throttle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_some_at_once_and_one_per_second),
        cmocka_unit_test(addresses_of_one_network_are_one),
        cmocka_unit_test(a_flood_of_addresses_displaces_itself),
        cmocka_unit_test(one_line_of_the_log_per_attack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
