/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "server/merge.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A file without a name that holds `text`, or -1 for NULL. */
static int file_of(const char *text) {
    char path[] = "/tmp/quern-test-merge-XXXXXX";
    struct error error;
    if (!text) return -1;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(os_write_all(fd, text, strlen(text), &error), OK);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static enum err merge(const char *input, const char *output, const char *errors,
                      char ret_merged[4096], struct error *error) {
    int fds[] = {file_of(input), file_of(output), file_of(errors), file_of("")};
    enum err err = merge_results(fds[0], fds[1], fds[2], fds[3], NULL, error);
    ssize_t bytes = pread(fds[3], ret_merged, 4095, 0);
    assert_true(bytes >= 0);
    ret_merged[bytes] = '\0';
    for (size_t i = 0; i < 4; i++) os_close(fds[i]);
    return err;
}

static void results_of_both_files_come_in_the_order_of_the_input(void **state) {
    (void)state;
    char merged[4096];
    struct error error;
    assert_int_equal(merge("{\"custom_id\":\"a\"}\n{\"custom_id\":\"b\"}\n{\"custom_id\":\"c\"}\n",
                           "{\"custom_id\":\"a\",\"n\":1}\n{\"custom_id\":\"c\",\"n\":3}\n",
                           "{\"custom_id\":\"b\",\"n\":2}\n", merged, &error),
                     OK);
    assert_string_equal(merged, "{\"custom_id\":\"a\",\"n\":1}\n{\"custom_id\":\"b\",\"n\":2}\n{"
                                "\"custom_id\":\"c\",\"n\":3}\n");
}

static void an_id_is_what_it_means_however_it_is_spelt(void **state) {
    (void)state;
    char merged[4096];
    struct error error;
    assert_int_equal(merge("\xEF\xBB\xBF{\"custom_id\":\"\xC3\xA9\"}\r\n\n{\"custom_id\":\"z\"}",
                           "{\"custom_id\":\"\\u00e9\"}\n{\"custom_id\":\"z\"}\n", NULL, merged,
                           &error),
                     OK);
    assert_string_equal(merged, "{\"custom_id\":\"\\u00e9\"}\n{\"custom_id\":\"z\"}\n");
}

static void a_line_without_a_result_is_named(void **state) {
    (void)state;
    char merged[4096];
    struct error error;
    assert_int_equal(merge("{\"custom_id\":\"a\"}\n\n{\"custom_id\":\"b\"}\n",
                           "{\"custom_id\":\"a\"}\n", NULL, merged, &error),
                     ERR_CORRUPT);
    assert_non_null(strstr(error.text, "line 3"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_of_both_files_come_in_the_order_of_the_input),
        cmocka_unit_test(an_id_is_what_it_means_however_it_is_spelt),
        cmocka_unit_test(a_line_without_a_result_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
