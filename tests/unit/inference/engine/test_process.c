/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine_process.h"
#include "protocol/wire_messages.h"
#include "toy.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* An engine process in a thread, and the server's end of its socket. */
struct bench {
    int fd;
    pthread_t thread;
    struct wire_reader reader;
    struct engine_process_options options;
    int exit_status;
};

static struct toy toy;
static char card_of_toy[64]; /* name of the device that the model was opened with; empty: none */

static enum err open_toy(struct served_model *ret_model, const struct wire_hello *options,
                         struct loaded_gpu *device, struct error *error) {
    snprintf(card_of_toy, sizeof card_of_toy, "%s", device->gpu ? device->card.name : "");
    if (str_is(options->model_path, "bad.gguf"))
        return err_set(error, ERR_INVALID, "bad.gguf: the file ends inside tensor 'x'");
    toy_open(&toy, &(struct toy_options){.block_count = 0});
    if (str_is(options->model_path, "weak.gguf")) atomic_store(&toy.fail_at_step, 3);
    *ret_model = toy.model;
    return OK;
}

static void close_toy(struct served_model *model) {
    (void)model;
    toy_close(&toy);
}

static void *run_engine(void *user) {
    struct bench *bench = user;
    bench->exit_status = engine_process_run(&bench->options);
    return NULL;
}

static void send_bytes(struct bench *bench, struct str bytes) {
    assert_int_equal(send(bench->fd, bytes.at, bytes.bytes, MSG_NOSIGNAL), bytes.bytes);
}

static void send_frame(struct bench *bench, enum wire_kind kind, uint64_t id, struct str payload) {
    struct buf out;
    buf_init(&out, 1 << 20);
    wire_write(&out, kind, id, 0, payload);
    send_bytes(bench, buf_str(&out));
    buf_release(&out);
}

/* The next frame that is no unasked STATS; false at the end of the socket. */
static bool next_frame(struct bench *bench, struct wire_frame *ret_frame) {
    for (;;) {
        bool found;
        assert_int_equal(wire_reader_next(&bench->reader, ret_frame, &found, NULL), OK);
        if (found && ret_frame->kind == WIRE_STATS && ret_frame->id == 0) continue;
        if (found) return true;
        size_t room_bytes;
        char *room = wire_reader_room(&bench->reader, &room_bytes);
        ssize_t count = recv(bench->fd, room, room_bytes, 0);
        if (count <= 0) return false;
        wire_reader_filled(&bench->reader, (size_t)count);
    }
}

static void expect(struct bench *bench, enum wire_kind kind, struct wire_frame *ret_frame) {
    assert_true(next_frame(bench, ret_frame));
    assert_int_equal(ret_frame->kind, kind);
}

static void say_hello_with(struct bench *bench, const char *path,
                           const struct wire_device *device) {
    struct wire_hello hello = {
        .version = WIRE_VERSION, .model_path = str_from(path), .device = *device};
    struct buf payload;
    buf_init(&payload, 10000);
    wire_put_hello(&payload, &hello);
    send_frame(bench, WIRE_HELLO, 0, buf_str(&payload));
    buf_release(&payload);
}

static void say_hello(struct bench *bench, const char *path) {
    say_hello_with(bench, path, &(struct wire_device){.memory_bytes = 0});
}

static void bench_open(struct bench *bench) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    *bench =
        (struct bench){.fd = pair[0],
                       .options = {.fd = pair[1], .open_model = open_toy, .close_model = close_toy},
                       .exit_status = -1};
    wire_reader_init(&bench->reader);
    assert_int_equal(pthread_create(&bench->thread, NULL, run_engine, bench), 0);
}

static void bench_open_ready(struct bench *bench) {
    struct wire_frame frame;
    bench_open(bench);
    say_hello(bench, "toy.gguf");
    expect(bench, WIRE_READY, &frame);
}

/* Ends it from our side unless it has ended; its exit status. */
static int bench_close(struct bench *bench) {
    shutdown(bench->fd, SHUT_WR);
    struct wire_frame frame;
    while (next_frame(bench, &frame)) continue;
    pthread_join(bench->thread, NULL);
    close(bench->fd);
    wire_reader_release(&bench->reader);
    return bench->exit_status;
}

static void send_job(struct bench *bench, uint64_t id, bool stream, const char *content) {
    struct buf body, payload;
    buf_init(&body, 10000);
    buf_init(&payload, 20000);
    buf_printf(&body,
               "{\"model\":\"toy\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],"
               "\"ignore_eos\":%s}",
               content, *content == '@' ? "false" : "true");
    wire_put_job(
        &payload,
        &(struct wire_job){.endpoint = ENDPOINT_CHAT, .stream = stream, .body = buf_str(&body)});
    send_frame(bench, WIRE_JOB, id, buf_str(&payload));
    buf_release(&body);
    buf_release(&payload);
}

