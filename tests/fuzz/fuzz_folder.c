/* SPDX-License-Identifier: Apache-2.0 */

/* A folder from a stranger: the first line is its config.json, the rest its .safetensors. What is a
 * sound model is unpacked, packed, and run for one step over two tokens. */

#include "model_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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
        err = weights_check(checkpoint, config, &error);
        if (err == OK && config_parameter_count(config, false) <= RUN_WEIGHTS_MAX)
            model_run(checkpoint, config);
        checkpoint_close(checkpoint);
    }
    /* A refusal is one sentence. */
    assert(err == OK || (error.text[0] != '\0' && !strchr(error.text, '\n')));
    free(copy);
    return 0;
}
