/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_settings.h"

#include "gpu/table.h"

#include <stddef.h>

/* A value of an option and its meaning. */
struct word {
    const char *text;
    int meaning;
};

static const struct word dtypes[] = {{"auto", false}, {"bfloat16", true}, {0}};
static const struct word kvs[] = {{"auto", GPU_KV_AUTO},
                                  {"bfloat16", GPU_KV_BF16},
                                  {"fp8", GPU_KV_E4M3},
                                  {"fp8_e4m3", GPU_KV_E4M3},
                                  {"int8_per_token_head", GPU_KV_INT8},
                                  {"int8", GPU_KV_INT8},
                                  {0}};
static const struct word states[] = {{"auto", false}, {"float32", false}, {"bfloat16", true}, {0}};
static const struct word weights[] = {{"auto", GPU_WEIGHTS_AUTO}, {"none", GPU_WEIGHTS_BF16},
                                      {"fp8", GPU_WEIGHTS_E4M3},  {"int8", GPU_WEIGHTS_INT8},
                                      {"file", GPU_WEIGHTS_FILE}, {0}};

/* Finds the text among the words; an empty text is the first word. */
static bool read_word(int *ret_meaning, const struct word *words, struct str text) {
    if (text.bytes == 0) text = str_from(words[0].text);
    for (; words->text; words++) {
        if (!str_is(text, words->text)) continue;
        *ret_meaning = words->meaning;
        return true;
    }
    return false;
}

static bool is_index(struct str text) {
    uint64_t index;
    return str_to_u64(text, &index) && index < 1024;
}

static enum err read_place(struct gpu_settings *settings, struct str text, struct error *error) {
    if (text.bytes == 0 || str_is(text, "auto")) {
        settings->choice = GPU_CHOICE_AUTO;
        return OK;
    }
    settings->choice = str_is(text, "cpu") ? GPU_CHOICE_CPU : GPU_CHOICE_CARD;
    if (settings->choice == GPU_CHOICE_CPU || str_is(text, "cuda")) return OK;
    struct str card = str_skip(text, 5);
    if (str_starts_with(text, STR("cuda:")) &&
        (is_index(card) || str_starts_with(card, STR("GPU-")))) {
        settings->card = card;
        return OK;
    }
    return err_set(error, ERR_INVALID,
                   "--device '%.*s' is not supported (auto, cpu, cuda, cuda:N and cuda:GPU-UUID "
                   "are)",
                   (int)(text.bytes < 64 ? text.bytes : 64), text.at);
}

static enum err refuse_word(const char *option, struct str text, const char *others,
                            struct error *error) {
    return err_set(error, ERR_INVALID, "--%s '%.*s' is not supported (%s)", option,
                   (int)(text.bytes < 64 ? text.bytes : 64), text.at, others);
}

enum err gpu_settings_read(struct gpu_settings *ret_settings, const struct gpu_texts *texts,
                           struct error *error) {
    struct gpu_settings settings = {.plugin = texts->plugin,
                                    .memory_share = texts->memory_share,
                                    .memory_bytes = texts->memory_bytes,
                                    .ranks = texts->tensor_parallel_size};
    int meaning;
    if (settings.ranks == 0) settings.ranks = 1;
    if (settings.ranks > GPU_RANKS_MAX)
        return err_set(error, ERR_INVALID,
                       "--tensor-parallel-size %u is not supported (1 to %u are)", settings.ranks,
                       GPU_RANKS_MAX);
    enum err err = read_place(&settings, texts->device, error);
    if (err != OK) return err;
    if (!read_word(&meaning, dtypes, texts->dtype))
        return refuse_word("dtype", texts->dtype,
                           "auto and bfloat16 are: a GPU computes in bfloat16", error);
    settings.has_dtype = meaning;
    if (!read_word(&meaning, kvs, texts->kv_cache_dtype))
        return refuse_word("kv-cache-dtype", texts->kv_cache_dtype,
                           "auto, bfloat16, fp8 and fp8_e4m3 are, and on the CPU "
                           "int8_per_token_head",
                           error);
    settings.kv = (enum gpu_kv)meaning;
    if (!read_word(&meaning, states, texts->state_dtype))
        return refuse_word("mamba-ssm-cache-dtype", texts->state_dtype,
                           "auto, float32 and bfloat16 are", error);
    settings.has_bf16_states = meaning;
    if (!read_word(&meaning, weights, texts->quantization))
        return refuse_word("quantization", texts->quantization,
                           "auto, none, fp8, int8 and file are; a file that is quantized "
                           "already is read as it is",
                           error);
    settings.weights = (enum gpu_weights)meaning;
    if (!(texts->memory_share >= 0 && texts->memory_share <= 1))
        return err_set(error, ERR_INVALID,
                       "--gpu-memory-utilization %.6g is not above 0 and at most 1",
                       texts->memory_share);
    if (settings.choice == GPU_CHOICE_CPU) err = gpu_settings_check_cpu(&settings, error);
    if (settings.choice == GPU_CHOICE_CARD) err = gpu_settings_check_card(&settings, error);
    if (err == OK) *ret_settings = settings;
    return err;
}

enum err gpu_settings_check_cpu(const struct gpu_settings *settings, struct error *error) {
    const bool has_weights =
        settings->weights != GPU_WEIGHTS_AUTO && settings->weights != GPU_WEIGHTS_FILE;
    const bool has_kv = settings->kv != GPU_KV_AUTO && settings->kv != GPU_KV_INT8;
    const char *option = settings->has_dtype         ? "dtype"
                         : has_kv                    ? "kv-cache-dtype"
                         : settings->has_bf16_states ? "mamba-ssm-cache-dtype"
                         : has_weights               ? "quantization"
                         : settings->ranks > 1       ? "tensor-parallel-size"
                                                     : NULL;
    if (!option) return OK;
    if (settings->ranks > 1 && !has_weights)
        return err_set(error, ERR_INVALID,
                       "--tensor-parallel-size %u: the CPU computes alone; only GPUs compute "
                       "together",
                       settings->ranks);
    if (has_kv && !settings->has_dtype)
        return err_set(error, ERR_INVALID,
                       "--kv-cache-dtype: the CPU has no other value than auto and "
                       "int8_per_token_head; only a GPU has one");
    return err_set(error, ERR_INVALID,
                   "--%s: the CPU has no other value than auto; only a GPU has one", option);
}

enum err gpu_settings_check_card(const struct gpu_settings *settings, struct error *error) {
    if (settings->kv != GPU_KV_INT8) return OK;
    return err_set(error, ERR_INVALID,
                   "--kv-cache-dtype int8_per_token_head: only the CPU has it; a GPU has fp8");
}
