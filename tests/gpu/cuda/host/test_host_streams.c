/* SPDX-License-Identifier: Apache-2.0 */

/* Whether the streams without a GPU find a wait that host code forgot: what has no order comes in
 * either, and what has one does not. */

#include "cuda_runtime_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define DRAWS 200

enum { BEFORE = 1, AFTER = 2 };

/* Two streams, and a byte of the GPU that one writes and the other reads. */
struct rig {
    cudaStream_t up, compute;
    cudaEvent_t event;
    char *card;      /* (2) what is written, what was read */
    char *host;      /* (1) pinned: AFTER */
    int early, late; /* draws in which the reader got BEFORE, AFTER */
};

static void rig_open(struct rig *rig) {
    *rig = (struct rig){.early = 0};
    assert_int_equal(cudaStreamCreateWithFlags(&rig->up, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&rig->compute, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreate(&rig->event), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&rig->card, 2), cudaSuccess);
    assert_int_equal(cudaHostAlloc((void **)&rig->host, 1, 0), cudaSuccess);
    *rig->host = AFTER;
}

static void rig_close(struct rig *rig) {
    assert_int_equal(cudaStreamDestroy(rig->up), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(rig->compute), cudaSuccess);
    assert_int_equal(cudaEventDestroy(rig->event), cudaSuccess);
    assert_int_equal(cudaFree(rig->card), cudaSuccess);
    assert_int_equal(cudaFreeHost(rig->host), cudaSuccess);
}

static void begin(struct rig *rig) {
    const char before = BEFORE;
    assert_int_equal(cudaMemcpy(rig->card, &before, 1, cudaMemcpyHostToDevice), cudaSuccess);
}

static void put(struct rig *rig) {
    assert_int_equal(cudaMemcpyAsync(rig->card, rig->host, 1, cudaMemcpyHostToDevice, rig->up),
                     cudaSuccess);
}

static void get(struct rig *rig) {
    assert_int_equal(
        cudaMemcpyAsync(rig->card + 1, rig->card, 1, cudaMemcpyDeviceToDevice, rig->compute),
        cudaSuccess);
}

/* The second stream goes on behind what the first has. */
static void follow(struct rig *rig, cudaStream_t first, cudaStream_t second) {
    assert_int_equal(cudaEventRecord(rig->event, first), cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(second, rig->event, 0), cudaSuccess);
}

static void end(struct rig *rig) {
    char got = 0;
    assert_int_equal(cudaStreamSynchronize(rig->compute), cudaSuccess);
    assert_int_equal(cudaMemcpy(&got, rig->card + 1, 1, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_true(got == BEFORE || got == AFTER);
    rig->early += got == BEFORE, rig->late += got == AFTER;
    assert_int_equal(cudaStreamSynchronize(rig->up), cudaSuccess);
}

static void a_copy_that_nobody_waits_for_comes_before_or_behind_its_reader(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    for (int i = 0; i < DRAWS; i++) begin(&rig), put(&rig), get(&rig), end(&rig);
    assert_true(rig.early > DRAWS / 10 && rig.late > DRAWS / 10);
    rig_close(&rig);
}

static void behind_its_event_a_copy_is_there(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    for (int i = 0; i < DRAWS; i++) {
        begin(&rig), put(&rig);
        follow(&rig, rig.up, rig.compute);
        get(&rig), end(&rig);
    }
    assert_int_equal(rig.late, DRAWS);
    rig_close(&rig);
}

static void a_place_is_overwritten_under_a_reader_that_nobody_waits_for(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    for (int i = 0; i < DRAWS; i++) begin(&rig), get(&rig), put(&rig), end(&rig);
    assert_true(rig.early > DRAWS / 10 && rig.late > DRAWS / 10);
    rig.early = rig.late = 0;
    for (int i = 0; i < DRAWS; i++) {
        begin(&rig), get(&rig);
        follow(&rig, rig.compute, rig.up);
        put(&rig), end(&rig);
    }
    assert_int_equal(rig.early, DRAWS);
    rig_close(&rig);
}

static void a_wait_is_for_what_was_recorded_before_it(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    for (int i = 0; i < DRAWS; i++) {
        begin(&rig);
        assert_int_equal(cudaStreamWaitEvent(rig.compute, rig.event, 0), cudaSuccess);
        put(&rig);
        assert_int_equal(cudaEventRecord(rig.event, rig.up), cudaSuccess);
        get(&rig), end(&rig);
    }
    assert_true(rig.early > DRAWS / 10);
    rig_close(&rig);
}

static void the_host_sees_what_it_has_waited_for(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    int late = 0;
    for (int i = 0; i < DRAWS; i++) {
        char *host = rig.host;
        begin(&rig);
        *host = BEFORE;
        assert_int_equal(cudaMemcpyAsync(host, rig.card, 1, cudaMemcpyDeviceToHost, rig.up),
                         cudaSuccess);
        *host = AFTER;
        assert_int_equal(cudaEventRecord(rig.event, rig.up), cudaSuccess);
        late += *host == AFTER;
        assert_int_equal(cudaEventSynchronize(rig.event), cudaSuccess);
        assert_int_equal(cudaEventQuery(rig.event), cudaSuccess);
    }
    assert_true(late > DRAWS / 2);
    rig_close(&rig);
}

static void memory_that_a_gpu_does_not_reach_is_not_copied_later(void **state) {
    (void)state;
    struct rig rig;
    char plain = AFTER;
    rig_open(&rig);
    assert_int_equal(cudaMemcpyAsync(rig.card, &plain, 1, cudaMemcpyHostToDevice, rig.up),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(&plain, rig.card, 1, cudaMemcpyDeviceToHost, rig.up),
                     cudaErrorInvalidValue);
    rig_close(&rig);
}

/* As the streams of the plugin are, which do not wait for calls without a stream. */
static void a_plain_memset_is_there_behind_plain_calls_alone(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    for (int i = 0; i < DRAWS; i++) {
        begin(&rig);
        assert_int_equal(cudaMemset(rig.card, AFTER, 1), cudaSuccess);
        get(&rig), end(&rig);
    }
    assert_true(rig.early > DRAWS / 10 && rig.late > DRAWS / 10);
    rig.early = rig.late = 0;
    for (int i = 0; i < DRAWS; i++) {
        begin(&rig);
        assert_int_equal(cudaMemset(rig.card, AFTER, 1), cudaSuccess);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        get(&rig), end(&rig);
    }
    assert_int_equal(rig.late, DRAWS);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_that_nobody_waits_for_comes_before_or_behind_its_reader),
        cmocka_unit_test(behind_its_event_a_copy_is_there),
        cmocka_unit_test(a_place_is_overwritten_under_a_reader_that_nobody_waits_for),
        cmocka_unit_test(a_wait_is_for_what_was_recorded_before_it),
        cmocka_unit_test(the_host_sees_what_it_has_waited_for),
        cmocka_unit_test(memory_that_a_gpu_does_not_reach_is_not_copied_later),
        cmocka_unit_test(a_plain_memset_is_there_behind_plain_calls_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
