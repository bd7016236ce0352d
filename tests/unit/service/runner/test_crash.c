/* SPDX-License-Identifier: Apache-2.0 */

/* Kills the process at every call that touches the disk, one after another, and makes such calls
 * fail; every time the next start must finish the batch as if nothing had happened. */

#include "pipeline.h"

#include "base/log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tests/draws.h"

#define LINES 150 /* enough for a second segment */

static const struct runner_options options = {.lookahead_lines = 32};
static const struct worker_echo_options echo = {.fail_every = 0};

/* A directory with an upload and a batch that nobody has looked at. */
static void make_template(struct pipeline *p, char ret_id[STORE_ID_BYTES]) {
    struct error error;
    char file_id[STORE_ID_BYTES];
    struct buf text;
    pipeline_dir(p);
    pipeline_open_store(p);
    buf_init(&text, BUF_UNLIMITED);
    add_chat_lines(&text, "crash", LINES);
    pipeline_upload(p, buf_str(&text), "batch", file_id);
    buf_release(&text);
    struct batch_parameters parameters = {
        .endpoint = ENDPOINT_CHAT, .completion_window = "24h", .window_s = 86400};
    memcpy(parameters.input_file_id, file_id, sizeof file_id);
    struct store_batch batch;
    bool existing;
    must(batch_create(p->store, &parameters, test_now(), &batch, &existing, &error));
    memcpy(ret_id, batch.id, STORE_ID_BYTES);
    store_batch_release(&batch);
    store_close(p->store);
}

static void copy_template(const struct pipeline *from, struct pipeline *to) {
    snprintf(to->dir, sizeof to->dir, "%.48s-run", from->dir);
    tree_remove(to->dir);
    tree_copy(from->dir, to->dir);
}

/* Blanks what differs from run to run: the ids of attempts. */
static void blank_request_ids(char *text) {
    static const char mark[] = "\"request_id\":\"req_";
    for (char *at = text; at && (at = strstr(at, mark)); at++)
        memset(at + sizeof mark - 1, '.', 32);
}

/* Finishes the batch in this process; returns its output, blanked. */
static char *finish(struct pipeline *p, const char *id) {
    pipeline_open(p, &options, &echo, 1);
    struct store_batch batch = pipeline_wait(p, id, is_over);
    assert_int_equal(batch.status, BATCH_COMPLETED);
    assert_int_equal(batch.completed, LINES);
    size_t bytes;
    char *output = pipeline_read(p, batch.output_file_id, &bytes);
    assert_int_equal(count_lines(output, bytes), LINES);
    store_batch_release(&batch);
    pipeline_close(p);
    assert_int_equal(pipeline_fsck(p), 0);
    blank_request_ids(output);
    return output;
}

/* Runs the batch in a child under a fault plan. Returns the child's wait status. */
static int run_child(struct pipeline *p, const char *id, const char *plan) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct error error;
        alarm(60); /* a hang is a failure */
        must(os_fault_plan(plan, &error));
        pipeline_open(p, &options, &echo, 1);
        struct store_batch batch = pipeline_wait(p, id, is_over);
        store_batch_release(&batch);
        pipeline_close(p);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int calls_between(int *ret_first) {
    const int every = draws_calls_between(1, ret_first);
    print_message("# dies at call %d and each %d after it\n", *ret_first, every);
    return every;
}

static void a_kill_at_any_call_to_the_disk_changes_no_byte_of_the_output(void **state) {
    (void)state;
    struct pipeline template = {0}, p = {0};
    char id[STORE_ID_BYTES], plan[64];
    make_template(&template, id);
    copy_template(&template, &p);
    char *expected = finish(&p, id);
    int killed = 0, first;
    const int every = calls_between(&first);
    for (int at = first;; at += every) {
        copy_template(&template, &p);
        snprintf(plan, sizeof plan, "any:%d:KILL", at);
        int status = run_child(&p, id, plan);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        killed++;
        /* Now and then the restart dies as well. */
        if (killed % 3 == 0) {
            snprintf(plan, sizeof plan, "any:%d:KILL", at / 3);
            run_child(&p, id, plan);
        }
        char *output = finish(&p, id);
        assert_string_equal(output, expected);
        free(output);
    }
    print_message("# killed at %d calls\n", killed);
    assert_true(killed > 100 / every);
    free(expected);
    pipeline_remove(&p);
    pipeline_remove(&template);
}

