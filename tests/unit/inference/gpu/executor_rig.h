/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* executor_rig: a tiny model, on the CPU or opened over a table of a GPU, for the tests here.
 *
 * Thread: one.
 * Memory: a rig owns everything until close_rig. */

#include "gpu/executor_gpu.h"
#include "gpu/gpu_fit.h"
#include "model/model.h"
#include "plain_gpu.h"
#include "weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MODELS 5u
extern const char *const models[MODELS];

/* A model on the CPU, in float32 as its definition, or on the GPU of the tests. */
struct rig {
    struct model *model; /* the CPU's */
    /* The GPU's. */
    struct gpu_info card;
    struct gpu *gpu;
    struct checkpoint *checkpoint;
    struct model_config config;
    struct kv_layout layout;
    struct pool *pool;
    struct gpu_store *store;
    struct weights *weights;
    struct executor own;
    /* Either. */
    const struct executor *executor;
    struct backend backend;
};

/* Fails the test with the error's sentence. */
void must(enum err err, const struct error *error);

/* The forms of products and of the KV cache, and whether experts lie in the host's memory. */
struct forms {
    enum gpu_form weights, kv;
    bool leaves_experts;
};

/* Opens the executor of a model, without its weights: `name` is one of `models`, or a folder's path
 * from the shared data on. limits->context_max 0: the context of the
 * model. */
enum err open_on(struct rig *rig, const struct gpu_table *table, const char *name,
                 const struct forms *forms, uint32_t steps_max, uint64_t memory_bytes,
                 const struct executor_limits *limits, struct error *error);
/* Opens a model on the CPU, and with its weights on a GPU in float32. */
void open_cpu(struct rig *rig, const char *name, const struct executor_limits *limits);
void open_gpu(struct rig *rig, const struct gpu_table *table, const char *name, uint32_t steps_max,
              const struct executor_limits *limits);
void close_rig(struct rig *rig);
