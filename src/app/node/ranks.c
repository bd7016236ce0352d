/* SPDX-License-Identifier: Apache-2.0 */
#include "node/ranks.h"

#include "gpu/gpu_find.h"

#include <stdio.h>
#include <unistd.h>

/* GPUs of an engine. */
static uint32_t gpus_of(const struct engine_settings *settings) {
    const uint32_t gpus = settings->device.tensor_parallel_size;
    return gpus > 0 ? gpus : 1;
}

uint32_t ranks_count(const struct node_options *options) {
    if (options->data_parallel_size > 0) return options->data_parallel_size;
    const uint32_t each = gpus_of(&options->engine);
    unsigned gpus = str_is(options->engine.device.name, "cuda") ? gpu_find_count() / each : 0;
    if (gpus > RUNNER_WORKERS_MAX) gpus = RUNNER_WORKERS_MAX;
    return gpus > 1 ? gpus : 1;
}

struct engine_settings ranks_settings(const struct engine_settings *settings, uint32_t rank,
                                      uint32_t count, char ret_device[RANK_DEVICE_BYTES]) {
    struct engine_settings own = *settings;
    const struct wire_device *device = &settings->device;
    if (count == 1) return own;
    if (gpu_find_is_likely(device->name, device->plugin)) {
        /* With `auto` too: a rank that fell back to the CPU would hold up a batch of GPUs. */
        snprintf(ret_device, RANK_DEVICE_BYTES, "cuda:%u", rank * gpus_of(settings));
        own.device.name = str_from(ret_device);
    } else if (own.threads == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        own.threads = cores > (long)count ? (uint32_t)cores / count : 1;
    }
    return own;
}
