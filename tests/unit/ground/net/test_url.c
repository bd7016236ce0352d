/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/url.h"

#include <stdlib.h>
#include <string.h>

static void expect_part(const char *text, enum net_url_part part, const char *expected) {
    struct net_url *url = net_url_read(text);
    assert_non_null(url);
    const char *got = net_url_part(url, part);
    if (expected)
        assert_string_equal(got, expected);
    else
        assert_null(got);
    net_url_free(url);
}

static void the_parts_are_those_the_client_connects_to(void **state) {
    (void)state;
    expect_part("HTTPS://Example.com", NET_URL_SCHEME, "https");
    expect_part("https://example.com", NET_URL_PORT, "443");
    expect_part("http://example.com:8080/a", NET_URL_PORT, "8080");
    expect_part("https://example.com", NET_URL_PATH, "/");
    expect_part("https://0x7f.1/", NET_URL_HOST, "127.0.0.1");
    expect_part("https://2130706433/", NET_URL_HOST, "127.0.0.1");
    expect_part("https://[::1]:9/", NET_URL_HOST, "[::1]");
    expect_part("https://[fe80::1%25eth0]/", NET_URL_ZONE, "eth0");
    expect_part("https://a:b@c/?d#e", NET_URL_USER, "a");
    expect_part("https://a:b@c/?d#e", NET_URL_PASSWORD, "b");
    expect_part("https://a:b@c/?d#e", NET_URL_QUERY, "d");
    expect_part("https://a:b@c/?d#e", NET_URL_FRAGMENT, "e");
    expect_part("https://c/", NET_URL_USER, NULL);
    expect_part("https://c/", NET_URL_QUERY, NULL);
}

static void an_empty_user_is_a_user(void **state) {
    (void)state;
    expect_part("https://@example.com/", NET_URL_USER, "");
    expect_part("https://:@example.com/", NET_URL_USER, "");
}

static void other_texts_are_no_urls(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "example.com",
                                      "//example.com/",
                                      "https://",
                                      "https://a b/",
                                      "https://example.com:99999/",
                                      "https://[::1",
                                      "nothing://x/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (net_url_read(bad[i])) fail_msg("'%s' is read", bad[i]);
}

static void a_path_takes_the_place_of_the_urls_own(void **state) {
    (void)state;
    struct net_url *url = net_url_read("http://h:8000/v1");
    char *text = net_url_with_path(url, "/health");
    assert_string_equal(text, "http://h:8000/health");
    free(text);
    assert_string_equal(net_url_part(url, NET_URL_PATH), "/v1");
    net_url_free(url);
}

static bool is_one_origin(const char *a, const char *b) {
    char *left = net_url_origin(a), *right = net_url_origin(b);
    bool is_one = left && right && strcasecmp(left, right) == 0;
    free(left);
    free(right);
    return is_one;
}

static void an_origin_is_scheme_host_and_port_without_a_user(void **state) {
    (void)state;
    assert_true(is_one_origin("https://hub.example", "HTTPS://Hub.Example:443/x?y"));
    assert_false(is_one_origin("https://hub.example", "http://hub.example"));
    assert_false(is_one_origin("https://hub.example", "https://hub.example:8443"));
    assert_false(is_one_origin("https://hub.example", "https://hub.example.org"));
    assert_false(is_one_origin("https://hub.example", "https://user@hub.example"));
    assert_false(is_one_origin("https://hub.example", "https://hub.example@other/"));
    assert_null(net_url_origin("hub.example"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_are_those_the_client_connects_to),
        cmocka_unit_test(an_empty_user_is_a_user),
        cmocka_unit_test(other_texts_are_no_urls),
        cmocka_unit_test(a_path_takes_the_place_of_the_urls_own),
        cmocka_unit_test(an_origin_is_scheme_host_and_port_without_a_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
