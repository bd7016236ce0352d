/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/judged.h"

#include "base/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMBERS 2000 /* in one answer */
#define CURATORS 500 /* who each correct it */

static char folder[] = "/tmp/quern-judged-test-XXXXXX";
static char judgements[64], answers[64], made[64];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(judgements, sizeof judgements, "%s/judgements", folder);
    snprintf(answers, sizeof answers, "%s/answers", folder);
    snprintf(made, sizeof made, "%s/made", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    (void)unlink(judgements);
    (void)unlink(answers);
    (void)unlink(made);
    return rmdir(folder);
}

/* One answer of many members, and many who correct one of them: each opinion is a whole answer. */
static void write_files(void) {
    FILE *file = fopen(answers, "w");
    assert_non_null(file);
    fputs("{\"custom_id\":\"a\",\"error\":null,\"response\":{\"status_code\":200,\"body\":{"
          "\"choices\":[{\"index\":0,\"message\":{\"content\":\"{",
          file);
    for (int i = 0; i < MEMBERS; i++) fprintf(file, "%s\\\"m%d\\\":1", i ? "," : "", i);
    fputs("}\"}}]}}}\n", file);
    fclose(file);
    file = fopen(judgements, "w");
    assert_non_null(file);
    for (int i = 0; i < CURATORS; i++)
        fprintf(file,
                "{\"custom_id\":\"a\",\"curator\":\"c%d\",\"verdict\":\"corrected\",\"fields\":"
                "{\"m1\":2}}\n",
                i);
    fclose(file);
}

static void corrections_of_a_large_answer_are_bounded_by_the_memory_that_they_take(void **state) {
    (void)state;
    struct error error;
    write_files();
    struct judged judged = {.answers = answers, .memory_max = (size_t)16 << 20};
    assert_int_equal(judged_from_file(&judged, judgements, made, &error), ERR_LIMIT);
    assert_non_null(strstr(error.text, "more than 16 MiB"));
    assert_non_null(strstr(error.text, "line "));
    assert_false(judged.is_made);
    judged = (struct judged){.answers = answers};
    assert_int_equal(judged_from_file(&judged, judgements, made, &error), OK);
    assert_int_equal(judged.lines, 1);
    assert_int_equal(judged.memory_max, JUDGED_MEMORY_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corrections_of_a_large_answer_are_bounded_by_the_memory_that_they_take),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
