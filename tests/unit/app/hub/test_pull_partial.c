/* SPDX-License-Identifier: Apache-2.0 */

/* A file in parts: what its journals say after a crash, and what a damaged journal does. */

#include "base/clock.h"
#include "base/os.h"
#include "hub/pull_partial.h"
#include "hub/pull_sum.h"

#include "../../tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PART ((uint64_t)8 << 20)
#define BYTES (3 * PART + 1000)
#define PIECE ((uint64_t)1 << 20)

static char root[] = "/tmp/quern-test-partial-XXXXXX";
static char blob[128], rest[160];
static char *content;
static struct pull_partial partial;
static struct error error;

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(root)) return -1;
    snprintf(blob, sizeof blob, "%s/blob", root);
    snprintf(rest, sizeof rest, "%s.quern.incomplete", blob);
    content = malloc(BYTES);
    if (!content) return -1;
    for (uint64_t i = 0; i < BYTES; i++) content[i] = (char)(i * 2654435761u >> 13);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    free(content);
    tree_remove(root);
    return 0;
}

static int begin(void **state) {
    (void)state;
    unlink(blob);
    unlink(rest);
    return pull_partial_open(&partial, blob, BYTES, &error) == OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    pull_partial_close(&partial);
    return 0;
}

static void put(uint64_t from, uint64_t to) {
    for (uint64_t at = from; at < to; at += PIECE)
        assert_int_equal(
            pull_partial_put(&partial, at, content + at, to - at < PIECE ? to - at : PIECE, &error),
            OK);
}

/* Closes as a death of the process does: nothing is saved. */
static void open_again(void) {
    pull_partial_close(&partial);
    assert_int_equal(pull_partial_open(&partial, blob, BYTES, &error), OK);
}

static void parts_may_come_in_any_order(void **state) {
    char sum[PULL_SUM_BYTES], wanted[PULL_SUM_BYTES], other[160];
    (void)state;
    put(2 * PART, 3 * PART);
    assert_int_equal(pull_partial_ready(&partial), 0);
    put(0, PART / 2);
    assert_int_equal(pull_partial_ready(&partial), PART / 2);
    put(3 * PART, BYTES);
    put(PART, 2 * PART);
    put(PART / 2, PART);
    assert_int_equal(pull_partial_ready(&partial), BYTES);
    assert_true(pull_partial_is_whole(&partial));
    assert_int_equal(pull_partial_finish(&partial, blob, &error), OK);
    assert_int_not_equal(access(rest, F_OK), 0);
    snprintf(other, sizeof other, "%s/other", root);
    FILE *file = fopen(other, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, BYTES, file), BYTES);
    fclose(file);
    assert_int_equal(pull_sum_file(blob, false, sum, NULL, NULL, &error), OK);
    assert_int_equal(pull_sum_file(other, false, wanted, NULL, NULL, &error), OK);
    assert_string_equal(sum, wanted);
}

static void what_was_saved_is_there_again(void **state) {
    (void)state;
    put(0, PART + 5);
    assert_int_equal(pull_partial_save(&partial, &error), OK);
    put(2 * PART, 2 * PART + 100);
    open_again();
    assert_int_equal(partial.done_bytes, PART + 5);
    assert_int_equal(pull_partial_left(blob, BYTES), PART + 5);
    assert_int_equal(pull_partial_ready(&partial), PART + 5);
    put(PART + 5, 2 * PART);
    assert_int_equal(pull_partial_save(&partial, &error), OK);
    open_again();
    assert_int_equal(partial.done_bytes, 2 * PART);
}

static void it_saves_itself_now_and_then(void **state) {
    (void)state;
    put(0, PULL_UNSAVED_BYTES + PIECE);
    open_again();
    assert_int_equal(partial.done_bytes, PULL_UNSAVED_BYTES);
}

