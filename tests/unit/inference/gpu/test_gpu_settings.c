/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct gpu_settings read(const struct gpu_texts *texts) {
    struct gpu_settings settings;
    struct error error = {0};
    assert_int_equal(gpu_settings_read(&settings, texts, &error), OK);
    return settings;
}

static void expect_refusal(const struct gpu_texts *texts, const char *sentence) {
    struct gpu_settings settings;
    struct error error = {0};
    assert_int_equal(gpu_settings_read(&settings, texts, &error), ERR_INVALID);
    assert_string_equal(error.text, sentence);
}

static void nothing_given_is_auto(void **state) {
    (void)state;
    struct gpu_settings settings = read(&(struct gpu_texts){.memory_share = 0});
    assert_int_equal(settings.choice, GPU_CHOICE_AUTO);
    assert_int_equal(settings.kv, GPU_KV_AUTO);
    assert_int_equal(settings.weights, GPU_WEIGHTS_AUTO);
    assert_false(settings.has_dtype || settings.has_bf16_states);
}

static void values_are_read(void **state) {
    (void)state;
    struct gpu_settings settings = read(&(struct gpu_texts){.device = STR("cuda:GPU-12ab"),
                                                            .dtype = STR("bfloat16"),
                                                            .kv_cache_dtype = STR("fp8"),
                                                            .state_dtype = STR("bfloat16"),
                                                            .quantization = STR("int8"),
                                                            .memory_share = 0.5});
    assert_int_equal(settings.choice, GPU_CHOICE_CARD);
    assert_true(str_is(settings.card, "GPU-12ab"));
    assert_true(settings.has_dtype && settings.has_bf16_states);
    assert_int_equal(settings.kv, GPU_KV_E4M3);
    assert_int_equal(settings.weights, GPU_WEIGHTS_INT8);
    settings = read(&(struct gpu_texts){.device = STR("cuda:7")});
    assert_true(str_is(settings.card, "7"));
    assert_int_equal(read(&(struct gpu_texts){.device = STR("cuda")}).choice, GPU_CHOICE_CARD);
}

static void other_values_are_refused_with_those_that_exist(void **state) {
    (void)state;
    const char *gpus = "--device 'rocm' is not supported (auto, cpu, cuda, cuda:N and "
                       "cuda:GPU-UUID are)";
    expect_refusal(&(struct gpu_texts){.device = STR("rocm")}, gpus);
    struct gpu_settings settings;
    struct error error = {0};
    static const char *const bad[] = {"cuda:", "cuda:-1", "cuda:x", "cuda0", "gpu", "CPU"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(
            gpu_settings_read(&settings, &(struct gpu_texts){.device = str_from(bad[i])}, &error),
            ERR_INVALID);
    expect_refusal(&(struct gpu_texts){.dtype = STR("float16")},
                   "--dtype 'float16' is not supported (auto and bfloat16 are: a GPU computes in "
                   "bfloat16)");
    expect_refusal(&(struct gpu_texts){.kv_cache_dtype = STR("fp8_e5m2")},
                   "--kv-cache-dtype 'fp8_e5m2' is not supported (auto, bfloat16, fp8 and fp8_e4m3 "
                   "are, and on the CPU int8_per_token_head)");
    expect_refusal(&(struct gpu_texts){.state_dtype = STR("float16")},
                   "--mamba-ssm-cache-dtype 'float16' is not supported (auto, float32 and bfloat16 "
                   "are)");
    expect_refusal(&(struct gpu_texts){.quantization = STR("awq")},
                   "--quantization 'awq' is not supported (auto, none, fp8, int8 and file are; a "
                   "file that is quantized already is read as it is)");
    expect_refusal(&(struct gpu_texts){.memory_share = 1.5},
                   "--gpu-memory-utilization 1.5 is not above 0 and at most 1");
}

static void the_cpu_takes_its_own_values_only(void **state) {
    (void)state;
    read(&(struct gpu_texts){.device = STR("cpu"), .dtype = STR("auto"), .memory_share = 0.9});
    expect_refusal(&(struct gpu_texts){.device = STR("cpu"), .quantization = STR("fp8")},
                   "--quantization: the CPU has no other value than auto; only a GPU has one");
    read(&(struct gpu_texts){.device = STR("cpu"), .state_dtype = STR("float32")});
    expect_refusal(
        &(struct gpu_texts){.device = STR("cpu"), .state_dtype = STR("bfloat16")},
        "--mamba-ssm-cache-dtype: the CPU has no other value than auto; only a GPU has one");
    struct gpu_settings settings = read(&(struct gpu_texts){.kv_cache_dtype = STR("fp8")});
    struct error error = {0};
    const struct gpu_texts as_file = {.device = STR("cpu"), .quantization = STR("file")};
    assert_int_equal(read(&as_file).weights, GPU_WEIGHTS_FILE); /* which the CPU does anyway */
    assert_int_equal(gpu_settings_check_cpu(&settings, &error), ERR_INVALID);
}

static void keys_and_values_of_8_bit_integers_are_the_cpus(void **state) {
    (void)state;
    static const char *const names[] = {"int8_per_token_head", "int8"};
    struct error error = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct str name = str_from(names[i]);
        struct gpu_settings settings =
            read(&(struct gpu_texts){.device = STR("cpu"), .kv_cache_dtype = name});
        assert_int_equal(settings.kv, GPU_KV_INT8);
        settings = read(&(struct gpu_texts){.kv_cache_dtype = name});
        assert_int_equal(gpu_settings_check_cpu(&settings, &error), OK);
        assert_int_equal(gpu_settings_check_card(&settings, &error), ERR_INVALID);
        expect_refusal(&(struct gpu_texts){.device = STR("cuda"), .kv_cache_dtype = name},
                       "--kv-cache-dtype int8_per_token_head: only the CPU has it; a GPU has fp8");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_is_auto),
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(other_values_are_refused_with_those_that_exist),
        cmocka_unit_test(the_cpu_takes_its_own_values_only),
        cmocka_unit_test(keys_and_values_of_8_bit_integers_are_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
