/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/origin.h"

static const char *const hosts[] = {"quern.example", "gpu-box"};
static const char *const origins[] = {"https://app.example", "http://localhost:3000"};

static struct origin_rules rules_on(const char *host) {
    return (struct origin_rules){.host = host,
                                 .allowed_hosts = hosts,
                                 .allowed_host_count = 2,
                                 .allowed_origins = origins,
                                 .allowed_origin_count = 2};
}

static void hosts_of_this_server_are_known(void **state) {
    (void)state;
    static const struct {
        const char *listens;
        const char *host;
        bool is_known;
    } cases[] = {
        {"127.0.0.1", "localhost", true},
        {"127.0.0.1", "LOCALHOST:8080", true},
        {"127.0.0.1", "localhost.:8080", true},
        {"127.0.0.1", "a.localhost", true},
        {"127.0.0.1", "127.0.0.1:8080", true},
        {"127.0.0.1", "127.9.9.9", true},
        {"127.0.0.1", "[::1]:8080", true},
        {"127.0.0.1", "[::ffff:127.0.0.1]", true},
        {"127.0.0.1", "", true},
        {"127.0.0.1", "quern.example:443", true},
        {"127.0.0.1", "GPU-box", true},
        {"127.0.0.1", "evil.example", false},
        {"127.0.0.1", "localhost.evil.example", false},
        {"127.0.0.1", "evil-localhost", false},
        {"127.0.0.1", "127.0.0.1.evil.example", false},
        {"127.0.0.1", "192.168.1.5", false},
        {"127.0.0.1", "[::2]", false},
        {"127.0.0.1", "[::1", false},
        {"127.0.0.1", "quern.example.evil.example", false},
        {"127.0.0.1", ":8080", false},
        {"192.168.1.5", "192.168.1.5:8080", true},
        {"192.168.1.5", "192.168.1.6", false},
        {"0.0.0.0", "192.168.1.6:8080", true},
        {"0.0.0.0", "evil.example", false},
        {"::", "192.168.1.6", true},
        {"::", "[2001:db8::1]:80", true},
        {"2001:db8::1", "[2001:db8::1]", true},
        {"2001:db8::1", "[2001:db8::2]", false},
        {"127.0.0.1",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct origin_rules rules = rules_on(cases[i].listens);
        if (origin_host_is_known(&rules, str_from(cases[i].host)) != cases[i].is_known)
            fail_msg("%s on %s", cases[i].host, cases[i].listens);
    }
}

static void pages_are_judged_by_their_origin(void **state) {
    (void)state;
    static const struct {
        const char *origin;
        const char *fetch_site;
        const char *host;
        enum origin_page page;
    } cases[] = {
        {"", "", "localhost:8080", ORIGIN_NO_PAGE},
        {"", "none", "localhost:8080", ORIGIN_NO_PAGE},
        {"", "same-origin", "localhost:8080", ORIGIN_OWN},
        {"", "same-site", "localhost:8080", ORIGIN_FOREIGN},
        {"", "cross-site", "localhost:8080", ORIGIN_FOREIGN},
        {"", "nonsense", "localhost:8080", ORIGIN_FOREIGN},
        {"http://localhost:8080", "", "localhost:8080", ORIGIN_OWN},
        {"https://Quern.example", "same-origin", "quern.example", ORIGIN_OWN},
        {"http://localhost:8081", "", "localhost:8080", ORIGIN_FOREIGN},
        {"http://localhost", "", "localhost:8080", ORIGIN_FOREIGN},
        {"http://evil.example", "same-origin", "localhost:8080", ORIGIN_FOREIGN},
        {"null", "", "localhost:8080", ORIGIN_FOREIGN},
        {"null", "", "null", ORIGIN_FOREIGN},
        {"://localhost:8080", "", "localhost:8080", ORIGIN_FOREIGN},
        {"http://", "", "", ORIGIN_FOREIGN},
        {"https://app.example", "cross-site", "localhost:8080", ORIGIN_ALLOWED},
        {"http://app.example", "cross-site", "localhost:8080", ORIGIN_FOREIGN},
        {"http://localhost:3000", "same-site", "localhost:8080", ORIGIN_ALLOWED},
    };
    struct origin_rules rules = rules_on("127.0.0.1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (origin_judge(&rules, str_from(cases[i].origin), str_from(cases[i].fetch_site),
                         str_from(cases[i].host)) != cases[i].page)
            fail_msg("%s, %s to %s", cases[i].origin, cases[i].fetch_site, cases[i].host);
    static const char *const all[] = {"*"};
    rules.allowed_origins = all;
    rules.allowed_origin_count = 1;
    assert_int_equal(origin_judge(&rules, STR("null"), STR(""), STR("x")), ORIGIN_ALLOWED);
    assert_int_equal(origin_judge(&rules, STR(""), STR("cross-site"), STR("x")), ORIGIN_FOREIGN);
}

static void an_allowed_origin_must_be_one(void **state) {
    (void)state;
    static const char *const bad[] = {"app.example", "https://app.example/", "https://", "null",
                                      ""};
    struct error error;
    struct origin_rules rules = rules_on("127.0.0.1");
    assert_int_equal(origin_rules_check(&rules, &error), OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rules.allowed_origins = &bad[i];
        rules.allowed_origin_count = 1;
        assert_int_equal(origin_rules_check(&rules, &error), ERR_INVALID);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_of_this_server_are_known),
        cmocka_unit_test(pages_are_judged_by_their_origin),
        cmocka_unit_test(an_allowed_origin_must_be_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
