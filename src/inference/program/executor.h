/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* executor: the computer of a decoder's steps: the CPU (cpu/executor_cpu.h) or a device
 * (gpu/executor_gpu.h).
 *
 * model/model.h opens files, configuration and layout, and describes the model; the rest is behind
 * this interface. It knows no file and no text.
 *
 * Thread: that of the scheduler (scheduler/backend.h).
 * Memory: an executor is its own until close. */

#include "program/memory_ledger.h"
#include "scheduler/backend.h"

#define EXECUTOR_PAGES_MAX (1u << 24) /* limit for backend_caps.page_count */

/* The limits that the caller wants; 0 is the executor's default. */
struct executor_limits {
    uint32_t rows_max;      /* rows of a step */
    uint32_t sequences_max; /* sequences of a step */
    uint32_t context_max;   /* positions of a sequence; never 0 */
    uint32_t block_count;   /* KV blocks, at most EXECUTOR_PAGES_MAX; 0: as many as fit kv_bytes */
    uint64_t kv_bytes;
    uint64_t state_bytes; /* memory for all states, in a model with recurrent layers */
};

struct executor_description {
    char name[96];       /* "avx512", or the name of the GPU */
    const char *kv_type; /* "F16", "BF16" */
    uint32_t threads;
    uint64_t kv_bytes_per_token;
    uint64_t kv_bytes;        /* when every page is in use */
    uint64_t state_bytes;     /* size of a sequence's state in recurrent layers; 0: there is none */
    uint64_t states_bytes;    /* when every state is in use */
    uint64_t workspace_bytes; /* memory of the host: buffers for a step and for sampling */
    struct memory_ledger ledger; /* memory on a device; all zero: a CPU */
};

struct executor_ops {
    const struct backend_ops *backend; /* called with the executor's self; its close is NULL */
    /* Runs `step`, which is no scheduler's, and gives the logits of its logit_rows, of which only
     * `row` is set: ret_logits (logit_count, caps.vocab). No other step is under way. */
    enum err (*logits)(void *self, const struct step *step, float *ret_logits, struct error *error);
    void (*describe)(const void *self, struct executor_description *ret_description);
    void (*close)(void *self);
};

struct executor {
    const struct executor_ops *ops;
    void *self;
    struct backend_caps caps; /* constant while open */
};
