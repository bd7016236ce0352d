/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void only_the_arrows_of_the_diagram_are_legal(void **state) {
    (void)state;
    /* Rows: from; a bit for each state that may follow. */
    const unsigned legal[BATCH_STATUS_COUNT] = {
        [BATCH_VALIDATING] = 1u << BATCH_IN_PROGRESS | 1u << BATCH_FAILED | 1u << BATCH_CANCELLING,
        [BATCH_IN_PROGRESS] = 1u << BATCH_FINALIZING | 1u << BATCH_CANCELLING,
        [BATCH_FINALIZING] = 1u << BATCH_COMPLETED | 1u << BATCH_EXPIRED | 1u << BATCH_FAILED |
                             1u << BATCH_CANCELLING,
        [BATCH_CANCELLING] = 1u << BATCH_CANCELLED,
    };
    for (int from = 0; from < BATCH_STATUS_COUNT; from++)
        for (int to = 0; to < BATCH_STATUS_COUNT; to++)
            assert_int_equal(batch_move_is_legal((enum batch_status)from, (enum batch_status)to),
                             legal[from] >> to & 1);
}

static void a_terminal_state_is_final(void **state) {
    (void)state;
    for (int from = 0; from < BATCH_STATUS_COUNT; from++) {
        bool leaves = false;
        for (int to = 0; to < BATCH_STATUS_COUNT; to++)
            leaves |= batch_move_is_legal((enum batch_status)from, (enum batch_status)to);
        assert_int_equal(leaves, !batch_status_is_terminal((enum batch_status)from));
    }
}

static void each_state_is_stamped_once_when_it_is_entered(void **state) {
    (void)state;
    struct store_batch batch = {.status = BATCH_VALIDATING, .created_unix_s = 1};
    batch_move(&batch, BATCH_IN_PROGRESS, 2);
    batch_move(&batch, BATCH_FINALIZING, 3);
    batch_move(&batch, BATCH_CANCELLING, 4);
    batch_move(&batch, BATCH_CANCELLED, 5);
    assert_int_equal(batch.in_progress_unix_s, 2);
    assert_int_equal(batch.finalizing_unix_s, 3);
    assert_int_equal(batch.cancelling_unix_s, 4);
    assert_int_equal(batch.cancelled_unix_s, 5);
    assert_int_equal(batch.completed_unix_s, 0);
}

static void times_do_not_go_back_with_the_clock(void **state) {
    (void)state;
    struct store_batch batch = {.status = BATCH_VALIDATING, .created_unix_s = 100};
    batch_move(&batch, BATCH_IN_PROGRESS, 200);
    batch_move(&batch, BATCH_FINALIZING, 50);
    assert_int_equal(batch.finalizing_unix_s, 200);
    batch_move(&batch, BATCH_COMPLETED, 1);
    assert_int_equal(batch.completed_unix_s, 200);
}

static void cancel_is_idempotent_and_refused_once_ended(void **state) {
    (void)state;
    const enum batch_cancel expected[BATCH_STATUS_COUNT] = {
        [BATCH_VALIDATING] = BATCH_CANCEL_NOW,    [BATCH_IN_PROGRESS] = BATCH_CANCEL_NOW,
        [BATCH_FINALIZING] = BATCH_CANCEL_NOW,    [BATCH_CANCELLING] = BATCH_CANCEL_ALREADY,
        [BATCH_CANCELLED] = BATCH_CANCEL_ALREADY, [BATCH_COMPLETED] = BATCH_CANCEL_REFUSED,
        [BATCH_FAILED] = BATCH_CANCEL_REFUSED,    [BATCH_EXPIRED] = BATCH_CANCEL_REFUSED};
    for (int i = 0; i < BATCH_STATUS_COUNT; i++)
        assert_int_equal(batch_cancel_in((enum batch_status)i), expected[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_arrows_of_the_diagram_are_legal),
        cmocka_unit_test(a_terminal_state_is_final),
        cmocka_unit_test(each_state_is_stamped_once_when_it_is_entered),
        cmocka_unit_test(times_do_not_go_back_with_the_clock),
        cmocka_unit_test(cancel_is_idempotent_and_refused_once_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
