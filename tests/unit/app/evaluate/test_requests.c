/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LINES 1000

struct folder {
    char path[40], input[60], output[60];
};

/* Lines 0 to 999; of these, 990 and each hundredth are wanted first. */
static void begin(struct folder *folder) {
    snprintf(folder->path, sizeof folder->path, "/tmp/quern-test-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->input, sizeof folder->input, "%s/in", folder->path);
    snprintf(folder->output, sizeof folder->output, "%s/out", folder->path);
    FILE *file = fopen(folder->input, "w");
    assert_non_null(file);
    for (int i = 0; i < LINES; i++)
        fprintf(file, "%d%s\n", i, i == 990 || i % 100 == 0 ? " first" : "");
    fclose(file);
}

static void end(const struct folder *folder) {
    unlink(folder->input);
    unlink(folder->output);
    rmdir(folder->path);
}

static bool is_marked(const void *context, struct str line) {
    (void)context;
    return str_ends_with(line, STR("first"));
}

static const struct requests_wish marked = {NULL, is_marked};

/* Writes a sample; returns its marked lines. */
static size_t count_marked(const struct folder *folder, uint64_t sample, uint64_t *ret_lines,
                           int ret_numbers[LINES]) {
    struct error error;
    char line[64];
    size_t count = 0, written = 0;
    assert_int_equal(
        requests_write(folder->input, sample, &marked, folder->output, ret_lines, &error), OK);
    FILE *file = fopen(folder->output, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        ret_numbers[written++] = (int)strtol(line, NULL, 10);
        count += strstr(line, "first") != NULL;
    }
    fclose(file);
    assert_int_equal(written, *ret_lines);
    return count;
}

static void a_sample_has_the_lines_that_are_wanted_first(void **state) {
    struct folder folder;
    uint64_t lines;
    int numbers[LINES];
    (void)state;
    begin(&folder);
    assert_int_equal(count_marked(&folder, 20, &lines, numbers), 11);
    assert_int_equal(lines, 20);
    for (int i = 1; i < 20; i++) assert_true(numbers[i] > numbers[i - 1]);
    assert_true(numbers[19] == 990 && numbers[18] < 950);
    assert_int_equal(count_marked(&folder, 5, &lines, numbers), 5);
    assert_true(lines == 5 && numbers[0] == 0 && numbers[4] == 800);
    assert_int_equal(count_marked(&folder, 11, &lines, numbers), 11);
    assert_int_equal(count_marked(&folder, 0, &lines, numbers), 11);
    assert_int_equal(lines, LINES);
    assert_int_equal(count_marked(&folder, 2 * LINES, &lines, numbers), 11);
    assert_int_equal(lines, LINES);
    end(&folder);
}

static void without_a_wish_the_distances_are_equal(void **state) {
    struct folder folder;
    struct error error;
    uint64_t lines;
    char text[200] = "";
    (void)state;
    begin(&folder);
    assert_int_equal(requests_write(folder.input, 4, NULL, folder.output, &lines, &error), OK);
    FILE *file = fopen(folder.output, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_string_equal(text, "0 first\n250\n500 first\n750\n");
    end(&folder);
}

static void a_sample_of_the_same_size_is_known_again(void **state) {
    struct folder folder;
    uint64_t lines;
    int numbers[LINES];
    (void)state;
    begin(&folder);
    assert_int_equal(count_marked(&folder, 20, &lines, numbers), 11);
    assert_true(requests_are_of(folder.output, folder.input, 20));
    assert_false(requests_are_of(folder.output, folder.input, 19));
    assert_false(requests_are_of("/nowhere", folder.input, 20));
    FILE *file = fopen(folder.output, "w");
    assert_non_null(file);
    fprintf(file, "2\n1\n");
    fclose(file);
    assert_false(requests_are_of(folder.output, folder.input, 2));
    end(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_has_the_lines_that_are_wanted_first),
        cmocka_unit_test(without_a_wish_the_distances_are_equal),
        cmocka_unit_test(a_sample_of_the_same_size_is_known_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
