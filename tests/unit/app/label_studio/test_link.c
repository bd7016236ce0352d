/* SPDX-License-Identifier: Apache-2.0 */
/* A link is read again after a cut at every length. */
#include "label_studio/link.h"

#include "base/os.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64];

static void write_file(const char *bytes, size_t count) {
    struct error error;
    int fd;
    assert_int_equal(os_create(&fd, path, 0600, &error), OK);
    assert_int_equal(os_write_all(fd, bytes, count, &error), OK);
    os_close(fd);
}

static enum err open_link(struct link *link, const char *batch) {
    struct error error;
    return link_open(link, path, batch, "http://x", &error);
}

/* The bytes of a link with a project, two chunks, the second one open, and a judgement. */
static char *make_whole(size_t *ret_bytes) {
    struct link link;
    struct error error;
    struct form form = {0};
    char *bytes;
    (void)unlink(path);
    assert_int_equal(open_link(&link, "b"), OK);
    link_want_project(&link, "marker");
    link_set_project(&link, 3, &form);
    link_send(&link, json_pack("[s,s]", "c-0", "c-1"), 5);
    link_set_import(&link, LINK_ANSWERED);
    json_t *tasks = json_pack("{s:i,s:i}", "c-0", 10, "c-1", 11);
    link_add_tasks(&link, tasks);
    json_decref(tasks);
    link_end_chunk(&link, true);
    json_t *judgement = json_pack("{s:s}", "custom_id", "c-0");
    link_add_judgement(&link, "1 t", judgement, false);
    json_decref(judgement);
    link_send(&link, json_pack("[s]", "c-2"), 6);
    assert_int_equal(link_sync(&link, &error), OK);
    link_close(&link);
    assert_int_equal(os_read_file(path, 1 << 20, &bytes, ret_bytes, &error), OK);
    return bytes;
}

static void a_whole_link_is_read_again(void **state) {
    (void)state;
    size_t bytes;
    struct link link;
    uint64_t task;
    free(make_whole(&bytes));
    assert_int_equal(open_link(&link, "other"), ERR_CONFLICT);
    assert_int_equal(open_link(&link, "b"), OK);
    assert_int_equal(link.project, 3);
    assert_int_equal(link.tasks.count, 2);
    assert_true(map_get(&link.tasks, STR("c-1"), &task) && task == 11);
    assert_true(map_get(&link.annotations, STR("1 t"), NULL));
    assert_int_equal(json_array_size(link.chunk.custom_ids), 1);
    assert_int_equal(link.chunk.after, 11);
    assert_int_equal(link.chunk.at_ms, 6);
    link_close(&link);
}

static void a_link_in_use_is_refused(void **state) {
    (void)state;
    size_t bytes;
    struct link link, second;
    free(make_whole(&bytes));
    assert_int_equal(open_link(&link, "b"), OK);
    assert_int_equal(open_link(&second, "b"), ERR_CONFLICT);
    link_close(&link);
}

static void count_judgement(void *context, const json_t *judgement) {
    size_t *count = context;
    assert_true(json_is_object(judgement));
    ++*count;
}

static void a_link_forgets_a_project_and_keeps_its_judgements(void **state) {
    (void)state;
    size_t bytes, judgements = 0;
    struct link link;
    struct error error;
    free(make_whole(&bytes));
    assert_int_equal(open_link(&link, "b"), OK);
    link_add_sent(&link, "made-here");
    link_forget_project(&link);
    assert_int_equal(link_sync(&link, &error), OK);
    for (int round = 0; round < 2; round++) { /* at once, and read again */
        assert_int_equal(link.project, 0);
        assert_int_equal(link.tasks.count, 0);
        assert_int_equal(link.annotations.count, 0);
        assert_int_equal(link.sent.count, 0);
        assert_null(link.chunk.custom_ids);
        link_close(&link);
        assert_int_equal(open_link(&link, "b"), OK);
    }
    assert_int_equal(link_each_judgement(&link, count_judgement, &judgements, &error), OK);
    assert_int_equal(judgements, 1);
    link_close(&link);
}

static void a_torn_link_goes_on_behind_its_last_line(void **state) {
    (void)state;
    size_t bytes;
    char *whole = make_whole(&bytes), *after;
    for (size_t cut = 0; cut < bytes; cut++) {
        struct link link;
        struct error error;
        size_t left, valid = cut;
        while (valid > 0 && whole[valid - 1] != '\n') valid--;
        write_file(whole, cut);
        assert_int_equal(open_link(&link, "b"), OK);
        link_want_project(&link, "again");
        assert_int_equal(link_sync(&link, &error), OK);
        link_close(&link);
        assert_int_equal(os_read_file(path, 1 << 20, &after, &left, &error), OK);
        if (valid > 0) assert_memory_equal(after, whole, valid);
        assert_int_equal(after[left - 1], '\n');
        free(after);
        assert_int_equal(open_link(&link, "b"), OK);
        assert_string_equal(link.marker, "again");
        link_close(&link);
    }
    free(whole);
}

static void damage_before_the_end_is_an_error_and_changes_nothing(void **state) {
    (void)state;
    size_t bytes, left;
    char *whole = make_whole(&bytes), *after, *second = strchr(whole, '\n') + 1;
    struct link link;
    struct error error;
    *second = 'x';
    write_file(whole, bytes);
    assert_int_equal(open_link(&link, "b"), ERR_CORRUPT);
    assert_int_equal(os_read_file(path, 1 << 20, &after, &left, &error), OK);
    assert_int_equal(left, bytes);
    assert_memory_equal(after, whole, bytes);
    free(after);
    free(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_link_is_read_again),
        cmocka_unit_test(a_link_in_use_is_refused),
        cmocka_unit_test(a_link_forgets_a_project_and_keeps_its_judgements),
        cmocka_unit_test(a_torn_link_goes_on_behind_its_last_line),
        cmocka_unit_test(damage_before_the_end_is_an_error_and_changes_nothing),
    };
    snprintf(path, sizeof path, "/tmp/quern-test-link-%ld", (long)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
