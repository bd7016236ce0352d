/* SPDX-License-Identifier: Apache-2.0 */

/* A model file from a stranger: the container, the vocabulary, the config, the set of tensors, and,
 * for what passes all that, packing the weights and one run over two tokens.
 *
 * The mutator spends its mutations on the descriptions, not on the weights behind them, and puts
 * the magic and a version back. */

#include "checkpoint/vocab.h"
#include "model_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define DESCRIPTION_BYTES ((size_t)2100) /* bytes of a model of the corpus */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RUN_BYTES_MAX ((size_t)64 * 1024) /* larger files are checked but not run */

/* Mutates the first `head` bytes and keeps the bytes behind them. */
static size_t mutate_head(uint8_t *data, size_t size, size_t head, size_t max_size) {
    size_t tail = size - head;
    uint8_t *kept = malloc(tail);
    if (!kept) abort();
    memcpy(kept, data + head, tail);
    head = LLVMFuzzerMutate(data, head, max_size - tail);
    memcpy(data + head, kept, tail);
    free(kept);
    return head + tail;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    if (size > DESCRIPTION_BYTES && size <= max_size && seed % 8 != 0)
        size = mutate_head(data, size, DESCRIPTION_BYTES, max_size);
    else
        size = LLVMFuzzerMutate(data, size, max_size);
    if (size < 24 || seed % 64 == 0) return size;
    memcpy(data, "GGUF\3\0\0\0", 8);
    if (seed % 16 == 1) data[4] = 2;
    /* Counts that the file could hold: high bytes are almost never of use. */
    memset(data + 10, 0, 6);
    memset(data + 18, 0, 6);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (!copy) abort();
    if (size > 0) memcpy(copy, data, size);
    struct gguf *gguf;
    struct checkpoint_vocab vocab;
    struct model_config config;
    struct error error = {0};
    enum err err = gguf_open_bytes(&gguf, copy, size, &error);
    if (err == OK) {
        err = checkpoint_vocab_init(&vocab, gguf, &error);
        if (err == OK) {
            err = config_init(&config, gguf, vocab.token_count, &error);
            struct checkpoint *checkpoint = NULL;
            if (err == OK) err = checkpoint_of_gguf(&checkpoint, gguf, &error);
            if (err == OK) err = tensors_check(checkpoint, &config, &error);
            if (err == OK && size <= RUN_BYTES_MAX) model_run(checkpoint, &config);
            checkpoint_close(checkpoint);
            checkpoint_vocab_release(&vocab);
        }
        gguf_close(gguf);
    }
    /* A refusal is one sentence. */
    assert(err == OK || (error.text[0] != '\0' && !strchr(error.text, '\n')));
    free(copy);
    return 0;
}
