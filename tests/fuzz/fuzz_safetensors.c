/* SPDX-License-Identifier: Apache-2.0 */

/* A .safetensors file from a stranger: the container, and every byte that its tensors claim.
 *
 * The mutator spends its mutations on the header and puts the length before it right. */

#include "checkpoint/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    uint64_t header;
    if (size > LENGTH_BYTES) memcpy(&header, data, sizeof header);
    if (size <= LENGTH_BYTES || header > size - LENGTH_BYTES || seed % 8 == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    size_t tail = size - LENGTH_BYTES - (size_t)header;
    uint8_t *kept = malloc(tail + 1);
    if (!kept) abort();
    memcpy(kept, data + LENGTH_BYTES + header, tail);
    header = LLVMFuzzerMutate(data + LENGTH_BYTES, (size_t)header, max_size - LENGTH_BYTES - tail);
    memcpy(data, &header, sizeof header);
    memcpy(data + LENGTH_BYTES + header, kept, tail);
    free(kept);
    return LENGTH_BYTES + (size_t)header + tail;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (!copy) abort();
    if (size > 0) memcpy(copy, data, size);
    struct safetensors *file;
    struct error error = {0};
    enum err err = safetensors_open_bytes(&file, copy, size, &error);
    if (err == OK) {
        uint64_t bytes = 0;
        unsigned sum = 0;
        for (size_t i = 0; i < safetensors_tensor_count(file); i++) {
            const struct safetensors_tensor *tensor = safetensors_tensor_at(file, i);
            assert(safetensors_type_name(tensor->type));
            for (uint64_t at = 0; at < tensor->bytes; at++) sum += tensor->at[at];
            bytes += tensor->bytes;
        }
        assert(bytes <= size && sum <= 255 * size);
        safetensors_close(file);
    }
    /* A refusal is one sentence. */
    assert(err == OK || (error.text[0] != '\0' && !strchr(error.text, '\n')));
    free(copy);
    return 0;
}
