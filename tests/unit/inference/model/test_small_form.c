/* SPDX-License-Identifier: Apache-2.0 */

/* The form of a model's weights on a GPU that bf16 does not fit. */

#include "../checkpoint/gguf_builder.h"
#include "model/model.h"

#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TRIES_MAX 4

/* Products of every prepare that the GPU was asked for. */
static enum gpu_form tried[TRIES_MAX];
static uint32_t tries;
static uint32_t times_wider = 8;
static uint64_t memory_bytes = 1 << 20; /* that is told to the model */

static enum gpu_form form_of_products(const struct gpu_program *program) {
    enum gpu_form form = GPU_BF16;
    for (uint32_t i = 0; i < program->matrix_count && form != GPU_BLOCKS; i++)
        if (program->matrices[i].form != GPU_BF16) form = program->matrices[i].form;
    return form;
}

/* A GPU that is too small for everything. */
static enum err prepare(struct gpu *device, const struct gpu_program *program,
                        const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                        struct error *error) {
    (void)device;
    (void)limits;
    assert_true(tries < TRIES_MAX);
    tried[tries++] = form_of_products(program);
    *ret_ledger = (struct memory_ledger){.limit = 1, .used = 1};
    return err_set(error, ERR_LIMIT, "try %u", tries);
}

static const struct gpu_table table = {.kind = "card", .prepare = prepare};

/* Opens a file whose matrices have that type. */
static void open_refused(enum tensor_type type, bool as_f32, enum gpu_weights weights,
                         struct error *ret_error) {
    const struct recipe recipe = {.times = times_wider, .type = type, .as_f32 = as_f32};
    char path[] = "/tmp/quern-test-small-form-XXXXXX";
    struct buf file;
    struct model *model;
    buf_init(&file, 1 << 26);
    build_gguf(&recipe, &file);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file.at, file.bytes), file.bytes);
    close(fd);
    buf_release(&file);
    const struct loaded_gpu device = {.settings = {.weights = weights},
                                      .table = &table,
                                      .card = {.compute = 90, .multiprocessors = 1},
                                      .memory_bytes = memory_bytes};
    const struct model_options options = {.threads = 1, .device = &device};
    tries = 0;
    assert_int_equal(model_open(&model, path, &options, ret_error), ERR_LIMIT);
    unlink(path);
}

static void test_a_quantised_file_is_tried_in_int8_and_as_it_is(void **state) {
    (void)state;
    static const enum tensor_type types[] = {TENSOR_Q8_0, TENSOR_Q4_K, TENSOR_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct error error = {0};
        open_refused(types[i], false, GPU_WEIGHTS_AUTO, &error);
        const bool has_blocks = types[i] != TENSOR_Q8_0; /* with fewer than 8 bits */
        assert_int_equal(tries, has_blocks ? 3 : 2);
        assert_int_equal(tried[0], GPU_BF16);
        assert_int_equal(tried[1], GPU_INT8);
        if (has_blocks) assert_int_equal(tried[2], GPU_BLOCKS);
        assert_string_equal(error.text, has_blocks ? "try 3" : "try 2");
    }
}

static void test_what_was_asked_for_is_not_changed(void **state) {
    (void)state;
    struct error error = {0};
    open_refused(TENSOR_Q4_K, false, GPU_WEIGHTS_BF16, &error);
    assert_int_equal(tries, 1);
    assert_int_equal(tried[0], GPU_BF16);
    open_refused(TENSOR_Q4_K, false, GPU_WEIGHTS_INT8, &error);
    assert_int_equal(tries, 1);
    assert_int_equal(tried[0], GPU_INT8);
}

static void test_the_files_own_form_is_tried_at_once_where_it_has_fewer_than_8_bits(void **state) {
    (void)state;
    struct error error = {0};
    open_refused(TENSOR_Q4_K, false, GPU_WEIGHTS_FILE, &error);
    assert_int_equal(tries, 1);
    assert_int_equal(tried[0], GPU_BLOCKS);
    open_refused(TENSOR_Q8_0, false, GPU_WEIGHTS_FILE, &error);
    assert_int_equal(tries, 2); /* as without a choice */
    assert_int_equal(tried[0], GPU_BF16);
    assert_int_equal(tried[1], GPU_INT8);
}

/* Its owner chose exact weights. */
static void test_a_file_of_16_bits_or_more_keeps_them(void **state) {
    (void)state;
    struct error error = {0};
    open_refused(TENSOR_Q8_0, true, GPU_WEIGHTS_AUTO, &error);
    assert_int_equal(tries, 1);
    open_refused(TENSOR_BF16, false, GPU_WEIGHTS_AUTO, &error);
    assert_int_equal(tries, 1);
    assert_string_equal(error.text, "try 1");
}

/* The GPU refuses whatever it is asked for, so what is tried first is what was chosen. With memory
 * for all that is wanted that is bf16, as it is where nothing fits. */
static void test_8_bits_come_first_where_bf16_leaves_room_for_few(void **state) {
    (void)state;
    struct error error = {0};
    bool has_been_small = false;
    times_wider = 16;
    for (uint64_t mib = 600; mib <= 760; mib += 2) {
        memory_bytes = mib << 20;
        open_refused(TENSOR_Q8_0, false, GPU_WEIGHTS_AUTO, &error);
        if (tried[0] == GPU_BF16) continue;
        assert_int_equal(tried[0], GPU_INT8);
        has_been_small = true;
        open_refused(TENSOR_BF16, false, GPU_WEIGHTS_AUTO, &error);
        assert_int_equal(tried[0], GPU_BF16);
        open_refused(TENSOR_Q8_0, false, GPU_WEIGHTS_BF16, &error);
        assert_int_equal(tried[0], GPU_BF16);
    }
    assert_true(has_been_small);
    memory_bytes = (uint64_t)4 << 30;
    open_refused(TENSOR_Q8_0, false, GPU_WEIGHTS_AUTO, &error);
    assert_int_equal(tried[0], GPU_BF16);
    memory_bytes = 1 << 20;
    times_wider = 8;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_quantised_file_is_tried_in_int8_and_as_it_is),
        cmocka_unit_test(test_what_was_asked_for_is_not_changed),
        cmocka_unit_test(test_the_files_own_form_is_tried_at_once_where_it_has_fewer_than_8_bits),
        cmocka_unit_test(test_a_file_of_16_bits_or_more_keeps_them),
        cmocka_unit_test(test_8_bits_come_first_where_bf16_leaves_room_for_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
