/* SPDX-License-Identifier: Apache-2.0 */

/* A folder from a stranger: the first line is its config.json, the rest its .safetensors. What is a
 * sound model is unpacked, packed, and run for one step over two tokens. */

#include "model/forward.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RUN_WEIGHTS_MAX ((uint64_t)1 << 18) /* larger models are checked but not run */

static void step(struct forward *forward, const struct model_config *config) {
    static const uint32_t block = 0, positions[2] = {0, 1}, last = 1;
    int32_t tokens[2] = {0, (int32_t)config->token_count - 1};
    struct step_sequence sequence = {.row_count = 2, .block_count = 1, .blocks = &block};
    forward_run(forward,
                &(struct step){.row_count = 2,
                               .sequence_count = 1,
                               .tokens = tokens,
                               .positions = positions,
                               .sequences = &sequence},
                &last, 1);
    (void)forward_logits(forward, 0, 1);
}

static void run(const struct checkpoint *checkpoint) {
    struct error error = {0};
    struct pool *pool;
    struct weights *weights;
    struct forward *forward;
    const struct kernels *kernels = kernels_choose("ref");
    const struct model_config *config = checkpoint_config(checkpoint);
    if (pool_open(&pool, 1, &error) != OK) abort();
    if (weights_open(&weights, checkpoint, config, kernels, pool, &error) == OK) {
        struct forward_options options = {.config = config,
                                          .weights = weights,
                                          .kernels = kernels,
                                          .pool = pool,
                                          .rows_max = 2,
                                          .logit_rows_max = 1,
                                          .block_count = 1};
        if (forward_open(&forward, &options, &error) != OK) abort();
        step(forward, config);
        forward_close(forward);
        weights_close(weights);
    }
    pool_close(pool);
}

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
        err = weights_check(checkpoint, config, &error);
        if (err == OK && config_parameter_count(config, false) <= RUN_WEIGHTS_MAX) run(checkpoint);
        checkpoint_close(checkpoint);
    }
    /* A refusal is one sentence. */
    assert(err == OK || (error.text[0] != '\0' && !strchr(error.text, '\n')));
    free(copy);
    return 0;
}
