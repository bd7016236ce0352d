/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* executor_rig: a tiny model, on the CPU or opened over a table of a device, for the tests here.
 *
 * Thread: one.
 * Memory: a rig owns everything until close_rig. */

#include "device/card_fit.h"
#include "device/executor_device.h"
#include "model/model.h"
#include "plain_device.h"
#include "weights/weights.h"

#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *const models[] = {"gemma3", "llama3", "mistral", "qwen2", "qwen3"};

/* A model on the CPU, in float32 as its definition, or on the device of the tests. */
struct rig {
    struct model *model; /* the CPU's */
    /* The device's. */
    struct device_info card;
    struct device *device;
    struct checkpoint *checkpoint;
    struct model_config config;
    struct kv_layout layout;
    struct pool *pool;
    struct device_store *store;
    struct weights *weights;
    struct executor own;
    /* Either. */
    const struct executor *executor;
    struct backend backend;
};

static void model_path(char *ret_path, size_t room, const char *name) {
    (void)snprintf(ret_path, room, "%s/tiny/%s/model-bf16.gguf", getenv("QUERN_SHARED"), name);
}

static void must(enum err err, const struct error *error) {
    if (err != OK) fail_msg("%s", error->text);
}

/* The forms of products and of the KV cache. */
struct forms {
    enum device_form weights, kv;
};

/* Opens the executor of a model. limits->context_max 0: the context of the model. */
static enum err open_on(struct rig *rig, const struct device_table *table, const char *name,
                        const struct forms *forms, uint32_t steps_max, uint64_t memory_bytes,
                        const struct executor_limits *limits, struct error *error) {
    char path[512];
    uint32_t count;
    *rig = (struct rig){0};
    model_path(path, sizeof path, name);
    must(table->list(&rig->card, 1, &count, error), error);
    rig->card.multiprocessors = CARD_FIT_MULTIPROCESSORS;
    must(table->open(&rig->device, &(struct device_options){.memory_bytes = memory_bytes}, error),
         error);
    must(checkpoint_open(&rig->checkpoint, path, &(struct checkpoint_options){0}, error), error);
    must(pool_open(&rig->pool, 2, error), error);
    rig->config = *checkpoint_config(rig->checkpoint);
    struct executor_limits own = *limits;
    if (own.context_max == 0) own.context_max = rig->config.context_max;
    rig->layout = kv_layout_of(&rig->config, own.context_max);
    rig->store = device_store_open(&(struct device_store_options){
        .table = table, .device = rig->device, .form = forms->weights});
    const struct weights_options weights = {.checkpoint = rig->checkpoint,
                                            .config = &rig->config,
                                            .store = device_store_interface(rig->store),
                                            .pool = rig->pool};
    must(weights_open(&rig->weights, &weights, error), error);
    const struct executor_device_options options = {
        .table = table,
        .device = rig->device,
        .card = &rig->card,
        .memory_bytes = memory_bytes,
        .store = rig->store,
        .config = &rig->config,
        .layout = &rig->layout,
        .weights = {.layers = rig->weights->layers,
                    .embedding = rig->weights->embedding,
                    .head = rig->weights->head,
                    .output_norm = rig->weights->output_norm},
        .kv_form = forms->kv,
        .steps_max = steps_max,
        .limits = own};
    return executor_device_open(&rig->own, &options, error);
}

static void close_rig(struct rig *rig) {
    model_close(rig->model);
    if (rig->own.ops) rig->own.ops->close(rig->own.self);
    device_store_close(rig->store);
    weights_close(rig->weights);
    pool_close(rig->pool);
    checkpoint_close(rig->checkpoint);
    if (rig->device) quern_device_table()->close(rig->device);
}