static void a_write_that_is_torn_by_a_kill_changes_no_byte_of_the_output(void **state) {
    (void)state;
    struct pipeline template = {0}, p = {0};
    char id[STORE_ID_BYTES], plan[64];
    static const char *const calls[] = {"pwrite", "write"};
    make_template(&template, id);
    copy_template(&template, &p);
    char *expected = finish(&p, id);
    int first;
    const int every = calls_between(&first);
    for (size_t i = 0; i < 2; i++)
        for (int at = first; at < 200; at += every) {
            copy_template(&template, &p);
            snprintf(plan, sizeof plan, "%s:%d:TEAR", calls[i], at);
            int status = run_child(&p, id, plan);
            if (WIFEXITED(status)) break;
            char *output = finish(&p, id);
            assert_string_equal(output, expected);
            free(output);
        }
    free(expected);
    pipeline_remove(&p);
    pipeline_remove(&template);
}

static void a_failing_call_is_survived_or_ends_the_process_and_never_hangs(void **state) {
    (void)state;
    static const char *const calls[] = {"open",      "pread",  "write",     "pwrite", "fsync",
                                        "fdatasync", "rename", "ftruncate", "unlink", "fallocate"};
    static const char *const errors[] = {"EIO", "ENOSPC", "EMFILE"};
    struct pipeline template = {0}, p = {0};
    char id[STORE_ID_BYTES], plan[64];
    make_template(&template, id);
    copy_template(&template, &p);
    char *expected = finish(&p, id);
    for (size_t call = 0; call < sizeof calls / sizeof *calls; call++)
        for (size_t error = 0; error < sizeof errors / sizeof *errors; error++)
            for (int at = 1; at <= 5; at += 2) {
                copy_template(&template, &p);
                snprintf(plan, sizeof plan, "%s:%d:%s", calls[call], at, errors[error]);
                int status = run_child(&p, id, plan);
                bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
                bool refused = WIFEXITED(status) && WEXITSTATUS(status) == 3; /* at the start */
                bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
                if (!clean && !refused && !aborted)
                    fail_msg("%s: status %x", plan, (unsigned)status);
                char *output = finish(&p, id);
                assert_string_equal(output, expected);
                free(output);
            }
    free(expected);
    pipeline_remove(&p);
    pipeline_remove(&template);
}

/* An upload and a create call in a child that says how far it got. */
static void upload_child(struct pipeline *p, const char *plan, int acknowledged) {
    struct error error;
    char file_id[STORE_ID_BYTES];
    struct store_batch batch;
    bool existing;
    must(os_fault_plan(plan, &error));
    pipeline_open_store(p);
    pipeline_upload(p, STR("{\"some\":\"bytes\"}\n"), "batch", file_id);
    if (write(acknowledged, file_id, sizeof file_id) < 0) _exit(6);
    struct batch_parameters parameters = {.completion_window = "24h", .window_s = 86400};
    memcpy(parameters.input_file_id, file_id, sizeof file_id);
    must(batch_create(p->store, &parameters, test_now(), &batch, &existing, &error));
    if (write(acknowledged, batch.id, sizeof batch.id) < 0) _exit(6);
    store_batch_release(&batch);
    store_close(p->store);
    _exit(0);
}

static void what_was_acknowledged_before_a_kill_is_there_after_it(void **state) {
    (void)state;
    bool went_through = false;
    for (int at = 1; !went_through; at++) {
        struct pipeline p = {0};
        int ends[2], status;
        char plan[64], ids[2][STORE_ID_BYTES] = {"", ""};
        struct error error;
        pipeline_dir(&p);
        assert_int_equal(pipe(ends), 0);
        snprintf(plan, sizeof plan, "any:%d:KILL", at);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) upload_child(&p, plan, ends[1]);
        close(ends[1]);
        ssize_t got = read(ends[0], ids[0], STORE_ID_BYTES);
        if (got == STORE_ID_BYTES) got = read(ends[0], ids[1], STORE_ID_BYTES);
        close(ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        went_through = WIFEXITED(status);
        assert_true(!went_through || WEXITSTATUS(status) == 0);
        pipeline_open_store(&p);
        if (*ids[0]) {
            size_t bytes;
            char *text = pipeline_read(&p, ids[0], &bytes);
            assert_string_equal(text, "{\"some\":\"bytes\"}\n");
            free(text);
        }
        if (*ids[1]) {
            struct store_batch batch;
            must(store_batch_get(p.store, str_from(ids[1]), &batch, &error));
            assert_int_equal(batch.status, BATCH_VALIDATING);
            store_batch_release(&batch);
        }
        store_close(p.store);
        assert_int_equal(pipeline_fsck(&p), 0);
        pipeline_remove(&p);
    }
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_at_any_call_to_the_disk_changes_no_byte_of_the_output),
        cmocka_unit_test(a_write_that_is_torn_by_a_kill_changes_no_byte_of_the_output),
        cmocka_unit_test(a_failing_call_is_survived_or_ends_the_process_and_never_hangs),
        cmocka_unit_test(what_was_acknowledged_before_a_kill_is_there_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
