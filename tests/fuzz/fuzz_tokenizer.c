/* SPDX-License-Identifier: Apache-2.0 */

/* An input that begins with '{' is a tokenizer.json; what it opens encodes the whole input. Any
 * other is a text behind one byte of options: ids of a small vocabulary must give it back, at once
 * and through a stream, when nothing is normalised. */

#include "../unit/tokenizer/small_vocab.h"
#include "tokenizer/stream.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode_back(const struct tokenizer *tokenizer, const struct ids *ids, struct str text) {
    struct buf bytes, streamed;
    buf_init(&bytes, 1u << 30);
    buf_init(&streamed, 1u << 30);
    struct token_stream stream = {0};
    for (size_t i = 0; i < ids->count; i++) {
        size_t before = bytes.bytes;
        tokenizer_decode(tokenizer, ids->at[i], true, &bytes);
        token_stream_feed(&stream, str_skip(buf_str(&bytes), before), &streamed);
    }
    token_stream_flush(&stream, &streamed);
    assert(str_equals(buf_str(&bytes), text));
    assert(str_equals(buf_str(&streamed), text));
    buf_release(&bytes);
    buf_release(&streamed);
}

static void try_text(uint8_t options, struct str text) {
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35"};
    static struct tokenizer *tokenizers[8];
    bool nfc = (options & 7) >= 5;
    struct tokenizer **tokenizer = &tokenizers[options & 7];
    if (!*tokenizer) {
        static struct small_vocab vocab;
        small_vocab_init(&vocab, pres[(options & 7) % 5]);
        vocab.source.normalize_nfc = nfc;
        vocab.source.add_bos = true;
        struct error error;
        if (tokenizer_open(tokenizer, &vocab.source, &error) != OK) abort();
    }
    struct ids ids = {0};
    struct encode_options encode = {.parse_special = options & 8, .add_bos = options & 16};
    struct error error;
    enum err err = tokenizer_encode(*tokenizer, text, encode, &ids, &error);
    assert((err == OK) == utf8_is_valid(text));
    if (err == OK && !nfc && !encode.add_bos) decode_back(*tokenizer, &ids, text);
    ids_release(&ids);
}

static void try_json(struct str text) {
    struct tokenizer *tokenizer;
    struct error error;
    if (tokenizer_open_json(&tokenizer, text, &error) != OK) return;
    struct ids ids = {0};
    struct encode_options encode = {.parse_special = true, .add_bos = true};
    if (tokenizer_encode(tokenizer, text, encode, &ids, &error) != OK) abort();
    for (size_t i = 0; i < ids.count; i++)
        assert(ids.at[i] >= 0 && (size_t)ids.at[i] < tokenizer_count(tokenizer));
    ids_release(&ids);
    tokenizer_close(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size > 0) memcpy(copy, data, size);
    struct str text = {copy, size};
    if (size > 0 && data[0] == '{')
        try_json(text);
    else if (size > 0)
        try_text(data[0], str_skip(text, 1));
    free(copy);
    return 0;
}
