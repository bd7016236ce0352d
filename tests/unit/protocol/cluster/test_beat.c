/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/beat.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct beat *a_beat(void) {
    struct beat *beat = calloc(1, sizeof *beat);
    assert_non_null(beat);
    *beat = (struct beat){.state = BEAT_DRAINING,
                          .has_gap = true,
                          .round = 1ull << 40,
                          .work_seq = 2,
                          .result_seq = 3,
                          .count = 4,
                          .name = STR("gpu-1"),
                          .version = STR("1.0"),
                          .worker_count = 2};
    struct beat_worker *worker = &beat->workers[1];
    *worker = (struct beat_worker){.shapes = SHAPES_HELD,
                                   .ready = true,
                                   .knows_names = true,
                                   .lines_max = 5,
                                   .weight = 6,
                                   .steps = 7,
                                   .kv_permille = 1000,
                                   .text = STR("ready"),
                                   .model_count = 1};
    worker->models[0] = (struct beat_model){
        .name = STR("tiny"), .context_tokens_max = 8, .embeds = true, .has_identity = true};
    worker->models[0].identity[31] = 9;
    worker->models[0].has_weights = true;
    worker->models[0].weights[30] = 10;
    return beat;
}

static void a_beat_comes_back_as_it_was_written(void **state) {
    (void)state;
    struct beat *from = a_beat(), *to = calloc(1, sizeof *to);
    struct buf bytes;
    assert_non_null(to);
    buf_init(&bytes, BUF_UNLIMITED);
    beat_write(&bytes, from);
    assert_true(beat_read(buf_str(&bytes), to));
    assert_true(to->state == BEAT_DRAINING && to->has_gap && to->round == 1ull << 40);
    assert_true(to->work_seq == 2 && to->result_seq == 3 && to->count == 4);
    assert_true(str_is(to->name, "gpu-1") && str_is(to->version, "1.0"));
    assert_int_equal(to->worker_count, 2);
    const struct beat_worker *worker = &to->workers[1];
    assert_true(worker->shapes == SHAPES_HELD && worker->ready && !worker->is_failed);
    assert_true(worker->knows_names && worker->lines_max == 5 && worker->weight == 6);
    assert_true(worker->steps == 7 && worker->kv_permille == 1000);
    assert_true(worker->model_count == 1 && str_is(worker->models[0].name, "tiny"));
    assert_true(worker->models[0].embeds && !worker->models[0].generates);
    assert_true(worker->models[0].has_identity && worker->models[0].identity[31] == 9);
    assert_true(worker->models[0].has_weights && worker->models[0].weights[30] == 10);
    buf_release(&bytes);
    free(from);
    free(to);
}

static void a_cut_beat_is_refused_and_a_longer_one_is_read(void **state) {
    (void)state;
    struct beat *from = a_beat(), *to = calloc(1, sizeof *to);
    struct buf bytes;
    buf_init(&bytes, BUF_UNLIMITED);
    beat_write(&bytes, from);
    size_t whole = bytes.bytes;
    buf_add(&bytes, "later", 5);
    assert_true(beat_read(buf_str(&bytes), to));
    for (size_t cut = 0; cut < whole; cut++)
        assert_false(beat_read((struct str){bytes.at, cut}, to));
    buf_release(&bytes);
    free(from);
    free(to);
}

/* Marks of weights came later: the last bytes of the last worker. */
static void a_beat_without_marks_is_read_and_half_a_mark_is_not(void **state) {
    (void)state;
    enum { MARKS = 1 + 1 + WORKER_IDENTITY_BYTES };
    struct beat *from = a_beat(), *to = calloc(1, sizeof *to);
    struct buf bytes;
    assert_non_null(to);
    buf_init(&bytes, BUF_UNLIMITED);
    beat_write(&bytes, from);
    size_t whole = bytes.bytes, at = whole;
    /* The count of bytes of the worker stands before its fields. */
    for (size_t own = 0; at >= 4; at--) {
        uint32_t count;
        memcpy(&count, bytes.at + at - 4, sizeof count);
        own = whole - at;
        if (count == own && own > MARKS) break;
    }
    assert_true(at >= 4);
    for (uint32_t left = 0; left <= MARKS; left++) {
        uint32_t count = (uint32_t)(whole - at) - MARKS + left;
        memcpy(bytes.at + at - 4, &count, sizeof count);
        bool is_read = beat_read((struct str){bytes.at, whole - MARKS + left}, to);
        assert_int_equal(is_read, left == 0 || left == MARKS);
        if (is_read) assert_int_equal(to->workers[1].models[0].has_weights, left == MARKS);
    }
    buf_release(&bytes);
    free(from);
    free(to);
}

static void a_name_of_a_model_that_is_none_is_refused(void **state) {
    (void)state;
    static const struct str names[] = {{"", 0}, {"a\0b", 3}};
    struct beat *from = a_beat(), *to = calloc(1, sizeof *to);
    struct buf bytes;
    buf_init(&bytes, BUF_UNLIMITED);
    for (size_t i = 0; i < 2; i++) {
        from->workers[1].models[0].name = names[i];
        buf_clear(&bytes);
        beat_write(&bytes, from);
        assert_false(beat_read(buf_str(&bytes), to));
    }
    buf_release(&bytes);
    free(from);
    free(to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beat_comes_back_as_it_was_written),
        cmocka_unit_test(a_cut_beat_is_refused_and_a_longer_one_is_read),
        cmocka_unit_test(a_beat_without_marks_is_read_and_half_a_mark_is_not),
        cmocka_unit_test(a_name_of_a_model_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