static void a_job_is_answered_over_the_wire(void **state) {
    (void)state;
    struct bench bench;
    bench_open_ready(&bench);
    send_job(&bench, 5, true, "@ab");
    struct wire_frame frame;
    for (int i = 0; i < 4; i++) { /* role, a, b, end */
        expect(&bench, WIRE_DELTA, &frame);
        assert_int_equal(frame.id, 5);
    }
    expect(&bench, WIRE_RESULT, &frame);
    struct wire_result result;
    assert_int_equal(wire_get_result(frame.payload, &result, NULL), OK);
    assert_int_equal(result.status, 200);
    assert_int_equal(result.usage.output_tokens, 3);
    assert_true(str_find(result.body, STR("\"content\":\"ab\""), 0) != SIZE_MAX);
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_DONE);
}

static void ready_tells_what_is_served(void **state) {
    (void)state;
    struct bench bench;
    bench_open(&bench);
    say_hello(&bench, "toy.gguf");
    struct wire_frame frame;
    expect(&bench, WIRE_READY, &frame);
    struct wire_ready ready;
    assert_int_equal(wire_get_ready(frame.payload, &ready, NULL), OK);
    assert_true(ready.names.count == 1 && str_is(ready.names.at[0], "toy"));
    assert_int_equal(ready.context_tokens_max, 512);
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_DONE);
}

static void a_model_that_does_not_open_is_fatal_with_its_sentence(void **state) {
    (void)state;
    struct bench bench;
    bench_open(&bench);
    say_hello(&bench, "bad.gguf");
    struct wire_frame frame;
    expect(&bench, WIRE_FATAL, &frame);
    assert_true(str_is(frame.payload, "bad.gguf: the file ends inside tensor 'x'"));
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_FATAL);
}

static void a_model_that_fails_while_it_runs_is_fatal(void **state) {
    (void)state;
    struct bench bench;
    bench_open(&bench);
    say_hello(&bench, "weak.gguf");
    struct wire_frame frame;
    expect(&bench, WIRE_READY, &frame);
    send_job(&bench, 1, false, "free");
    expect(&bench, WIRE_FATAL, &frame);
    assert_true(str_find(frame.payload, STR("device is gone"), 0) != SIZE_MAX);
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_FATAL);
}

static void garbage_from_the_server_ends_the_engine(void **state) {
    (void)state;
    struct bench bench;
    bench_open_ready(&bench);
    send_bytes(&bench, STR("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    struct wire_frame frame;
    expect(&bench, WIRE_FATAL, &frame);
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_FATAL);
}

static void a_job_before_hello_is_refused(void **state) {
    (void)state;
    struct bench bench;
    bench_open(&bench);
    send_job(&bench, 1, false, "@x");
    struct wire_frame frame;
    expect(&bench, WIRE_FATAL, &frame);
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_FATAL);
}

static void a_ping_comes_back_with_its_number(void **state) {
    (void)state;
    struct bench bench;
    bench_open_ready(&bench);
    send_frame(&bench, WIRE_PING, 99, STR(""));
    struct wire_frame frame;
    expect(&bench, WIRE_STATS, &frame);
    assert_int_equal(frame.id, 99);
    struct wire_stats stats;
    assert_int_equal(wire_get_stats(frame.payload, &stats, NULL), OK);
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_DONE);
}

static void a_drain_finishes_what_runs_takes_nothing_new_and_ends(void **state) {
    (void)state;
    struct bench bench;
    bench_open_ready(&bench);
    atomic_store(&toy.is_held, true);
    send_job(&bench, 1, false, "@ab");
    send_frame(&bench, WIRE_DRAIN, 0, STR(""));
    send_job(&bench, 2, false, "@cd");
    struct wire_frame frame;
    struct wire_result result;
    expect(&bench, WIRE_RESULT, &frame);
    assert_int_equal(frame.id, 2);
    assert_int_equal(wire_get_result(frame.payload, &result, NULL), OK);
    assert_int_equal(result.status, 503);
    assert_int_equal(result.outcome, OUTCOME_NOT_RUN);
    atomic_store(&toy.is_held, false);
    expect(&bench, WIRE_RESULT, &frame);
    assert_int_equal(frame.id, 1);
    assert_int_equal(wire_get_result(frame.payload, &result, NULL), OK);
    assert_int_equal(result.status, 200);
    assert_false(next_frame(&bench, &frame));
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_DONE);
}

