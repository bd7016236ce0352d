/* SPDX-License-Identifier: Apache-2.0 */

/* Whole models of every type of weights. */

#include "../checkpoint/gguf_builder.h"
#include "kernels/kernels.h"
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VOCAB 8u
#define TOKENS 6u
/* Share of the largest logit: activations are rounded to steps (kernels.h). Measured: up to
 * 0.004. */
#define ROUNDING 0.01f

/* The logits of a prompt at all of its tokens. */
static void compute(const struct recipe *recipe, const char *kernels,
                    float ret_logits[TOKENS * VOCAB]) {
    static const int32_t ids[TOKENS] = {0, 2, 7, 3, 3, 5};
    static const uint32_t positions[TOKENS] = {0, 1, 2, 3, 4, 5};
    char path[] = "/tmp/quern-test-types-XXXXXX";
    struct buf file;
    struct model *model;
    struct error error = {0};
    buf_init(&file, 1 << 26);
    build_gguf(recipe, &file);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file.at, file.bytes), file.bytes);
    close(fd);
    buf_release(&file);
    struct model_options options = {.kernels = kernels, .threads = 1, .block_count = 1};
    if (model_open(&model, path, &options, &error) != OK) fail_msg("%s", error.text);
    unlink(path);
    struct logits_request request = {ids, TOKENS, positions, TOKENS};
    assert_int_equal(model_logits(model, &request, ret_logits, &error), OK);
    model_close(model);
}

static void check_types(uint32_t experts) {
    for (uint32_t type = 1; type < TENSOR_TYPE_END; type++) {
        if (!tensor_type_is_known(type) || type == TENSOR_INT4) continue; /* no file has INT4 */
        struct recipe own = {.times = 8, .type = type, .experts = experts};
        struct recipe values = {.times = 8, .type = type, .as_f32 = true, .experts = experts};
        float wanted[TOKENS * VOCAB], got[TOKENS * VOCAB];
        float largest = 0, worst = 0;
        compute(&values, "ref", wanted);
        compute(&own, "ref", got);
        assert_memory_equal(got, wanted, sizeof wanted);
        for (uint32_t i = 0; i < TOKENS * VOCAB; i++) largest = fmaxf(largest, fabsf(wanted[i]));
        if (!isfinite(largest) || largest <= 0.01f)
            fail_msg("%s: logits up to %g; its row in tests/block_scales.h is missing or wrong",
                     tensor_type_name((enum tensor_type)type), (double)largest);
        for (size_t table = 1; kernels_at(table); table++) {
            compute(&own, kernels_at(table)->name, got);
            for (uint32_t i = 0; i < TOKENS * VOCAB; i++)
                worst = fmaxf(worst, fabsf(got[i] - wanted[i]));
        }
        print_message("# %s: logits up to %.3g, error up to %.3g\n",
                      tensor_type_name((enum tensor_type)type), (double)largest, (double)worst);
        assert_true(worst <= ROUNDING * largest);
    }
}

static void every_type_computes_what_its_values_in_float32_do(void **state) {
    (void)state;
    check_types(0);
}

static void experts_of_every_type_do_too(void **state) {
    (void)state;
    check_types(4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_computes_what_its_values_in_float32_do),
        cmocka_unit_test(experts_of_every_type_do_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
