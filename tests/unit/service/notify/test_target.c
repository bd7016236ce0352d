/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "notify/target.h"

#include <string.h>

static enum err read_url(const char *url, bool allow_private) {
    struct error error;
    return target_read(NULL, str_from(url), allow_private, &error);
}

static void urls_of_the_open_internet_pass(void **state) {
    (void)state;
    static const char *const good[] = {"https://example.com",
                                       "https://example.com/hook?a=b&c=d#e",
                                       "https://EXAMPLE.com:8443/",
                                       "https://8.8.8.8/",
                                       "https://[2606:4700::1111]/x",
                                       "https://[2606:4700::1111]:8443/x",
                                       "https://localhost.example.com",
                                       "https://notlocalhost/",
                                       "https://example.com./hook",
                                       "https://10.example.com/",
                                       "https://xn--bcher-kva.example/",
                                       "https://134744072/"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (read_url(good[i], false) != OK) fail_msg("%s is refused", good[i]);
}

static void urls_of_this_side_are_refused_however_they_are_spelled(void **state) {
    (void)state;
    static const char *const bad[] = {
        /* spellings of loopback */
        "https://127.0.0.1/", "https://127.1/", "https://127.0.1/", "https://127.1.2.3:8443/",
        "https://2130706433/", "https://0x7f000001/", "https://0x7F.1/",
        "https://0x7f.0x0.0x0.0x1/", "https://0177.0.0.1/", "https://017700000001/",
        "https://0177.1/", "https://127.0.0.01/", "https://0x7f.0.1/", "https://127.0x0.0.1/",
        "https://127.0.0.1./", "https://127.1./", "https://0x7f.1./", "https://a.256/",
        "https://1.2.3.4.5/", "https://0/", "https://0.0.0.0/", "https://00000/", "https://0x0/",
        "https://0x000000007f000001/", "https://localhost/", "https://LOCALHOST/",
        "https://localhost./", "https://a.localhost/", "https://A.LocalHost.:9/",
        /* inside IPv6 */
        "https://[::]/", "https://[::1]/", "https://[0:0:0:0:0:0:0:1]/", "https://[::127.0.0.1]/",
        "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[::ffff:8.8.8.8]/",
        "https://[64:ff9b::127.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/",
        "https://[2001:0:7f00:1::]/", "https://[fe80::1]/", "https://[fe80::1%25eth0]/",
        "https://[2606:4700::1%25eth0]/", "https://[fec0::1]/", "https://[fd00:ec2::254]/",
        "https://[fc00::1]/", "https://[ff02::1]/", "https://[100::1]/", "https://[2001:db8::1]/",
        /* private, shared, metadata, multicast */
        "https://10.0.0.1/", "https://10.1/", "https://167772161/", "https://012.0.0.1/",
        "https://172.16.0.1/", "https://172.31.255.255/", "https://192.168.1.1/",
        "https://0xc0a80101/", "https://3232235777/", "https://192.168.257/",
        "https://169.254.169.254/latest/meta-data/", "https://0xa9fea9fe/", "https://2852039166/",
        "https://0251.0376.0251.0376/", "https://169.254.43518/", "https://100.64.0.1/",
        "https://100.100.100.200/", "https://168.63.129.16/", "https://192.0.0.192/",
        "https://198.18.0.1/", "https://224.0.0.1/", "https://255.255.255.255/", "https://240.1/",
        /* other hosts than a reader may think */
        "https://user@example.com/", "https://user:pw@example.com/",
        "https://example.com@127.0.0.1/", "https://127.0.0.1:80@example.com/",
        "https://:@example.com/", "https://@example.com/", "https://example.com\\@127.0.0.1/",
        "https://127.0.0.1\\.example.com/", "https://example.com#@127.0.0.1\\/", "https://a b/",
        "https://exa\tmple.com/", "https://example.com/\r\nX: y", "https://ex\xC3\xA4mple.com/",
        "https://\xE2\x91\xA0\xE2\x91\xA1\xE2\x91\xA6.0.0.1/", "https://%31%32%37.0.0.1/",
        "https://127.0.0.1%2f@example.com/", "https://127%2e0%2e0%2e1/",
        /* no https, no host */
        "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/",
        "dict://example.com/", "javascript:alert(1)", "//example.com/", "example.com", "https://",
        "https:///", "https://:443/", "https://?a", "", " https://example.com", "https://[::1",
        "https://[]/", "https://example.com:99999/", "https://example.com:-1/",
        "https://exa<mple.com/", "unix:///run/x", "https+unix://x/", "data:,x"};
    assert_true(sizeof bad / sizeof *bad >= 80);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (read_url(bad[i], false) == OK) fail_msg("'%s' passes", bad[i]);
}

static void what_the_operator_allows_is_private_addresses_and_plain_http_only(void **state) {
    (void)state;
    assert_int_equal(read_url("http://127.0.0.1:8080/x", true), OK);
    assert_int_equal(read_url("https://localhost/", true), OK);
    assert_int_equal(read_url("http://[::1]/", true), OK);
    assert_int_not_equal(read_url("ftp://127.0.0.1/", true), OK);
    assert_int_not_equal(read_url("file:///etc/passwd", true), OK);
    assert_int_not_equal(read_url("http://user@127.0.0.1/", true), OK);
    assert_int_not_equal(read_url("http://[fe80::1%25lo]/", true), OK);
}

static void a_url_longer_than_the_limit_is_refused(void **state) {
    (void)state;
    char url[TARGET_URL_BYTES_MAX + 2];
    memset(url, 'a', sizeof url);
    memcpy(url, "https://example.com/", strlen("https://example.com/"));
    url[TARGET_URL_BYTES_MAX] = '\0';
    assert_int_equal(read_url(url, false), OK);
    url[TARGET_URL_BYTES_MAX] = 'a';
    url[TARGET_URL_BYTES_MAX + 1] = '\0';
    assert_int_not_equal(read_url(url, false), OK);
}

static void the_sentence_never_repeats_the_url(void **state) {
    (void)state;
    struct error error;
    assert_int_not_equal(target_read(NULL, STR("http://canary/"), false, &error), OK);
    assert_null(strstr(error.text, "canary"));
    assert_int_not_equal(target_read(NULL, STR("https://a:canary@b/"), false, &error), OK);
    assert_null(strstr(error.text, "canary"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_of_the_open_internet_pass),
        cmocka_unit_test(urls_of_this_side_are_refused_however_they_are_spelled),
        cmocka_unit_test(what_the_operator_allows_is_private_addresses_and_plain_http_only),
        cmocka_unit_test(a_url_longer_than_the_limit_is_refused),
        cmocka_unit_test(the_sentence_never_repeats_the_url),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
