/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vocab_file: for tests only: the tokenizer of the known-good vocabulary files in shared/, the test
 * cases beside them, and whole files. Reads GGUF v3 just far enough; asserts instead of explaining.
 */

#include "tokenizer/tokenizer.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "$QUERN_SHARED/<name>", or the source tree's when `in_source`; the caller frees. */
static inline char *vocab_path(const char *variable, const char *name) {
    const char *root = getenv(variable);
    char *path = NULL;
    if (asprintf(&path, "%s/%s", root ? root : ".", name) < 0) abort();
    return path;
}

static inline bool vocab_path_exists(const char *variable, const char *name) {
    char *path = vocab_path(variable, name);
    bool exists = access(path, R_OK) == 0;
    free(path);
    return exists;
}

/* The whole file; the caller frees `at`. */
static inline struct str vocab_read(const char *variable, const char *name) {
    char *path = vocab_path(variable, name);
    FILE *file = fopen(path, "rb");
    if (!file) fprintf(stderr, "cannot open %s\n", path);
    assert(file);
    free(path);
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *at = malloc(bytes + 1);
    assert(at);
    size_t got = fread(at, 1, bytes, file);
    assert(got == bytes);
    at[bytes] = 0;
    fclose(file);
    return (struct str){at, bytes};
}

struct gguf_cursor {
    struct str file;
    size_t at;
};

static inline uint64_t gguf_number(struct gguf_cursor *cursor, size_t bytes) {
    uint64_t value = 0;
    assert(cursor->at + bytes <= cursor->file.bytes);
    memcpy(&value, cursor->file.at + cursor->at, bytes);
    cursor->at += bytes;
    return value;
}

static inline struct str gguf_string(struct gguf_cursor *cursor) {
    size_t bytes = gguf_number(cursor, 8);
    assert(bytes <= cursor->file.bytes - cursor->at);
    struct str text = {cursor->file.at + cursor->at, bytes};
    cursor->at += bytes;
    return text;
}

enum { GGUF_STRING = 8, GGUF_ARRAY = 9 };

static inline size_t gguf_type_bytes(uint64_t type) {
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    assert(type < sizeof bytes && bytes[type] > 0);
    return bytes[type];
}

/* A source with the memory behind it. */
struct vocab_file {
    struct str file;
    struct str *tokens;
    struct str *merges;
    uint8_t *kinds;
    float *scores;
    struct tokenizer_source source;
};

static inline struct str *gguf_strings(struct gguf_cursor *cursor, size_t count) {
    struct str *list = calloc(count + 1, sizeof *list);
    assert(list);
    for (size_t i = 0; i < count; i++) list[i] = gguf_string(cursor);
    return list;
}

static inline void vocab_file_array(struct vocab_file *vocab, struct gguf_cursor *cursor,
                                    struct str key) {
    uint64_t type = gguf_number(cursor, 4);
    size_t count = gguf_number(cursor, 8);
    if (type == GGUF_STRING) {
        struct str *list = gguf_strings(cursor, count);
        if (str_is(key, "tokenizer.ggml.tokens")) {
            vocab->source.tokens = vocab->tokens = list;
            vocab->source.token_count = count;
        } else if (str_is(key, "tokenizer.ggml.merges")) {
            vocab->source.merges = vocab->merges = list;
            vocab->source.merge_count = count;
        } else {
            free(list);
        }
        return;
    }
    bool is_kinds = str_is(key, "tokenizer.ggml.token_type");
    bool is_scores = str_is(key, "tokenizer.ggml.scores");
    if (is_kinds) vocab->source.kinds = vocab->kinds = calloc(count + 1, 1);
    if (is_scores) vocab->source.scores = vocab->scores = calloc(count + 1, sizeof *vocab->scores);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = gguf_number(cursor, gguf_type_bytes(type));
        if (is_kinds) vocab->kinds[i] = (uint8_t)value;
        if (is_scores) memcpy(&vocab->scores[i], &value, sizeof *vocab->scores);
    }
}

static inline void vocab_file_scalar(struct tokenizer_source *source, struct str key,
                                     uint64_t value) {
    if (str_is(key, "tokenizer.ggml.bos_token_id")) source->bos = (int32_t)value;
    if (str_is(key, "tokenizer.ggml.eos_token_id")) source->eos = (int32_t)value;
    if (str_is(key, "tokenizer.ggml.eot_token_id")) source->eot = (int32_t)value;
    if (str_is(key, "tokenizer.ggml.unknown_token_id")) source->unknown = (int32_t)value;
    if (str_is(key, "tokenizer.ggml.cls_token_id")) source->bos = (int32_t)value;
    if (str_is(key, "tokenizer.ggml.seperator_token_id")) source->eos = (int32_t)value;
    if (str_is(key, "tokenizer.ggml.add_space_prefix"))
        source->space_prefix = value ? SPACE_PREFIX_ALWAYS : SPACE_PREFIX_NONE;
    if (str_is(key, "tokenizer.ggml.padding_token_id")) source->padding = (int32_t)value;
    if (str_is(key, "tokenizer.ggml.add_bos_token")) source->add_bos = value != 0;
    if (str_is(key, "tokenizer.ggml.add_eos_token")) source->add_eos = value != 0;
}

/* Reads shared/<name>; vocab_file_close when the tokenizer is open. */
static inline struct vocab_file vocab_file_open(const char *name) {
    struct vocab_file vocab = {.file = vocab_read("QUERN_SHARED", name)};
    struct tokenizer_source *source = &vocab.source;
    source->bos = source->eos = source->eot = source->unknown = source->padding = TOKEN_NONE;
    struct gguf_cursor cursor = {vocab.file, 16};
    size_t key_count = gguf_number(&cursor, 8);
    bool says_bos = false;
    source->space_prefix = SPACE_PREFIX_ALWAYS; /* the default of a GGUF without the key */
    source->bert = tokenizer_bert_uncased();
    for (size_t i = 0; i < key_count; i++) {
        struct str key = gguf_string(&cursor);
        uint64_t type = gguf_number(&cursor, 4);
        says_bos = says_bos || str_is(key, "tokenizer.ggml.add_bos_token");
        if (type == GGUF_ARRAY) {
            vocab_file_array(&vocab, &cursor, key);
        } else if (type == GGUF_STRING) {
            struct str value = gguf_string(&cursor);
            if (str_is(key, "tokenizer.ggml.model")) source->model = value;
            if (str_is(key, "tokenizer.ggml.pre")) source->pre = value;
        } else {
            vocab_file_scalar(source, key, gguf_number(&cursor, gguf_type_bytes(type)));
        }
    }
    if (!says_bos) /* the format's default */
        source->add_bos = !str_is(source->model, "gpt2") || str_is(source->pre, "llama-bpe");
    return vocab;
}

static inline void vocab_file_close(struct vocab_file *vocab) {
    free((char *)(uintptr_t)vocab->file.at);
    free(vocab->tokens);
    free(vocab->merges);
    free(vocab->kinds);
    free(vocab->scores);
}

/* The tokenizer of shared/<name>. */
static inline struct tokenizer *vocab_tokenizer(const char *name) {
    struct vocab_file vocab = vocab_file_open(name);
    struct tokenizer *tokenizer = NULL;
    struct error error = {0};
    enum err err = tokenizer_open(&tokenizer, &vocab.source, &error);
    if (err != OK) fprintf(stderr, "%s: %s\n", name, error.text);
    assert(err == OK);
    vocab_file_close(&vocab);
    return tokenizer;
}
