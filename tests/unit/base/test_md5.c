/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/md5.h"

#include <string.h>

static void check(const char *text, size_t step, const char *wanted) {
    struct md5 md5;
    char hex[MD5_HEX_BYTES];
    size_t bytes = strlen(text);
    md5_init(&md5);
    for (size_t at = 0; at < bytes; at += step)
        md5_add(&md5, text + at, bytes - at < step ? bytes - at : step);
    md5_end_hex(&md5, hex);
    assert_string_equal(hex, wanted);
}

/* RFC 1321 §A.5. */
static void the_test_suite_of_the_rfc_holds_in_pieces_of_any_size(void **state) {
    static const char *const cases[][2] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"a", "0cc175b9c0f1b6a831c399e269772661"},
        {"abc", "900150983cd24fb0d6963f7d28e17f72"},
        {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {"abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
         "d174ab98d277d9f5a5611c2c9f419d9f"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "57edf4a22be3c955ac49da2e2107b67a"},
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
        {55, "ef1772b6dff9a122358552954ad0df65"}, {56, "3b0c8ac703f828b04c6c197006d17218"},
        {57, "652b906d60af96844ebd21b674f35e93"}, {63, "b06521f39153d618550606be297466d5"},
        {64, "014842d480b571495a4a0363793f7367"}, {65, "c743a45e0d2e6a95cb859adae0248435"},
    };
    char text[66];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(text, 'a', cases[i].bytes);
        text[cases[i].bytes] = '\0';
        check(text, 7, cases[i].wanted);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_test_suite_of_the_rfc_holds_in_pieces_of_any_size),
        cmocka_unit_test(lengths_around_a_block_are_padded_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
