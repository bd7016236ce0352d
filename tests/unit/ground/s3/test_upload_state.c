/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/os.h"
#include "s3/upload_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/quern-upload-XXXXXX";
static char path[64];

static struct upload_state opened(uint64_t file_bytes, const char *place) {
    struct upload_state state = {.path = path, .fd = -1, .file_bytes = file_bytes, .part_count = 3};
    struct error error;
    memcpy(state.place, place, strlen(place) + 1);
    if (upload_state_open(&state, &error) != OK) fail_msg("%s", error.text);
    return state;
}

static void begin(void) {
    struct error error;
    assert_int_equal(os_unlink(path, &error), OK);
    struct upload_state state = opened(100, "place");
    assert_string_equal(state.upload_id, "");
    assert_int_equal(upload_state_begin(&state, "id-1", &error), OK);
    assert_int_equal(upload_state_add(&state, 2, "aa", "\"e2\"", &error), OK);
    assert_int_equal(upload_state_add(&state, 2, "bb", "\"e3\"", &error), OK);
    upload_state_close(&state);
}

static void append(const char *text) {
    int fd = open(path, O_WRONLY | O_APPEND);
    assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void parts_are_known_to_the_next_call_and_the_last_of_a_number_counts(void **unused) {
    (void)unused;
    begin();
    append("3 cc \"torn"); /* the rest of a killed process */
    struct upload_state state = opened(100, "place");
    struct error error;
    assert_string_equal(state.upload_id, "id-1");
    assert_string_equal(state.parts[1].sum, "bb");
    assert_string_equal(state.parts[1].etag, "\"e3\"");
    assert_false(state.parts[1].is_there);
    assert_string_equal(state.parts[2].sum, "");
    assert_int_equal(upload_state_add(&state, 1, "dd", "\"e 1\"", &error), OK);
    upload_state_close(&state);
    state = opened(100, "place");
    assert_string_equal(state.parts[0].etag, "\"e 1\"");
    upload_state_close(&state);
}

static void a_file_of_another_upload_or_with_a_line_that_is_none_begins_anew(void **unused) {
    (void)unused;
    const char *const lines[] = {"0 aa e\n", "4 aa e\n", "x aa e\n", "1 aa\n", "1  e\n", "\n"};
    begin();
    struct upload_state state = opened(101, "place");
    assert_string_equal(state.upload_id, "");
    upload_state_close(&state);
    begin();
    state = opened(100, "elsewhere");
    assert_string_equal(state.upload_id, "");
    upload_state_close(&state);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        begin();
        append(lines[i]);
        state = opened(100, "place");
        if (*state.upload_id || *state.parts[1].sum) fail_msg("line %zu", i);
        upload_state_close(&state);
    }
}

static void two_processes_do_not_write_one_file(void **unused) {
    (void)unused;
    begin();
    struct upload_state state = opened(100, "place");
    struct upload_state other = {.path = path, .fd = -1, .part_count = 3};
    struct error error;
    assert_int_equal(upload_state_open(&other, &error), ERR_CONFLICT);
    upload_state_close(&other);
    assert_int_equal(upload_state_begin(&state, "two words", &error), ERR_CORRUPT);
    assert_int_equal(upload_state_begin(&state, "", &error), ERR_CORRUPT);
    upload_state_close(&state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_known_to_the_next_call_and_the_last_of_a_number_counts),
        cmocka_unit_test(a_file_of_another_upload_or_with_a_line_that_is_none_begins_anew),
        cmocka_unit_test(two_processes_do_not_write_one_file),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/out.upload", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)!unlink(path);
    return rmdir(folder) != 0 ? 1 : failed;
}
