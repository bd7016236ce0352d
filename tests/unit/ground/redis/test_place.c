/* SPDX-License-Identifier: Apache-2.0 */
#include "redis/place.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_url_tells_host_port_user_and_cluster(void **state) {
    (void)state;
    struct redis_place place;
    struct error error;
    assert_int_equal(
        redis_place_read(&place, "rediss://node@redis.lan:7000/?cluster=prod-1", &error), OK);
    assert_true(place.is_tls);
    assert_string_equal(place.host, "redis.lan");
    assert_string_equal(place.user, "node");
    assert_string_equal(place.cluster, "prod-1");
    assert_int_equal(place.port, 7000);
}

static void what_a_url_leaves_out_is_the_usual(void **state) {
    (void)state;
    struct redis_place place;
    struct error error;
    assert_int_equal(redis_place_read(&place, "redis://127.0.0.1", &error), OK);
    assert_false(place.is_tls);
    assert_int_equal(place.port, 6379);
    assert_string_equal(place.user, "");
    assert_string_equal(place.cluster, "default");
    assert_int_equal(redis_place_read(&place, "redis://[::1]:6380", &error), OK);
    assert_string_equal(place.host, "::1");
    assert_int_equal(place.port, 6380);
}

static void a_wrong_url_is_refused_with_its_reason(void **state) {
    (void)state;
    static const struct {
        const char *url, *reason;
    } rows[] = {
        {"", "begins with neither"},
        {"http://host", "begins with neither"},
        {"redis://", "host of the URL is empty"},
        {"redis://:6379", "host of the URL is empty"},
        {"redis://host:0", "port"},
        {"redis://host:65536", "port"},
        {"redis://host:6379x", "port"},
        {"redis://[::1", "bracket"},
        {"redis://user:word@host", "password"},
        {"redis://@host", "user of the URL is empty"},
        {"redis://ho st", "host"},
        {"redis://host/1", "host"},
        {"redis://host?db=1", "?cluster=NAME"},
        {"redis://host?cluster=", "cluster of the URL is empty"},
        {"redis://host?cluster={a}", "cluster"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct redis_place place = {.port = 1};
        struct error error = {0};
        assert_int_equal(redis_place_read(&place, rows[i].url, &error), ERR_INVALID);
        if (!strstr(error.text, rows[i].reason)) fail_msg("%s: %s", rows[i].url, error.text);
        assert_int_equal(place.port, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_tells_host_port_user_and_cluster),
        cmocka_unit_test(what_a_url_leaves_out_is_the_usual),
        cmocka_unit_test(a_wrong_url_is_refused_with_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
