/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/key.h"

#include <string.h>

static void digest_of(const char *key, unsigned char ret_digest[SHA256_BYTES]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, key, strlen(key));
    sha256_end(&hash, ret_digest);
}

static void without_keys_everybody_may(void **state) {
    (void)state;
    struct key_set keys = {0};
    assert_int_equal(key_check(&keys, STR("")), KEY_GOOD);
    assert_int_equal(key_check(&keys, STR("Bearer whatever")), KEY_GOOD);
}

static void each_configured_key_opens_and_no_other_does(void **state) {
    (void)state;
    unsigned char digests[2][SHA256_BYTES];
    digest_of("first", digests[0]);
    digest_of("second", digests[1]);
    struct key_set keys = {(const unsigned char(*)[SHA256_BYTES])digests, 2};
    assert_int_equal(key_check(&keys, STR("Bearer first")), KEY_GOOD);
    assert_int_equal(key_check(&keys, STR("bearer second")), KEY_GOOD);
    assert_int_equal(key_check(&keys, STR("  Bearer   second  ")), KEY_GOOD);
    static const char *const wrong[] = {
        "Bearer", "Bearer ",     "Bearer firs",  "Bearer first2",
        "first",  "Basic first", "Bearer FIRST", "Bearer first second",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(key_check(&keys, str_from(wrong[i])), KEY_WRONG);
    assert_int_equal(key_check(&keys, STR("")), KEY_MISSING);
    assert_int_equal(key_check(&keys, STR("  ")), KEY_MISSING);
}

static void the_empty_key_opens_nothing(void **state) {
    (void)state;
    unsigned char digests[1][SHA256_BYTES];
    digest_of("", digests[0]);
    struct key_set keys = {(const unsigned char(*)[SHA256_BYTES])digests, 1};
    assert_int_equal(key_check(&keys, STR("Bearer  ")), KEY_WRONG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_keys_everybody_may),
        cmocka_unit_test(each_configured_key_opens_and_no_other_does),
        cmocka_unit_test(the_empty_key_opens_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
