/* SPDX-License-Identifier: Apache-2.0 */
#include "base/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

static struct address read_good(const char *text) {
    struct address address;
    if (!address_read(&address, str_from(text))) fail_msg("%s is not read", text);
    return address;
}

static void a_numeric_address_is_read_whole_or_not_at_all(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",           "localhost",
        "127.1",      "2130706433",
        "0x7f.0.0.1", "0177.0.0.1",
        "127.0.0.1 ", " ::1",
        "[::1]",      "::1%lo",
        "1.2.3.4.",   "1.2.3",
        "1.2.3.256",  ":::",
        "1.2.3.4:80", "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc"};
    static const struct str with_nul = {"127.0.0.1\0.evil", 15};
    struct address address = {.bytes = {7}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (address_read(&address, str_from(bad[i]))) fail_msg("%s is read", bad[i]);
    assert_false(address_read(&address, with_nul));
    assert_false(address_read(&address, (struct str){NULL, 0}));
    assert_int_equal(address.bytes[0], 7);
    assert_true(read_good("1.2.3.4").is_v4);
    assert_false(read_good("::ffff:1.2.3.4").is_v4);
    assert_false(read_good("1111:2222:3333:4444:5555:6666:255.255.255.255").is_v4);
}

static void a_host_has_brackets_exactly_around_ipv6(void **state) {
    (void)state;
    static const char *const bad[] = {"::1", "[127.0.0.1]", "[]", "[::1", "::1]", "[", "]", ""};
    struct address address = {.bytes = {7}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (address_read_host(&address, str_from(bad[i]))) fail_msg("%s is read", bad[i]);
    assert_int_equal(address.bytes[0], 7);
    assert_true(address_read_host(&address, STR("[::1]")));
    assert_true(address_is_loopback(&address));
    assert_true(address_read_host(&address, STR("10.0.0.1")) && address.is_v4);
}

static void ipv4_is_the_same_inside_ipv6(void **state) {
    (void)state;
    struct address v4 = read_good("192.168.1.5"), inside = read_good("::ffff:192.168.1.5");
    struct address other = read_good("192.168.1.6"), compatible = read_good("::192.168.1.5");
    assert_true(address_equals(&v4, &inside));
    assert_false(address_equals(&v4, &other));
    assert_false(address_equals(&v4, &compatible));
}

static void loopback_and_any_are_known_in_each_spelling(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool is_loopback, is_any;
    } cases[] = {
        {"127.0.0.1", true, false},
        {"127.255.255.255", true, false},
        {"::1", true, false},
        {"0:0:0:0:0:0:0:1", true, false},
        {"::ffff:127.0.0.1", true, false},
        {"0.0.0.0", false, true},
        {"::", false, true},
        {"::ffff:0.0.0.0", false, true},
        {"126.255.255.255", false, false},
        {"128.0.0.1", false, false},
        {"0.0.0.1", false, false},
        {"1.0.0.0", false, false},
        {"::2", false, false},
        {"::127.0.0.1", false, false},
        {"7f00::1", false, false},
        {"fe80::1", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct address address = read_good(cases[i].text);
        if (address_is_loopback(&address) != cases[i].is_loopback ||
            address_is_any(&address) != cases[i].is_any)
            fail_msg("%s", cases[i].text);
    }
}

static void an_address_goes_through_a_socket_unchanged(void **state) {
    (void)state;
    static const char *const texts[] = {"10.1.2.3", "2001:db8::7", "::ffff:10.1.2.3"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct address before = read_good(texts[i]), after;
        struct sockaddr_storage place;
        socklen_t bytes = address_to_socket(&before, 8080, &place);
        assert_int_equal(place.ss_family, before.is_v4 ? AF_INET : AF_INET6);
        assert_int_equal(address_port(&place), 8080);
        assert_true(address_from_socket(&after, (const struct sockaddr *)&place, bytes));
        assert_true(address_equals(&before, &after) && before.is_v4 == after.is_v4);
        assert_false(address_from_socket(&after, (const struct sockaddr *)&place, bytes - 1));
    }
}

static void other_families_have_no_address(void **state) {
    (void)state;
    struct sockaddr_storage place = {0};
    struct sockaddr_un local = {.sun_family = AF_UNIX, .sun_path = "/run/x"};
    struct address address;
    memcpy(&place, &local, sizeof local);
    assert_false(address_from_socket(&address, (const struct sockaddr *)&place, sizeof place));
    assert_int_equal(address_port(&place), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_numeric_address_is_read_whole_or_not_at_all),
        cmocka_unit_test(a_host_has_brackets_exactly_around_ipv6),
        cmocka_unit_test(ipv4_is_the_same_inside_ipv6),
        cmocka_unit_test(loopback_and_any_are_known_in_each_spelling),
        cmocka_unit_test(an_address_goes_through_a_socket_unchanged),
        cmocka_unit_test(other_families_have_no_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
