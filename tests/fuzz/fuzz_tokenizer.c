/* SPDX-License-Identifier: Apache-2.0 */

/* An input that begins with '{' is a tokenizer.json, and a tekken.json as well; if it opens, it
 * encodes the whole input. One that begins with a line end is a tokenizer.model and a
 * sentencepiece.bpe.model; one that begins with '!', a tokenizer_config.json, a line end and the
 * lines of a tiktoken.model. Any other input is a text behind two bytes of options: ids of a small
 * vocabulary must give it back when nothing is normalised, and no control token may come out of
 * plain bytes. */

#include "../unit/text/tokenizer/small_vocab.h"

#include "base/utf8.h"
#include "json/span.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode_back(const struct tokenizer *tokenizer, const struct ids *ids, struct str text) {
    struct buf bytes;
    buf_init(&bytes, 1u << 30);
    for (size_t i = 0; i < ids->count; i++) tokenizer_decode(tokenizer, ids->at[i], true, &bytes);
    assert(str_equals(buf_str(&bytes), text));
    buf_release(&bytes);
}

/* Every control token lies where no byte is plain. */
static void check_plain(const struct tokenizer *tokenizer, const struct ids *ids,
                        const struct text_ranges *plain) {
    size_t at = 0, span = 0;
    for (size_t i = 0; i < ids->count; i++) {
        size_t end = at + tokenizer_bytes(tokenizer, ids->at[i]).bytes;
        while (span < plain->count && plain->at[span].end <= at) span++;
        if (tokenizer_kind(tokenizer, ids->at[i]) == TOKEN_CONTROL)
            assert(span == plain->count || plain->at[span].start >= end);
        at = end;
    }
}

static void try_text(uint8_t options, uint8_t stripes, struct str text) {
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
    struct text_ranges plain = {0};
    for (size_t at = stripes; stripes > 0 && at < text.bytes; at += 2 * (size_t)stripes)
        text_ranges_add(&plain, at, at + stripes);
    struct encode_options encode = {
        .parse_special = options & 8, .add_bos = options & 16, .plain = &plain};
    struct error error;
    enum err err = tokenizer_encode(*tokenizer, text, encode, &ids, &error);
    assert((err == OK) == utf8_is_valid(text));
    if (err == OK && !nfc && !encode.add_bos) {
        decode_back(*tokenizer, &ids, text);
        check_plain(*tokenizer, &ids, &plain);
    }
    text_ranges_release(&plain);
    ids_release(&ids);
}

/* Encodes a text with special tokens, if it is one. */
static void use(struct tokenizer *tokenizer, struct str text) {
    struct error error;
    struct ids ids = {0};
    struct encode_options encode = {.parse_special = true, .add_bos = true};
    enum err err = tokenizer_encode(tokenizer, text, encode, &ids, &error);
    assert((err == OK) == utf8_is_valid(text));
    for (size_t i = 0; i < ids.count; i++)
        assert(ids.at[i] >= 0 && (size_t)ids.at[i] < tokenizer_count(tokenizer));
    ids_release(&ids);
    tokenizer_close(tokenizer);
}

static void try_json(struct str text) {
    struct tokenizer *tokenizer;
    struct error error;
    if (tokenizer_open_json(&tokenizer, text, &error) == OK) use(tokenizer, text);
    if (tokenizer_open_tekken(&tokenizer, text, &error) == OK) use(tokenizer, text);
}

static void try_tiktoken(struct str text) {
    struct tokenizer *tokenizer;
    struct error error;
    const size_t end = str_find_byte(text, '\n', 0);
    struct str config = {text.at, end == SIZE_MAX ? text.bytes : end}, object = {NULL, 0};
    if (!json_span_is_utf8(config) || !json_span_read(config, &object)) object.at = NULL;
    if (!object.at || !json_span_is_object(object)) object = (struct str){NULL, 0};
    const struct str lines = str_skip(text, end == SIZE_MAX ? text.bytes : end + 1);
    if (tokenizer_open_tiktoken(&tokenizer, lines, object, &error) == OK) use(tokenizer, text);
}

/* The bytes are a tokenizer.model; what opens encodes its own first tokens. */
static void try_model(struct str model, bool is_fairseq) {
    struct tokenizer *tokenizer;
    struct error error;
    struct ids ids = {.at = NULL};
    enum err opened = is_fairseq ? tokenizer_open_fairseq(&tokenizer, model, &error)
                                 : tokenizer_open_model(&tokenizer, model, true, true, &error);
    if (opened != OK) return;
    for (int32_t id = 0; id < 8 && (size_t)id < tokenizer_count(tokenizer); id++) {
        enum err err = tokenizer_encode(tokenizer, tokenizer_bytes(tokenizer, id),
                                        (struct encode_options){.add_bos = true}, &ids, &error);
        assert(err == OK || err == ERR_INVALID);
    }
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
    else if (size > 0 && data[0] == '!')
        try_tiktoken(str_skip(text, 1));
    else if (size > 0 && data[0] == '\n')
        try_model(text, false), try_model(text, true);
    else if (size > 1)
        try_text(data[0], data[1], str_skip(text, 2));
    free(copy);
    return 0;
}