static void a_cancel_over_the_wire_ends_the_job(void **state) {
    (void)state;
    struct bench bench;
    bench_open_ready(&bench);
    atomic_store(&toy.is_held, true);
    send_job(&bench, 1, false, "free");
    send_frame(&bench, WIRE_CANCEL, 1, STR(""));
    send_frame(&bench, WIRE_CANCEL, 2, STR(""));
    send_frame(&bench, WIRE_PING, 3, STR(""));
    struct wire_frame frame;
    /* The result and the answer to the ping may change places, and either says that the cancel has
     * been read; before that the job must not go on, lest it end by itself. */
    bool has_result = false;
    for (int i = 0; i < 2; i++) {
        assert_true(next_frame(&bench, &frame));
        atomic_store(&toy.is_held, false);
        if (frame.kind != WIRE_RESULT) continue;
        struct wire_result result;
        assert_int_equal(frame.id, 1);
        assert_int_equal(wire_get_result(frame.payload, &result, NULL), OK);
        assert_int_equal(result.status, 499);
        assert_int_equal(result.outcome, OUTCOME_CANCELLED);
        has_result = true;
    }
    assert_true(has_result);
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_DONE);
}

static void the_end_of_the_server_ends_the_engine_with_jobs_inside(void **state) {
    (void)state;
    struct bench bench;
    bench_open_ready(&bench);
    for (uint64_t id = 0; id < 50; id++) send_job(&bench, id, true, "free");
    shutdown(bench.fd, SHUT_RDWR);
    pthread_join(bench.thread, NULL);
    assert_int_equal(bench.exit_status, ENGINE_EXIT_DONE);
    close(bench.fd);
    wire_reader_release(&bench.reader);
}

static void expect_fatal(const struct wire_device *device, const char *sentence) {
    struct bench bench;
    struct wire_frame frame;
    bench_open(&bench);
    say_hello_with(&bench, "toy.gguf", device);
    expect(&bench, WIRE_FATAL, &frame);
    assert_int_equal(frame.payload.bytes, strlen(sentence));
    assert_memory_equal(frame.payload.at, sentence, strlen(sentence));
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_FATAL);
}

static void expect_ready_on(const struct wire_device *device, const char *card) {
    struct bench bench;
    struct wire_frame frame;
    bench_open(&bench);
    say_hello_with(&bench, "toy.gguf", device);
    expect(&bench, WIRE_READY, &frame);
    assert_string_equal(card_of_toy, card);
    assert_int_equal(bench_close(&bench), ENGINE_EXIT_DONE);
}

static void a_device_is_open_before_the_model(void **state) {
    (void)state;
    struct wire_device device = {.plugin = STR(STUBS "/stub-good.so")};
    expect_ready_on(&device, "Stub 2");
    device.name = STR("cuda:0");
    expect_ready_on(&device, "Stub 0");
    device.name = STR("cpu");
    expect_ready_on(&device, "");
}

static void a_card_that_cannot_be_used_leaves_the_cpu_or_is_fatal(void **state) {
    (void)state;
    struct wire_device device = {.name = STR("auto"), .plugin = STR(STUBS "/stub-refused.so")};
    expect_ready_on(&device, "");
    device.name = STR("cuda");
    expect_fatal(&device, "GPU 0, Stub 0, cannot be used: it has compute capability 6.1, and quern "
                          "needs 8.0");
    device.plugin = STR(STUBS "/stub-driver.so");
    expect_fatal(&device, "libcuda.so.1 cannot be loaded; install NVIDIA's driver");
}

static void the_cpu_refuses_what_only_a_card_does(void **state) {
    (void)state;
    struct wire_device device = {.quantization = STR("fp8"), .plugin = STR(STUBS "/stub-good.so")};
    expect_ready_on(&device, "Stub 2");
    device.plugin = STR(STUBS "/stub-empty.so");
    expect_fatal(&device,
                 "--quantization: the CPU has no other value than auto; only a GPU has one");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_is_answered_over_the_wire),
        cmocka_unit_test(ready_tells_what_is_served),
        cmocka_unit_test(a_model_that_does_not_open_is_fatal_with_its_sentence),
        cmocka_unit_test(a_model_that_fails_while_it_runs_is_fatal),
        cmocka_unit_test(garbage_from_the_server_ends_the_engine),
        cmocka_unit_test(a_job_before_hello_is_refused),
        cmocka_unit_test(a_ping_comes_back_with_its_number),
        cmocka_unit_test(a_drain_finishes_what_runs_takes_nothing_new_and_ends),
        cmocka_unit_test(a_cancel_over_the_wire_ends_the_job),
        cmocka_unit_test(the_end_of_the_server_ends_the_engine_with_jobs_inside),
        cmocka_unit_test(a_device_is_open_before_the_model),
        cmocka_unit_test(a_card_that_cannot_be_used_leaves_the_cpu_or_is_fatal),
        cmocka_unit_test(the_cpu_refuses_what_only_a_card_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
