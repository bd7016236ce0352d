/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/ranked.h"

#include "tokenizer/bpe.h"
#include "tokenizer/vocab.h"

#include <assert.h>
#include <string.h>

enum err ranked_open(struct ranked *ranked, size_t count, struct error *error) {
    if (count > TOKENIZER_VOCAB_TOKENS_MAX)
        return err_set(error, ERR_LIMIT, "%zu tokens, over the limit of %u", count,
                       TOKENIZER_VOCAB_TOKENS_MAX);
    *ranked = (struct ranked){.source = {.model = STR("gpt2"),
                                         .token_count = count,
                                         .bos = TOKEN_NONE,
                                         .eos = TOKEN_NONE,
                                         .eot = TOKEN_NONE,
                                         .unknown = TOKEN_NONE,
                                         .padding = TOKEN_NONE,
                                         .kinds_are_exact = true,
                                         .merge_policy = MERGE_UNLESS_WHOLE}};
    arena_init(&ranked->arena, TOKENIZER_VOCAB_BYTES_MAX);
    ranked->tokens = arena_array(&ranked->arena, count, sizeof *ranked->tokens);
    ranked->kinds = arena_alloc(&ranked->arena, count);
    ranked->flags = arena_alloc(&ranked->arena, count);
    ranked->scores = arena_array(&ranked->arena, count, sizeof *ranked->scores);
    if (!ranked->tokens || !ranked->kinds || !ranked->flags || !ranked->scores) {
        arena_release(&ranked->arena);
        return err_set(error, ERR_LIMIT, "no memory for %zu tokens", count);
    }
    memset(ranked->kinds, TOKEN_UNUSED, count);
    return OK;
}

void ranked_close(struct ranked *ranked) {
    arena_release(&ranked->arena);
}

static enum err place(struct ranked *ranked, size_t id, struct str text, enum token_kind kind,
                      struct error *error) {
    if (id >= ranked->source.token_count)
        return err_set(error, ERR_INVALID, "token %zu is outside the %zu tokens", id,
                       ranked->source.token_count);
    if (text.bytes == 0) return err_set(error, ERR_INVALID, "token %zu has no bytes", id);
    if (ranked->kinds[id] != TOKEN_UNUSED)
        return err_set(error, ERR_INVALID, "token %zu is there twice", id);
    ranked->tokens[id] = text;
    ranked->kinds[id] = (uint8_t)kind;
    return OK;
}

enum err ranked_add(struct ranked *ranked, size_t id, size_t rank, struct str bytes,
                    struct error *error) {
    char *spelled = arena_alloc(&ranked->arena, 2 * bytes.bytes + 1);
    if (!spelled) return err_set(error, ERR_LIMIT, "no memory for token %zu", id);
    const size_t spelled_bytes = bpe_spell(bytes, spelled);
    enum err err = place(ranked, id, (struct str){spelled, spelled_bytes}, TOKEN_NORMAL, error);
    if (err != OK) return err;
    ranked->scores[id] = -(float)rank;
    if (bytes.bytes == 1) ranked->has_byte[(unsigned char)*bytes.at] = true;
    return OK;
}

enum err ranked_add_special(struct ranked *ranked, size_t id, struct str text, enum token_kind kind,
                            struct error *error) {
    assert(kind == TOKEN_CONTROL || kind == TOKEN_USER_DEFINED);
    const struct str copy = arena_copy(&ranked->arena, text);
    if (!copy.at) return err_set(error, ERR_LIMIT, "no memory for token %zu", id);
    enum err err = place(ranked, id, copy, kind, error);
    if (err == OK) ranked->flags[id] = TOKEN_ADDED;
    return err;
}

enum err ranked_finish(struct ranked *ranked, struct tokenizer **ret_tokenizer,
                       struct error *error) {
    for (size_t byte = 0; byte < 256; byte++)
        if (!ranked->has_byte[byte])
            return err_set(error, ERR_INVALID, "no token is the byte 0x%02zX", byte);
    ranked->source.tokens = ranked->tokens;
    ranked->source.kinds = ranked->kinds;
    ranked->source.flags = ranked->flags;
    ranked->source.scores = ranked->scores;
    return tokenizer_open(ret_tokenizer, &ranked->source, error);
}
