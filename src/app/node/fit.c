/* SPDX-License-Identifier: Apache-2.0 */
#include "node/fit.h"

#include "gpu/gpu_find.h"
#include "node/ranks.h"

#include <stdio.h>
#include <unistd.h>

#define KV_BYTES_USUAL ((uint64_t)1 << 30) /* an engine's default */
#define KV_SEQUENCES 128                   /* sequences that it has room for at most */

uint64_t fit_memory_of(const struct shelf_model *model, const struct engine_settings *settings) {
    uint64_t kv_bytes = settings->kv_bytes ? settings->kv_bytes : KV_BYTES_USUAL;
    uint64_t most = model->token_bytes * model->foretold.context_tokens_max * KV_SEQUENCES;
    return model->needed_bytes + (most < kv_bytes ? most : kv_bytes);
}

bool fit_takes_whole_card(const struct engine_settings *engine) {
    const struct wire_device *card = &engine->device;
    return card->memory_share == 0 && card->memory_bytes == 0 &&
           gpu_find_is_likely(card->name, card->plugin);
}

uint64_t fit_machine_bytes(void) {
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool fit_is_too_large(const struct shelf_model *model, const struct engine_settings *settings,
                      char *ret_text, size_t text_bytes) {
    const double gib = 1 << 30;
    uint64_t memory = fit_machine_bytes();
    if (model->least_bytes <= memory || fit_takes_whole_card(settings)) return false;
    snprintf(ret_text, text_bytes,
             "model requires more system memory (%.1f GiB) than is available (%.1f GiB)",
             (double)model->least_bytes / gib, (double)memory / gib);
    return true;
}

/* The number of models that fit into three quarters of the memory, the largest together: their
 * files, and `extra_bytes` for each. At least one. */
static uint32_t models_that_fit(const uint64_t *model_bytes, size_t count, uint64_t extra_bytes,
                                uint64_t memory_bytes) {
    uint64_t left = memory_bytes / 4 * 3;
    bool is_counted[NODE_MODELS_MAX] = {false};
    for (uint32_t fit = 0; fit < count; fit++) {
        size_t largest = SIZE_MAX;
        for (size_t i = 0; i < count; i++)
            if (!is_counted[i] && (largest == SIZE_MAX || model_bytes[i] > model_bytes[largest]))
                largest = i;
        if (model_bytes[largest] > left || extra_bytes > left - model_bytes[largest])
            return fit > 0 ? fit : 1;
        left -= model_bytes[largest] + extra_bytes;
        is_counted[largest] = true;
    }
    return count > 0 ? (uint32_t)count : 1;
}

uint32_t fit_models_at_a_time(const struct node_options *options, const uint64_t *model_bytes,
                              size_t count) {
    const struct engine_settings *engine = &options->engine;
    if (options->loaded_models_max > 0) return options->loaded_models_max;
    if (fit_takes_whole_card(engine)) return 1;
    uint64_t kv_bytes = engine->kv_bytes ? engine->kv_bytes : KV_BYTES_USUAL;
    return models_that_fit(model_bytes, count, kv_bytes + ENGINE_OTHER_BYTES,
                           fit_machine_bytes() / ranks_count(options));
}
