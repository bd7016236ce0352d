/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/inspect_verdict.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/tensors.h"

#include <assert.h>

/* In the families that have windows, every layer keeps the same number of bytes per token. */
static void take_windows(struct inspection *inspection, const struct model_config *config) {
    uint64_t far_layers = 0;
    assert(config->layers > 0);
    for (uint32_t i = 0; i < config->layers; i++)
        if (!config_layer_is_local(config, i)) far_layers++;
    inspection->window = config->window;
    inspection->kv_far_bytes_per_token =
        inspection->kv_bytes_per_token / config->layers * far_layers;
}

enum err inspect_verdict(struct inspection *inspection, const char *path, struct error *error) {
    struct checkpoint *checkpoint;
    const struct checkpoint_options options = {.dummy_weights = false};
    enum err err = checkpoint_open(&checkpoint, path, &options, error);
    if (err != OK) return err;
    const struct model_config *config = checkpoint_config(checkpoint);
    if (config->window > 0) take_windows(inspection, config);
    err = tensors_check(checkpoint, config, error);
    checkpoint_close(checkpoint);
    return err;
}
