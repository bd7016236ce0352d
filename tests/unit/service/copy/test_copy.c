/* SPDX-License-Identifier: Apache-2.0 */

/* A server with a copy in a folder is killed at each call that touches a disk, its own or that of
 * the copy. Whatever it had acknowledged must be in the copy: a directory restored from it alone
 * has it, keeps all promises, and finishes the batch with the same bytes. */

#include "../runner/pipeline.h"

#include "base/log.h"
#include "copy/copy.h"
#include "copy/restore.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tests/draws.h"

#define LINES 150 /* enough for a second segment */
#define ANSWER_MS 60000

static const struct runner_options runner_options = {.lookahead_lines = 32};
static const struct worker_echo_options echo = {.fail_every = 0};
static const volatile bool never = false;

/* What the server has acknowledged, in memory that outlives it. */
struct acknowledged {
    bool has_file, has_batch, has_end;
    char file_id[STORE_ID_BYTES], batch_id[STORE_ID_BYTES];
    uint64_t completed;
};

struct world {
    struct pipeline here, there; /* the server's directory, and the one restored */
    char place[80];
    struct acknowledged *acknowledged;
    struct copy *copy;
};

static struct world make_world(void) {
    struct world world = {0};
    pipeline_dir(&world.here);
    snprintf(world.place, sizeof world.place, "%.50s-copy", world.here.dir);
    snprintf(world.there.dir, sizeof world.there.dir, "%.50s-there", world.here.dir);
    world.acknowledged = mmap(NULL, sizeof *world.acknowledged, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(world.acknowledged, MAP_FAILED);
    return world;
}

static void empty_world(struct world *world) {
    tree_remove(world->here.dir);
    tree_remove(world->there.dir);
    tree_remove(world->place);
    memset(world->acknowledged, 0, sizeof *world->acknowledged);
}

static void end_world(struct world *world) {
    empty_world(world);
    munmap(world->acknowledged, sizeof *world->acknowledged);
}

/* --- the server --- */

static void open_server(struct world *world) {
    struct error error;
    struct pipeline *p = &world->here;
    struct runner_options own = runner_options;
    const struct copy_options options = {
        .place = world->place, .state_dir = p->dir, .stop = &never};
    own.now_unix_s = test_now;
    must(copy_open(&world->copy, &options, &error));
    pipeline_open_store(p);
    must(copy_attach(world->copy, p->store, &error));
    must(runner_open(&p->runner, p->store, &own, &error));
    struct worker_events events;
    uint32_t seat;
    if (!runner_worker_seat(p->runner, &events, &seat)) abort();
    must(worker_echo_open(&p->workers[0], &echo, &events, &error));
    runner_worker_attach(p->runner, seat, p->workers[0]);
    must(runner_start(p->runner, &error));
}

static void close_server(struct world *world) {
    pipeline_close(&world->here);
    copy_close(world->copy);
}

/* Waits as an answer to a client does. */
static void wait_for_copy(struct world *world) {
    if (!copy_wait(world->copy, false, clock_monotonic_ns() + ANSWER_MS * INT64_C(1000000)))
        _exit(5);
}

/* Time passes while an answer waits: the copy writes an entry each 200 ms. */
static void *move_clock(void *context) {
    atomic_bool *over = context;
    while (!atomic_load(over)) {
        clock_move_ms(STEP_MS);
        usleep(500);
    }
    return NULL;
}

static void upload(struct world *world) {
    struct acknowledged *known = world->acknowledged;
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    add_chat_lines(&text, "crash", LINES);
    char file_id[STORE_ID_BYTES];
    pipeline_upload(&world->here, buf_str(&text), "batch", file_id);
    buf_release(&text);
    wait_for_copy(world);
    memcpy(known->file_id, file_id, sizeof file_id);
    known->has_file = true;
}

static void create(struct world *world) {
    struct acknowledged *known = world->acknowledged;
    char id[STORE_ID_BYTES];
    pipeline_create(&world->here, known->file_id, 0, id);
    wait_for_copy(world);
    memcpy(known->batch_id, id, sizeof id);
    known->has_batch = true;
}

/* Reads the batch as clients do, until it has ended. */
static void follow(struct world *world) {
    struct acknowledged *known = world->acknowledged;
    struct error error;
    for (bool is_ended = false; !is_ended;) {
        struct store_batch batch;
        must(runner_batch_get(world->here.runner, str_from(known->batch_id), &batch, &error));
        uint64_t completed = batch.completed;
        is_ended = is_over(&batch);
        store_batch_release(&batch);
        if (is_ended) wait_for_copy(world);
        known->completed = completed;
        known->has_end = is_ended;
        usleep(200);
    }
}

/* Serves from an upload to the end of its batch. */
static void serve(struct world *world) {
    atomic_bool over = false;
    pthread_t mover;
    clock_make_movable();
    if (pthread_create(&mover, NULL, move_clock, &over) != 0) abort();
    open_server(world);
    if (!world->acknowledged->has_file) upload(world);
    if (!world->acknowledged->has_batch) create(world);
    follow(world);
    close_server(world);
    atomic_store(&over, true);
    pthread_join(mover, NULL);
}

/* Serves in a child under a fault plan; returns how it ended. */
static int serve_in_child(struct world *world, const char *plan) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct error error;
        alarm(60); /* a hang is a failure */
        must(os_fault_plan(plan, &error));
        serve(world);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* --- the other machine --- */

/* Blanks what differs from run to run: the ids of attempts and of the batch. */
static void blank_ids(char *text) {
    static const char *const marks[] = {"\"request_id\":\"req_", "\"id\":\"batch_req_"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        for (char *at = text; at && (at = strstr(at, marks[i])); at++)
            for (char *byte = at + strlen(marks[i]); *byte != '"'; byte++) *byte = '.';
}

/* The output of the batch, once it has ended there; the caller frees it. */
static char *finish_there(struct world *world, const char *id) {
    struct pipeline *p = &world->there;
    pipeline_open(p, &runner_options, &echo, 1);
    struct store_batch batch = pipeline_wait(p, id, is_over);
    assert_int_equal(batch.status, BATCH_COMPLETED);
    assert_int_equal(batch.completed, LINES);
    size_t bytes;
    char *output = pipeline_read(p, batch.output_file_id, &bytes);
    assert_int_equal(count_lines(output, bytes), LINES);
    store_batch_release(&batch);
    pipeline_close(p);
    assert_int_equal(pipeline_fsck(p), 0);
    blank_ids(output);
    return output;
}

/* What was acknowledged is in the restored directory, before any batch runs on. */
static void check_there(struct world *world) {
    const struct acknowledged *known = world->acknowledged;
    struct pipeline *p = &world->there;
    struct error error;
    struct store_batch batch;
    struct store_file file;
    int fd;
    assert_int_equal(pipeline_fsck(p), 0);
    pipeline_open_store(p);
    if (known->has_file) {
        must(store_file_open(p->store, str_from(known->file_id), test_now(), &fd, &file, &error));
        os_close(fd);
    }
    if (known->has_batch) {
        must(store_batch_get(p->store, str_from(known->batch_id), &batch, &error));
        if (known->has_end) assert_int_equal(batch.status, BATCH_COMPLETED);
        store_batch_release(&batch);
    }
    must(runner_open(&p->runner, p->store, &runner_options, &error));
    must(runner_start(p->runner, &error)); /* without a worker: only what is there counts */
    /* A batch whose check was not over waits for a worker that says which models it has. */
    if (known->has_batch && known->completed > 0) {
        batch = pipeline_wait(p, known->batch_id, is_running);
        assert_true(batch.completed >= known->completed);
        store_batch_release(&batch);
    }
    runner_close(p->runner);
    store_close(p->store);
}

/* Restores elsewhere what the copy has, and goes on there. False if there is no copy yet. */
static bool go_on_there(struct world *world, const char *expected) {
    const struct acknowledged *known = world->acknowledged;
    struct copy_restored restored;
    struct error error;
    enum err err = copy_restore_from(world->place, world->there.dir, &never, &restored, &error);
    if (err == ERR_NOT_FOUND) {
        assert_false(known->has_file);
        return false;
    }
    if (err != OK) fail_msg("%s", error.text);
    if (known->has_batch && !known->has_end) {
        check_there(world);
        tree_remove(world->there.dir);
        must(copy_restore_from(world->place, world->there.dir, &never, &restored, &error));
    }
    assert_int_equal(pipeline_fsck(&world->there), 0);
    if (!known->has_batch) return true;
    char *output = finish_there(world, known->batch_id);
    assert_string_equal(output, expected);
    free(output);
    return true;
}

static int calls_between(int *ret_first) {
    const int every = draws_calls_between(0.1, ret_first);
    print_message("# dies at call %d and each %d after it\n", *ret_first, every);
    return every;
}

static char *serve_undisturbed(struct world *world) {
    int status = serve_in_child(world, "any:1000000:KILL");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(world->acknowledged->has_end);
    struct copy_restored restored;
    struct error error;
    must(copy_restore_from(world->place, world->there.dir, &never, &restored, &error));
    assert_int_equal(restored.batches, 1);
    assert_int_equal(restored.unfinished, 0);
    return finish_there(world, world->acknowledged->batch_id);
}

static void what_was_acknowledged_is_in_the_copy_at_any_kill(void **state) {
    (void)state;
    struct world world = make_world();
    char *expected = serve_undisturbed(&world), plan[64];
    int killed = 0, copies = 0, first;
    const int every = calls_between(&first);
    for (int at = first;; at += every) {
        empty_world(&world);
        snprintf(plan, sizeof plan, "any:%d:KILL", at);
        int status = serve_in_child(&world, plan);
        bool is_over = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (!is_over) assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        copies += go_on_there(&world, expected);
        if (is_over) break;
        killed++;
    }
    print_message("# died %d times, %d copies restored\n", killed, copies);
    assert_true(killed > 0 && copies > 0);
    free(expected);
    end_world(&world);
}

static void a_server_that_was_killed_goes_on_with_its_copy(void **state) {
    (void)state;
    struct world world = make_world();
    char *expected = serve_undisturbed(&world), plan[64];
    int first;
    const int every = calls_between(&first) * 4;
    for (int at = first;; at += every) {
        empty_world(&world);
        snprintf(plan, sizeof plan, "any:%d:KILL", at);
        int status = serve_in_child(&world, plan);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
        status = serve_in_child(&world, "any:1000000:KILL"); /* the same machine, again */
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_true(world.acknowledged->has_end);
        assert_true(go_on_there(&world, expected));
    }
    free(expected);
    end_world(&world);
}

/* Puts an entry of another server where the next one of ours belongs. */
static void take_over(struct world *world) {
    struct entry_header header = {.host = "another", .nonce = "ffffffffffffffffffffffffffffffff"};
    char name[ENTRY_NAME_BYTES];
    struct bucket *bucket;
    struct chain_end end;
    struct error error;
    enum err err;
    must(bucket_open(&bucket, world->place, &never, &error));
    do {
        struct buf entry;
        must(chain_find(bucket, &never, &end, &error));
        header.number = header.leader = end.number + 1;
        header.base = end.base;
        buf_init(&entry, BUF_UNLIMITED);
        entry_begin(&entry, &header);
        entry_end(&entry);
        chain_log_name(header.number, name);
        err = bucket_write(bucket, name, buf_str(&entry), true, &error);
        buf_release(&entry);
    } while (err == ERR_CONFLICT);
    assert_int_equal(err, OK);
    bucket_close(bucket);
}

static void a_server_that_another_one_follows_acknowledges_nothing_more(void **state) {
    (void)state;
    struct world world = make_world();
    char file_id[STORE_ID_BYTES];
    struct error error;
    struct copy *copy;
    struct copy_status status;
    const struct copy_options options = {
        .place = world.place, .state_dir = world.here.dir, .stop = &never};
    open_server(&world);
    assert_true(copy_wait(world.copy, true, clock_monotonic_ns() + INT64_C(60000000000)));
    assert_true(copy_is_fresh(world.copy));
    assert_int_equal(strlen(copy_name(world.copy)), ENTRY_NONCE_BYTES - 1);
    take_over(&world);
    pipeline_upload(&world.here, STR("{}\n"), "batch", file_id);
    assert_false(copy_wait(world.copy, false, clock_monotonic_ns() + INT64_C(60000000000)));
    assert_true(copy_is_fenced(world.copy) && !copy_is_fresh(world.copy));
    copy_status(world.copy, &status);
    assert_non_null(strstr(status.sentence, "another"));
    close_server(&world);
    /* Nor does a new start on its directory go on. */
    must(copy_open(&copy, &options, &error));
    pipeline_open_store(&world.here);
    assert_int_equal(copy_attach(copy, world.here.store, &error), ERR_CONFLICT);
    assert_non_null(strstr(error.text, "another"));
    store_close(world.here.store);
    copy_close(copy);
    end_world(&world);
}

static void a_directory_without_the_copys_note_does_not_lead(void **state) {
    (void)state;
    struct world world = make_world();
    struct error error;
    struct copy *copy;
    open_server(&world);
    close_server(&world);
    const struct copy_options options = {
        .place = world.place, .state_dir = world.there.dir, .stop = &never};
    must(copy_open(&copy, &options, &error));
    pipeline_open_store(&world.there);
    assert_int_equal(copy_attach(copy, world.there.store, &error), ERR_CONFLICT);
    store_close(world.there.store);
    copy_close(copy);
    end_world(&world);
}

/* An idle server writes a sign of life per 3 s. Without a new base a restore reads all of them. */
static void signs_of_life_alone_make_a_base_due(void **state) {
    (void)state;
    struct world world = make_world();
    struct copy_status status;
    clock_make_movable();
    open_server(&world);
    do {
        clock_move_ms(3000);
        usleep(200);
        copy_status(world.copy, &status);
        assert_true(status.entries < 2000); /* 1,024 of 64 KiB are a base of up to 64 MiB */
    } while (status.bases < 2);
    print_message("# %llu entries\n", (unsigned long long)status.entries);
    close_server(&world);
    assert_true(go_on_there(&world, NULL));
    end_world(&world);
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_acknowledged_is_in_the_copy_at_any_kill),
        cmocka_unit_test(a_server_that_was_killed_goes_on_with_its_copy),
        cmocka_unit_test(a_server_that_another_one_follows_acknowledges_nothing_more),
        cmocka_unit_test(a_directory_without_the_copys_note_does_not_lead),
        cmocka_unit_test(signs_of_life_alone_make_a_base_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
