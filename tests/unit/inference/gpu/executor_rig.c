/* SPDX-License-Identifier: Apache-2.0 */
#include "executor_rig.h"

#include "model/model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPU_BYTES ((uint64_t)2 << 30)

const char *const models[MODELS] = {"gemma3", "llama3", "mistral", "qwen2", "qwen3"};

/* Skips the test where the data of other implementations are not. */
/* A name with a slash is the path of a folder. */
static void model_path(char *ret_path, size_t room, const char *name) {
    const bool is_folder = strchr(name, '/');
    (void)snprintf(ret_path, room, "%s/%s%s%s", getenv("QUERN_SHARED"), is_folder ? "" : "tiny/",
                   name, is_folder ? "" : "/model-bf16.gguf");
    if (access(ret_path, R_OK) != 0) skip();
}

void must(enum err err, const struct error *error) {
    if (err != OK) fail_msg("%s", error->text);
}

enum err open_on(struct rig *rig, const struct gpu_table *table, const char *name,
                 const struct forms *forms, uint32_t steps_max, uint64_t memory_bytes,
                 const struct executor_limits *limits, struct error *error) {
    char path[512];
    uint32_t count;
    *rig = (struct rig){0};
    model_path(path, sizeof path, name);
    must(table->list(&rig->card, 1, &count, error), error);
    rig->card.multiprocessors = CARD_FIT_MULTIPROCESSORS;
    must(table->open(&rig->gpu, &(struct gpu_options){.memory_bytes = memory_bytes}, error), error);
    must(checkpoint_open(&rig->checkpoint, path, &(struct checkpoint_options){0}, error), error);
    must(pool_open(&rig->pool, 2, error), error);
    rig->config = *checkpoint_config(rig->checkpoint);
    struct executor_limits own = *limits;
    if (own.context_max == 0) own.context_max = rig->config.context_max;
    rig->layout = kv_layout_of(&rig->config, own.context_max);
    rig->store = gpu_store_open(
        &(struct gpu_store_options){.table = table, .gpu = rig->gpu, .form = forms->weights});
    const struct weights_options weights = {.checkpoint = rig->checkpoint,
                                            .config = &rig->config,
                                            .store = gpu_store_interface(rig->store),
                                            .pool = rig->pool};
    must(weights_open(&rig->weights, &weights, error), error);
    const struct executor_gpu_options options = {
        .table = table,
        .gpu = rig->gpu,
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
        .leaves_experts = forms->leaves_experts,
        .steps_max = steps_max,
        .limits = own};
    return executor_gpu_open(&rig->own, &options, error);
}

void open_cpu(struct rig *rig, const char *name, const struct executor_limits *limits) {
    char path[512];
    struct error error;
    const struct model_options options = {.reference = true,
                                          .threads = 2,
                                          .block_count = limits->block_count,
                                          .rows_max = limits->rows_max,
                                          .sequences_max = limits->sequences_max,
                                          .context_max = limits->context_max};
    *rig = (struct rig){0};
    model_path(path, sizeof path, name);
    must(model_open(&rig->model, path, &options, &error), &error);
    rig->executor = &rig->model->executor;
    rig->backend = *model_backend(rig->model);
}

void open_gpu(struct rig *rig, const struct gpu_table *table, const char *name, uint32_t steps_max,
              const struct executor_limits *limits) {
    static const struct forms forms = {GPU_F32, GPU_F32, false};
    struct error error;
    must(open_on(rig, table, name, &forms, steps_max, GPU_BYTES, limits, &error), &error);
    must(weights_fill(rig->weights, &error), &error);
    rig->executor = &rig->own;
    rig->backend = (struct backend){
        .ops = rig->own.ops->backend, .self = rig->own.self, .caps = rig->own.caps};
}

void close_rig(struct rig *rig) {
    model_close(rig->model);
    if (rig->own.ops) rig->own.ops->close(rig->own.self);
    gpu_store_close(rig->store);
    weights_close(rig->weights);
    pool_close(rig->pool);
    checkpoint_close(rig->checkpoint);
    if (rig->gpu) quern_gpu_table()->close(rig->gpu);
}
