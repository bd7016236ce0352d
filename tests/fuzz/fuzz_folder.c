/* SPDX-License-Identifier: Apache-2.0 */

/* A hostile folder: the first line is its config.json, the rest its .safetensors. A sound model is
 * unpacked, tiled, and run for one step over two tokens. */

#include "model_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* How many weights a decoder or encoder of this config has, with a head of its own. */
static uint64_t count_weights(const struct model_config *config) {
    uint64_t head_rows = (uint64_t)(config->heads * 2 + config->kv_heads * 2) * config->head_dim;
    bool is_gated = !config->architecture->is_encoder || config->architecture->is_rotary_encoder;
    uint64_t ffn_matrices = is_gated ? 3 : 2;
    uint64_t layer = config->width * (head_rows + ffn_matrices * config->ffn);
    return layer * config->layers + (uint64_t)config->vocab_rows * config->width * 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RUN_WEIGHTS_MAX ((uint64_t)1 << 18) /* larger models are checked but not run */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    if (!line) return 0;
    size_t config_bytes = (size_t)(line - data), rest = size - config_bytes - 1;
    uint8_t *copy = malloc(rest > 0 ? rest : 1);
    if (!copy) abort();
    if (rest > 0) memcpy(copy, line + 1, rest);
    struct checkpoint *checkpoint;
    struct error error = {0};
    enum err err = checkpoint_open_bytes(
        &checkpoint, (struct str){(const char *)data, config_bytes}, copy, rest, &error);
    if (err == OK) {
        const struct model_config *config = checkpoint_config(checkpoint);
        err = tensors_check(checkpoint, config, &error);
        if (err == OK && count_weights(config) <= RUN_WEIGHTS_MAX) model_run(checkpoint, config);
        checkpoint_close(checkpoint);
    }
    /* A refusal is one sentence. */
    assert(err == OK || (error.text[0] != '\0' && !strchr(error.text, '\n')));
    free(copy);
    return 0;
}
