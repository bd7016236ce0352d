/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/vocab.h"

#include <stdlib.h>

static uint8_t kind_of(const struct tokenizer_source *source, size_t id) {
    return source->kinds ? source->kinds[id] : TOKEN_NORMAL;
}

/* Two tokens of one spelling would leave it to chance which one a text becomes. */
static enum err check_spellings(const struct tokenizer_source *source, struct error *error) {
    struct table spellings;
    if (!table_open(&spellings, source->token_count))
        return err_set(error, ERR_LIMIT, "no memory for %zu tokens", source->token_count);
    enum err err = OK;
    for (size_t id = 0; id < source->token_count && err == OK; id++) {
        /* Holes in the numbering are unused tokens without a text. */
        if (source->tokens[id].bytes == 0) continue;
        int32_t other = table_add(&spellings, source->tokens, (int32_t)id);
        if (other >= 0)
            err = err_set(error, ERR_INVALID, "tokens %d and %zu are spelled the same", other, id);
    }
    table_close(&spellings);
    return err;
}

static enum err check_tokens(const struct tokenizer_source *source, size_t *ret_bytes,
                             struct error *error) {
    if (source->token_count == 0 || !source->tokens)
        return err_set(error, ERR_INVALID, "the vocabulary has no tokens");
    if (source->token_count > TOKENIZER_VOCAB_TOKENS_MAX)
        return err_set(error, ERR_INVALID, "the vocabulary has %zu tokens, over the limit of %u",
                       source->token_count, TOKENIZER_VOCAB_TOKENS_MAX);
    size_t bytes = 0;
    for (size_t id = 0; id < source->token_count; id++) {
        uint8_t kind = kind_of(source, id);
        if (kind < TOKEN_NORMAL || kind > TOKEN_BYTE)
            return err_set(error, ERR_INVALID, "token %zu has the unknown kind %u", id, kind);
        if (source->tokens[id].bytes > TOKENIZER_VOCAB_BYTES_MAX - bytes)
            return err_set(error, ERR_LIMIT, "the tokens have over %u bytes",
                           TOKENIZER_VOCAB_BYTES_MAX);
        bytes += source->tokens[id].bytes;
    }
    *ret_bytes = bytes;
    return check_spellings(source, error);
}

static void copy_tokens(struct tokenizer_vocab *vocab, const struct tokenizer_source *source,
                        tokenizer_vocab_decode_fn decode) {
    char *at = vocab->bytes;
    for (size_t id = 0; id < vocab->count; id++) {
        struct str spelled = source->tokens[id];
        uint8_t kind = kind_of(source, id);
        vocab->kinds[id] = kind;
        vocab->flags[id] = source->flags ? source->flags[id] : 0;
        size_t bytes = spelled.bytes;
        if (kind == TOKEN_NORMAL || kind == TOKEN_BYTE || kind == TOKEN_USER_DEFINED)
            bytes = decode(spelled, (enum token_kind)kind, at);
        else if (bytes > 0)
            memcpy(at, spelled.at, bytes);
        vocab->tokens[id] = (struct str){at, bytes};
        at += bytes;
    }
}

/* Which of two tokens of the same bytes is found by them. */
static int rank_of(const struct tokenizer_vocab *vocab, size_t id) {
    return vocab->kinds[id] == TOKEN_BYTE ? 0 : tokenizer_vocab_is_special(vocab, id) ? 2 : 1;
}

static void index_tokens(struct tokenizer_vocab *vocab) {
    for (size_t id = 0; id < vocab->count; id++) {
        if (vocab->tokens[id].bytes == 0) continue;
        int32_t other = table_add(&vocab->by_bytes, vocab->tokens, (int32_t)id);
        if (other >= 0 && rank_of(vocab, id) > rank_of(vocab, (size_t)other))
            table_replace(&vocab->by_bytes, vocab->tokens, (int32_t)id);
    }
}

enum err tokenizer_vocab_open(struct tokenizer_vocab *vocab, const struct tokenizer_source *source,
                              tokenizer_vocab_decode_fn decode, struct error *error) {
    size_t bytes = 0;
    enum err err = check_tokens(source, &bytes, error);
    if (err != OK) return err;
    struct tokenizer_vocab opened = {.count = source->token_count};
    opened.tokens = calloc(opened.count, sizeof *opened.tokens);
    opened.kinds = calloc(opened.count, 1);
    opened.flags = calloc(opened.count, 1);
    opened.bytes = malloc(bytes + 1);
    if (!opened.tokens || !opened.kinds || !opened.flags || !opened.bytes ||
        !table_open(&opened.by_bytes, opened.count)) {
        tokenizer_vocab_close(&opened);
        return err_set(error, ERR_LIMIT, "no memory for %zu tokens", source->token_count);
    }
    copy_tokens(&opened, source, decode);
    index_tokens(&opened);
    *vocab = opened;
    return OK;
}

void tokenizer_vocab_close(struct tokenizer_vocab *vocab) {
    table_close(&vocab->by_bytes);
    free(vocab->tokens);
    free(vocab->kinds);
    free(vocab->flags);
    free(vocab->bytes);
    *vocab = (struct tokenizer_vocab){0};
}
