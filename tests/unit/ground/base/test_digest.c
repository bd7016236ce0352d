/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The examples of FIPS 180-4 and RFC 1321 §A.5. */
static void the_examples_of_the_standards_hold_in_pieces_of_any_size(void **state) {
    static const struct {
        enum digest_kind kind;
        const char *text, *wanted;
    } cases[] = {
        {DIGEST_SHA1, "", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {DIGEST_SHA1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {DIGEST_SHA1, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
        {DIGEST_SHA256, "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {DIGEST_SHA256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {DIGEST_MD5, "", "d41d8cd98f00b204e9800998ecf8427e"},
        {DIGEST_MD5, "message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {DIGEST_MD5, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
         "d174ab98d277d9f5a5611c2c9f419d9f"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= 65; step++) {
            struct digest digest;
            char hex[DIGEST_HEX_BYTES];
            size_t bytes = strlen(cases[i].text);
            digest_begin(&digest, cases[i].kind);
            for (size_t at = 0; at < bytes; at += step)
                digest_add(&digest, cases[i].text + at, bytes - at < step ? bytes - at : step);
            digest_end_hex(&digest, hex);
            assert_string_equal(hex, cases[i].wanted);
        }
}

static void a_digest_may_be_dropped_at_any_time(void **state) {
    (void)state;
    struct digest digest = {0};
    char hex[DIGEST_HEX_BYTES];
    digest_release(&digest);
    digest_begin(&digest, DIGEST_MD5);
    digest_add(&digest, "abc", 3);
    digest_release(&digest);
    digest_begin(&digest, DIGEST_MD5);
    digest_end_hex(&digest, hex);
    digest_release(&digest);
    assert_string_equal(hex, "d41d8cd98f00b204e9800998ecf8427e");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_standards_hold_in_pieces_of_any_size),
        cmocka_unit_test(a_digest_may_be_dropped_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
