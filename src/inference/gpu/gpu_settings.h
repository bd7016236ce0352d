/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_settings: the options about a GPU, read from their texts.
 *
 * The command line checks the texts with these functions, and the engine process reads the same
 * texts from HELLO with them. A value that vLLM has and quern has not is refused by its name.
 *
 * Thread: any.
 * Memory: the settings borrow their texts. */

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

/* The share of a GPU's memory that is taken when no option says more. */
#define GPU_SHARE_DEFAULT 0.9

enum device_choice {
    GPU_CHOICE_AUTO, /* a GPU if one can be used, else the CPU */
    GPU_CHOICE_CPU,
    GPU_CHOICE_CARD, /* a GPU, or a refusal */
};

enum gpu_weights {
    GPU_WEIGHTS_AUTO, /* as the executor finds best for the file's types */
    GPU_WEIGHTS_BF16,
    GPU_WEIGHTS_E4M3,
    GPU_WEIGHTS_INT8,
    GPU_WEIGHTS_FILE, /* as the file has them, if it has fewer than 8 bits */
};

enum gpu_kv { GPU_KV_AUTO, GPU_KV_BF16, GPU_KV_E4M3, GPU_KV_INT8 /* only the CPU */ };

/* The options as texts; an empty text or a 0 is an option that was not given. */
struct gpu_texts {
    struct str device;         /* auto, cpu, cuda, cuda:N or cuda:UUID */
    struct str plugin;         /* path of the plugin */
    struct str dtype;          /* auto or bfloat16 */
    struct str kv_cache_dtype; /* auto, bfloat16, fp8, fp8_e4m3, int8_per_token_head or int8 */
    struct str state_dtype;    /* auto, float32 or bfloat16 */
    struct str quantization;   /* auto, none, fp8, int8 or file */
    double memory_share;       /* above 0 and at most 1 */
    uint64_t memory_bytes;
    uint32_t tensor_parallel_size; /* GPUs that compute together */
};

struct gpu_settings {
    enum device_choice choice;
    struct str card; /* index or the beginning of a UUID; empty: any GPU */
    struct str plugin;
    bool has_dtype; /* bfloat16 was asked for */
    enum gpu_kv kv;
    bool has_bf16_states; /* bfloat16 was asked for states of recurrent layers; else float32 */
    enum gpu_weights weights;
    uint32_t ranks;        /* GPUs that compute together, up to GPU_RANKS_MAX; 0 means 1 */
    double memory_share;   /* 0: not given */
    uint64_t memory_bytes; /* 0: not given; counts instead of memory_share */
    bool is_careful;       /* no option: the process before this one ended by an error of the GPU */
};

/* ERR_INVALID with a sentence that names the option, the value and the values that exist. With
 * --device cpu also for a value that only a GPU has. */
enum err gpu_settings_read(struct gpu_settings *ret_settings, const struct gpu_texts *texts,
                           struct error *error) MUST_CHECK;

/* ERR_INVALID when a setting asks for what the CPU does not do. Limits of a GPU's memory are no
 * such setting: without a GPU they limit nothing. */
enum err gpu_settings_check_cpu(const struct gpu_settings *settings,
                                struct error *error) MUST_CHECK;
/* ERR_INVALID when a setting asks for what only the CPU does. */
enum err gpu_settings_check_card(const struct gpu_settings *settings,
                                 struct error *error) MUST_CHECK;
