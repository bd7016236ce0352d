/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sha1.h"

#include <string.h>

static void check(const char *text, size_t step, const char *wanted) {
    struct sha1 sha1;
    char hex[SHA1_HEX_BYTES];
    size_t bytes = strlen(text);
    sha1_init(&sha1);
    for (size_t at = 0; at < bytes; at += step)
        sha1_add(&sha1, text + at, bytes - at < step ? bytes - at : step);
    sha1_end_hex(&sha1, hex);
    assert_string_equal(hex, wanted);
}

/* The examples of FIPS 180-4, and the shortest texts. */
static void the_examples_of_the_standard_hold_in_pieces_of_any_size(void **state) {
    static const char *const cases[][2] = {
        {"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {"a", "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= 81; step++) check(cases[i][0], step, cases[i][1]);
}

/* Sums from another implementation, around the edges of the padding. */
static void lengths_around_a_block_are_padded_right(void **state) {
    static const struct {
        size_t bytes;
        const char *wanted;
    } cases[] = {
        {55, "c1c8bbdc22796e28c0e15163d20899b65621d65a"},
        {56, "c2db330f6083854c99d4b5bfb6e8f29f201be699"},
        {57, "f08f24908d682555111be7ff6f004e78283d989a"},
        {63, "03f09f5b158a7a8cdad920bddc29b81c18a551f5"},
        {64, "0098ba824b5c16427bd7a1122a5a442a25ec644d"},
        {65, "11655326c708d70319be2610e8a57d9a5b959d3b"},
        {119, "ee971065aaa017e0632a8ca6c77bb3bf8b1dfc56"},
        {120, "f34c1488385346a55709ba056ddd08280dd4c6d6"},
    };
    char text[121];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(text, 'a', cases[i].bytes);
        text[cases[i].bytes] = '\0';
        check(text, 7, cases[i].wanted);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_standard_hold_in_pieces_of_any_size),
        cmocka_unit_test(lengths_around_a_block_are_padded_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
