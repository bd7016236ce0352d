/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc.h"
#include "base/hash.h"
#include "base/rng.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void crc32c_gives_the_check_value_of_its_standard(void **state) {
    (void)state;
    assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283u);
}

static void crc32c_continues_over_any_cut(void **state) {
    (void)state;
    unsigned char bytes[100];
    struct rng rng = {.state = 1};
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)rng_next(&rng);
    uint32_t whole = crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++)
        assert_int_equal(crc32c(crc32c(0, bytes, cut), bytes + cut, sizeof bytes - cut), whole);
}

static void sha256_gives_the_value_of_its_standard(void **state) {
    (void)state;
    struct sha256 hash;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    sha256_init(&hash);
    sha256_add(&hash, "a", 1);
    sha256_add(&hash, "bc", 2);
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_gives_the_check_value_of_its_standard),
        cmocka_unit_test(crc32c_continues_over_any_cut),
        cmocka_unit_test(sha256_gives_the_value_of_its_standard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
