/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/sample.h"
#include "tune/tune.h"

#include "base/os.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/quern-tune-test-XXXXXX";
static char input[64], output[64];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(input, sizeof input, "%s/in", folder);
    snprintf(output, sizeof output, "%s/out", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    (void)unlink(input);
    (void)unlink(output);
    return rmdir(folder);
}

static void put(const char *text) {
    FILE *file = fopen(input, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    (void)unlink(output);
}

static void a_sample_is_the_first_requests_made_greedy(void **state) {
    (void)state;
    uint32_t lines;
    struct error error;
    char *text;
    size_t bytes;
    put("{\"custom_id\":\"a\",\"url\":\"/v1/chat/completions\",\"body\":{\"temperature\":0.7}}\n\n"
        "{\"custom_id\":\"b\",\"url\":\"/v1/embeddings\",\"body\":{\"input\":\"x\"}}\n"
        "no JSON\n"
        "{\"custom_id\":\"d\"}\n");
    assert_int_equal(sample_write(input, 3, output, &lines, &error), OK);
    assert_int_equal(lines, 3);
    assert_int_equal(os_read_file(output, 10000, &text, &bytes, &error), OK);
    assert_string_equal(
        text,
        "{\"custom_id\":\"a\",\"url\":\"/v1/chat/completions\",\"body\":{\"temperature\":0}}\n"
        "{\"custom_id\":\"b\",\"url\":\"/v1/embeddings\",\"body\":{\"input\":\"x\"}}\n"
        "no JSON\n");
    free(text);
}

static void a_file_without_requests_is_refused(void **state) {
    (void)state;
    uint32_t lines;
    struct error error;
    put("\n\n");
    assert_int_equal(sample_write(input, 3, output, &lines, &error), ERR_INVALID);
    assert_int_equal(sample_write("/nowhere/in", 3, output, &lines, &error), ERR_NOT_FOUND);
}

static void answers_are_equal_by_their_share(void **state) {
    (void)state;
    uint64_t first[] = {1, 2, 3, 0}, second[] = {1, 5, 3, 0}, none[] = {0, 0};
    const struct trial a = {.answers = first, .answer_count = 4};
    const struct trial b = {.answers = second, .answer_count = 4};
    const struct trial c = {.answers = none, .answer_count = 2};
    assert_true(fabs(trial_equal_share(&a, &b) - 2.0 / 3) < 1e-12);
    assert_true(trial_equal_share(&a, &a) == 1);
    assert_true(isnan(trial_equal_share(&c, &c)));
}

static void a_ratio_has_its_spread(void **state) {
    (void)state;
    const struct tune_setting setting = {.ratios = {2, 0.5, 1}, .rounds = 3};
    double low, mean, high;
    tune_ratio(&setting, &low, &mean, &high);
    assert_true(low == 0.5 && high == 2 && fabs(mean - 1) < 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_is_the_first_requests_made_greedy),
        cmocka_unit_test(a_file_without_requests_is_refused),
        cmocka_unit_test(answers_are_equal_by_their_share),
        cmocka_unit_test(a_ratio_has_its_spread),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
