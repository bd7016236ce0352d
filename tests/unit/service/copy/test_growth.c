/* SPDX-License-Identifier: Apache-2.0 */

/* When the log behind a base has grown enough for the next one. */

#include "copy/copy_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define MS INT64_C(1000000)

static void a_base_is_due_by_bytes_by_entries_and_by_the_time_that_they_take(void **state) {
    static const struct {
        uint64_t base_bytes;
        struct log_growth log;
        bool is_due;
    } rows[] = {
        {0, {64 * MIB - 1, 1023, 30 * MS}, false},
        {0, {64 * MIB, 10, 30 * MS}, true},
        {1024 * MIB, {1023 * MIB, 1023, 30 * MS}, false},
        {1024 * MIB, {1024 * MIB, 1024, 30 * MS}, true},
        /* whatever the base's size, not more entries than these */
        {1024 * MIB, {300 * MIB, 4095, 30 * MS}, false},
        {1024 * MIB, {300 * MIB, 4096, 30 * MS}, true},
        {1024 * MIB, {300 * MIB, 4096, 0}, true},
        /* a slow storage: 8 of 200 ms at a time are 20 s after 800, but 1,024 may be there */
        {1024 * MIB, {100 * MIB, 1023, 200 * MS}, false},
        {1024 * MIB, {100 * MIB, 1024, 200 * MS}, true},
        {1024 * MIB, {100 * MIB, 1599, 100 * MS}, false},
        {1024 * MIB, {100 * MIB, 1600, 100 * MS}, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (copy_base_is_due(rows[i].base_bytes, &rows[i].log) != rows[i].is_due)
            fail_msg("row %zu", i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_base_is_due_by_bytes_by_entries_and_by_the_time_that_they_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
