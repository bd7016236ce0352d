/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "json/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct buf text;

static const char *written(float value) {
    buf_clear(&text);
    json_write_float(&text, value);
    return text.at;
}

static void check(float value, const char *expected) {
    assert_string_equal(written(value), expected);
}

static void floats_have_a_point_or_an_exponent(void **state) {
    (void)state;
    check(0, "0.0");
    check(-0.0F, "-0.0");
    check(1, "1.0");
    check(-1, "-1.0");
    check(0.1F, "0.1");
    check(0.5F, "0.5");
    check(-0.1341771F, "-0.1341771");
    check(0.00001F, "0.00001");
    check(0.000012345F, "0.000012345");
    check(123.456F, "123.456");
    check(999999.9F, "999999.9");
    check(16777216, "1.6777216e+07");
    check(1e-6F, "1e-06");
    check(3.4028235e38F, "3.4028235e+38");
    check(1.4e-45F, "1e-45");
}

static size_t digits_of(const char *number) {
    size_t count = 0;
    const char *at = number + (*number == '-');
    while (*at == '0' || *at == '.') at++;
    for (; *at && *at != 'e'; at++) count += *at >= '0' && *at <= '9';
    return count;
}

/* The fewest digits after which the nearest decimal reads back. */
static size_t fewest_digits(float value) {
    char other[32];
    for (int digits = 1; digits < 9; digits++) {
        snprintf(other, sizeof other, "%.*e", digits - 1, (double)value);
        if (strtof(other, NULL) == value) return (size_t)digits;
    }
    return 9;
}

static void check_exact(float value) {
    const char *number = written(value);
    if (strtof(number, NULL) != value) fail_msg("%a is written as %s", (double)value, number);
    size_t digits = digits_of(number);
    /* Before a point all digits are written: 150.0 has three, though 1.5e2 needs two. */
    if (fabsf(value) < 1 && digits > fewest_digits(value))
        fail_msg("%a is written as %s, %zu digits would do", (double)value, number,
                 fewest_digits(value));
}

static void what_is_written_reads_back_and_is_short(void **state) {
    (void)state;
    struct rng rng = {.state = 20261121};
    for (int i = 0; i < 200000; i++) {
        check_exact((float)(rng_unit(&rng) * 2 - 1)); /* as a vector has them */
        check_exact((float)((rng_unit(&rng) - 0.5) * pow(10, rng_unit(&rng) * 12 - 6)));
    }
    for (int i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)rng_next(&rng);
        float value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) check_exact(value);
    }
}

static void powers_and_their_neighbours_read_back(void **state) {
    (void)state;
    for (int exponent = -45; exponent <= 38; exponent++) {
        float power = (float)pow(10, exponent);
        check_exact(power);
        check_exact(nextafterf(power, 0));
        if (isfinite(nextafterf(power, INFINITY))) check_exact(nextafterf(power, INFINITY));
    }
    for (int exponent = -149; exponent <= 127; exponent++) {
        float power = ldexpf(1, exponent);
        check_exact(power);
        check_exact(nextafterf(power, 0));
        check_exact(nextafterf(power, INFINITY));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_have_a_point_or_an_exponent),
        cmocka_unit_test(what_is_written_reads_back_and_is_short),
        cmocka_unit_test(powers_and_their_neighbours_read_back),
    };
    buf_init(&text, 64);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    buf_release(&text);
    return failed;
}