static void a_torn_journal_leaves_the_one_before(void **state) {
    (void)state;
    put(0, 100);
    assert_int_equal(pull_partial_save(&partial, &error), OK);
    put(100, 200);
    assert_int_equal(pull_partial_save(&partial, &error), OK);
    /* Two journals of 32 bytes and 5 numbers each; the last one went to the first place. */
    assert_int_equal(pwrite(partial.fd, "torn", 4, (off_t)BYTES + 40), 4);
    open_again();
    assert_int_equal(partial.done_bytes, 100);
    assert_int_equal(pwrite(partial.fd, "torn", 4, (off_t)BYTES + 40), 4);
    assert_int_equal(pwrite(partial.fd, "torn", 4, (off_t)BYTES + 52 + 40), 4);
    open_again();
    assert_int_equal(partial.done_bytes, 0);
}

static void a_file_is_summed_while_it_comes(void **state) {
    struct pull_summer *summer;
    char wanted[PULL_SUM_BYTES];
    (void)state;
    struct pull_sum_job job = {.fd = partial.fd, .bytes = BYTES};
    struct pull_sum_job empty = {.fd = partial.fd, .bytes = 0, .is_git = true};
    assert_int_equal(pull_summer_open(&summer, &error), OK);
    pull_summer_add(summer, &job);
    pull_summer_add(summer, &empty);
    for (uint64_t at = 0; at < BYTES; at += PIECE) {
        assert_false(pull_summer_is_done(summer, &job));
        put(at, at + PIECE < BYTES ? at + PIECE : BYTES);
        pull_summer_tell(summer, &job, pull_partial_ready(&partial));
    }
    while (!pull_summer_is_done(summer, &empty)) clock_sleep_ms(1);
    assert_true(pull_summer_is_done(summer, &job));
    assert_string_equal(empty.sum, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    assert_int_equal(pull_partial_finish(&partial, blob, &error), OK);
    assert_int_equal(pull_sum_file(blob, false, wanted, NULL, NULL, &error), OK);
    assert_string_equal(job.sum, wanted);
    pull_summer_close(summer);
}

static void a_summer_may_be_closed_while_it_waits(void **state) {
    struct pull_summer *summer;
    (void)state;
    struct pull_sum_job job = {.fd = partial.fd, .bytes = BYTES};
    assert_int_equal(pull_summer_open(&summer, &error), OK);
    pull_summer_add(summer, &job);
    put(0, PIECE);
    pull_summer_tell(summer, &job, PIECE);
    pull_summer_close(summer);
}

static void a_rest_of_another_size_is_none(void **state) {
    (void)state;
    put(0, PART);
    assert_int_equal(pull_partial_save(&partial, &error), OK);
    pull_partial_close(&partial);
    assert_int_equal(pull_partial_left(blob, BYTES + 1), 0);
    assert_int_equal(pull_partial_open(&partial, blob, BYTES + 1, &error), OK);
    assert_int_equal(partial.done_bytes, 0);
}

static void an_empty_file_is_whole_at_once(void **state) {
    (void)state;
    pull_partial_close(&partial);
    assert_int_equal(pull_partial_open(&partial, blob, 0, &error), OK);
    assert_true(pull_partial_is_whole(&partial));
    assert_int_equal(pull_partial_ready(&partial), 0);
    assert_int_equal(pull_partial_finish(&partial, blob, &error), OK);
    char sum[PULL_SUM_BYTES];
    assert_int_equal(pull_sum_file(blob, true, sum, NULL, NULL, &error), OK);
    assert_string_equal(sum, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"); /* git's empty blob */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_may_come_in_any_order, begin, end),
        cmocka_unit_test_setup_teardown(what_was_saved_is_there_again, begin, end),
        cmocka_unit_test_setup_teardown(it_saves_itself_now_and_then, begin, end),
        cmocka_unit_test_setup_teardown(a_torn_journal_leaves_the_one_before, begin, end),
        cmocka_unit_test_setup_teardown(a_file_is_summed_while_it_comes, begin, end),
        cmocka_unit_test_setup_teardown(a_summer_may_be_closed_while_it_waits, begin, end),
        cmocka_unit_test_setup_teardown(a_rest_of_another_size_is_none, begin, end),
        cmocka_unit_test_setup_teardown(an_empty_file_is_whole_at_once, begin, end),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
