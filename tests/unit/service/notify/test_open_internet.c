/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "notify/open_internet.h"

static bool is_public(const char *text) {
    struct address address;
    assert_true(address_read(&address, str_from(text)));
    return open_internet_has(&address);
}

static void addresses_of_the_open_internet_pass(void **state) {
    (void)state;
    static const char *const good[] = {"1.1.1.1",         "8.8.8.8",         "9.255.255.255",
                                       "11.0.0.0",        "100.63.255.255",  "100.128.0.0",
                                       "126.255.255.255", "128.0.0.1",       "169.253.255.255",
                                       "169.255.0.0",     "172.15.255.255",  "172.32.0.0",
                                       "192.0.1.0",       "192.167.255.255", "192.169.0.0",
                                       "198.17.255.255",  "198.20.0.0",      "223.255.255.255",
                                       "168.63.129.15",   "2606:4700::1",    "2001:4860:4860::8888",
                                       "2001:200::1",     "2a00:1450::1",    "3ffe::1",
                                       "2003::1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!is_public(good[i])) fail_msg("%s is refused", good[i]);
}

static void everything_only_this_side_can_reach_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"0.0.0.0",
                                      "0.1.2.3",
                                      "10.0.0.0",
                                      "10.255.255.255",
                                      "100.64.0.0",
                                      "100.100.100.200",
                                      "100.127.255.255",
                                      "127.0.0.1",
                                      "127.255.255.255",
                                      "169.254.0.0",
                                      "169.254.169.254",
                                      "169.254.170.2",
                                      "172.16.0.0",
                                      "172.31.255.255",
                                      "192.0.0.1",
                                      "192.0.0.192",
                                      "192.0.2.1",
                                      "192.88.99.1",
                                      "192.168.0.0",
                                      "192.168.255.255",
                                      "198.18.0.0",
                                      "198.19.255.255",
                                      "198.51.100.1",
                                      "203.0.113.1",
                                      "224.0.0.1",
                                      "239.255.255.255",
                                      "240.0.0.1",
                                      "255.255.255.255",
                                      "168.63.129.16",
                                      "::",
                                      "::1",
                                      "::127.0.0.1",
                                      "::ffff:127.0.0.1",
                                      "::ffff:8.8.8.8",
                                      "64:ff9b::7f00:1",
                                      "64:ff9b::808:808",
                                      "64:ff9b:1::1",
                                      "100::1",
                                      "2001::1",
                                      "2001:0:7f00:1::",
                                      "2001:1ff:ffff::1",
                                      "2001:db8::1",
                                      "2002:7f00:1::1",
                                      "2002:a9fe:a9fe::1",
                                      "3fff::1",
                                      "3fff:fff::1",
                                      "4000::1",
                                      "5f00::1",
                                      "fc00::1",
                                      "fd00:ec2::254",
                                      "fdff::1",
                                      "fe80::1",
                                      "fe80::a9fe:a9fe",
                                      "fec0::1",
                                      "ff02::1",
                                      "ff0e::1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (is_public(bad[i])) fail_msg("%s passes", bad[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_of_the_open_internet_pass),
        cmocka_unit_test(everything_only_this_side_can_reach_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
