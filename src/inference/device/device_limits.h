/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* device_limits: the sizes of a step and of the KV cache that an executor asks a device for.
 *
 * The executor opens a device with these limits, and card_fit predicts with them, so that both tell
 * the same number of sequences. Where the caller leaves the number open, it follows from the memory.
 *
 * Thread: any.
 * Memory: the caller's structs. */

#include "device/device_sampling.h"
#include "kernels/device.h"
#include "program/executor.h"
#include "program/kv_layout.h"
#include "program/plan_attention.h"

/* Of executor_limits.rows_max: more gain nothing on the fastest card. Steps have fewer where trials
 * say so (device_rows.h). */
#define DEVICE_ROWS_DEFAULT 2048u
/* Likewise of sequences_max: fewer, a multiple of 16, if the cache would have less than 512 tokens
 * per sequence, since their logits take its memory. */
#define DEVICE_SEQUENCES_DEFAULT 1024u
/* Tokens of one sequence that the cache has room for at least, or its whole context if that is
 * less. */
#define DEVICE_CACHE_TOKENS_LEAST 4096u

struct device_limits_options {
    const struct device_program *program;
    const struct kv_layout *layout;
    enum device_form kv_form;
    uint32_t steps_max;       /* 1 or 2; 0: 2 */
    uint32_t multiprocessors; /* device_info's */
    uint64_t memory_bytes;    /* that the device may take; 0: more than enough */
    struct executor_limits wanted;
};

struct device_limits device_limits_of(const struct device_limits_options *options);
/* The options of plan_attention within these limits, as far as they decide on sizes. */
struct plan_attention_options device_limits_plan(const struct device_limits_options *options,
                                                 const struct device_limits *limits);
/* The options of device_sampling within these limits. */
struct device_sampling_options device_limits_sampling(const struct device_program *program,
                                                      const struct device_limits *limits);
