/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* device_settings: the options about a device, read from their texts.
 *
 * The command line checks the texts with these functions, and the engine process reads the same
 * texts from HELLO with them. A value that vLLM has and quern has not is refused by its name.
 *
 * Thread: any.
 * Memory: the settings borrow their texts. */

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

/* The share of a card's memory that is taken when no option says more. */
#define DEVICE_SHARE_DEFAULT 0.9

enum device_choice {
    DEVICE_CHOICE_AUTO, /* a card if one can be used, else the CPU */
    DEVICE_CHOICE_CPU,
    DEVICE_CHOICE_CARD, /* a card, or a refusal */
};

enum device_weights {
    DEVICE_WEIGHTS_AUTO, /* as the executor finds best for the file's types */
    DEVICE_WEIGHTS_BF16,
    DEVICE_WEIGHTS_E4M3,
    DEVICE_WEIGHTS_INT8,
};

enum device_kv { DEVICE_KV_AUTO, DEVICE_KV_BF16, DEVICE_KV_E4M3 };

/* The options as texts; an empty text or a 0 is an option that was not given. */
struct device_texts {
    struct str device;         /* auto, cpu, cuda, cuda:N or cuda:UUID */
    struct str plugin;         /* path of the plugin */
    struct str dtype;          /* auto or bfloat16 */
    struct str kv_cache_dtype; /* auto, bfloat16, fp8 or fp8_e4m3 */
    struct str quantization;   /* auto, none, fp8 or int8 */
    double memory_share;       /* above 0 and at most 1 */
    uint64_t memory_bytes;
};

struct device_settings {
    enum device_choice choice;
    struct str card; /* index or the beginning of a UUID; empty: any card */
    struct str plugin;
    bool has_dtype; /* bfloat16 was asked for */
    enum device_kv kv;
    enum device_weights weights;
    double memory_share;   /* 0: not given */
    uint64_t memory_bytes; /* 0: not given; counts instead of memory_share */
    bool is_careful; /* no option: the process before this one ended by an error of the card */
};

/* ERR_INVALID with a sentence that names the option, the value and the values that exist. With
 * --device cpu also for a value that only a card has. */
enum err device_settings_read(struct device_settings *ret_settings,
                              const struct device_texts *texts, struct error *error) MUST_CHECK;

/* ERR_INVALID when a setting asks for what the CPU does not do. Limits of a card's memory are no
 * such setting: without a card they limit nothing. */
enum err device_settings_check_cpu(const struct device_settings *settings,
                                   struct error *error) MUST_CHECK;
