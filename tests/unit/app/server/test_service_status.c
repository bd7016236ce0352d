/* SPDX-License-Identifier: Apache-2.0 */
#include "server/service_status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void says(const struct runner_status *status, uint64_t lines, int64_t elapsed_ns,
                 const char *sentence) {
    char text[256];
    service_status_write(text, sizeof text, status, lines, elapsed_ns);
    assert_string_equal(text, sentence);
}

static void a_status_is_one_sentence(void **state) {
    (void)state;
    says(&(struct runner_status){.ready = true}, 0, 0, "idle; 0 lines done");
    says(&(struct runner_status){.ready = true, .requests_in_flight = 1, .lines_done = 7}, 0, 0,
         "1 request; 7 lines done");
    says(&(struct runner_status){.ready = true,
                                 .batches_live = 1,
                                 .lines_in_flight = 4096,
                                 .lines_done = 812344,
                                 .recovered_lines = 800000,
                                 .taken_up_lines = 1000000},
         1060, 5000000000,
         "1 batch, 4096 lines in flight, 212 lines/s; 812344 lines done; recovered 800000 of "
         "1000000 lines");
    says(&(struct runner_status){.batches_live = 3,
                                 .batches_paused = 2,
                                 .requests_in_flight = 2,
                                 .text = "the disk is full"},
         0, 5000000000,
         "the disk is full; 3 batches, 0 lines in flight, 0 lines/s, 2 paused; 2 requests; 0 lines "
         "done");
}

static void a_short_text_is_cut(void **state) {
    char text[8];
    (void)state;
    service_status_write(text, sizeof text, &(struct runner_status){.text = "no worker"}, 0, 0);
    assert_string_equal(text, "no work");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_is_one_sentence),
        cmocka_unit_test(a_short_text_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
