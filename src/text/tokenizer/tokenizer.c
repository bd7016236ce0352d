/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/tokenizer.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/normalize.h"
#include "tokenizer/tokenizer_internal.h"

#include <assert.h>
#include <stdlib.h>

/* --- opening --------------------------------------------------------------------------------- */

struct bert_rules tokenizer_bert_uncased(void) {
    return (struct bert_rules){.cleans = true,
                               .spaces_chinese = true,
                               .strips_accents = true,
                               .lowercases = true,
                               .word_characters_max = BERT_WORD_CHARACTERS_MAX};
}

static enum err check_id(const struct tokenizer_source *source, const char *name, int32_t id,
                         struct error *error) {
    if (id == TOKEN_NONE || (id >= 0 && (size_t)id < source->token_count)) return OK;
    return err_set(error, ERR_INVALID, "the %s token %d is outside the %zu tokens", name, id,
                   source->token_count);
}

static enum err check_source(const struct tokenizer_source *source, struct error *error) {
    if (!model_kind_find(source->model))
        return err_set(error, ERR_INVALID, "the tokenizer model '%.*s' is not supported",
                       STR_ARGS(source->model));
    enum err err = check_id(source, "bos", source->bos, error);
    if (err == OK) err = check_id(source, "eos", source->eos, error);
    if (err == OK) err = check_id(source, "eot", source->eot, error);
    if (err == OK) err = check_id(source, "unknown", source->unknown, error);
    if (err == OK) err = check_id(source, "padding", source->padding, error);
    return err;
}

static void add_end(struct tokenizer *tokenizer, int32_t id) {
    if (id == TOKEN_NONE || tokenizer_is_end(tokenizer, id)) return;
    assert(tokenizer->end_count < TOKENIZER_ENDS_MAX);
    tokenizer->ends[tokenizer->end_count++] = id;
}

static void remove_end(struct tokenizer *tokenizer, int32_t id) {
    int32_t *ends = tokenizer->ends;
    for (size_t i = 0; i < tokenizer->end_count; i++)
        if (ends[i] == id) ends[i] = ends[--tokenizer->end_count];
}

/* llama.cpp's rule: the ids that the file names, and the spellings that models use for it. Where a
 * vocabulary has the ends of gpt-oss, <|return|> and <|call|>, its <|end|> is between two messages
 * of one answer. */
static void find_ends(struct tokenizer *tokenizer, const struct tokenizer_source *source) {
    static const char *const spellings[] = {
        "<|eot_id|>",    "<|im_end|>", "<|end|>",    "<|end_of_text|>",
        "<|endoftext|>", "<|eom_id|>", "<EOT>",      "<end_of_turn>",
        "<eos>",         "</s>",       "<|return|>", "<|call|>"};
    _Static_assert(sizeof spellings / sizeof *spellings + 2 <= TOKENIZER_ENDS_MAX,
                   "room for every end");
    add_end(tokenizer, source->eos);
    add_end(tokenizer, source->eot);
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        add_end(tokenizer, tokenizer_find(tokenizer, str_from(spellings[i])));
    bool has_messages = tokenizer_find(tokenizer, STR("<|call|>")) != TOKEN_NONE &&
                        tokenizer_find(tokenizer, STR("<|return|>")) != TOKEN_NONE;
    if (has_messages) remove_end(tokenizer, tokenizer_find(tokenizer, STR("<|end|>")));
}

bool tokenizer_normalizes(const struct tokenizer *tokenizer) {
    const struct model_kind *model = tokenizer->model;
    return model->normalizes && model->normalizes(tokenizer);
}

void tokenizer_normalize(const struct tokenizer *tokenizer, struct str text,
                         enum stretch_place place, struct buf *normalized) {
    struct buf composed;
    buf_init(&composed, BUF_UNLIMITED);
    if (tokenizer->normalize_nfc && !nfc_is_plain(text)) {
        nfc_add(&composed, text);
        text = buf_str(&composed);
    }
    if (tokenizer_normalizes(tokenizer))
        tokenizer->model->normalize(tokenizer, text, place, normalized);
    else
        buf_add_str(normalized, text);
    buf_release(&composed);
}

/* Files also list tokens that separate the turns of a chat as ordinary. */
static bool looks_like_control(struct str spelled) {
    return (spelled.bytes > 4 && str_starts_with(spelled, STR("<|")) &&
            str_ends_with(spelled, STR("|>"))) ||
           (str_starts_with(spelled, STR("<｜")) && str_ends_with(spelled, STR("｜>")));
}

static bool is_in_brackets(struct str spelled) {
    return (str_starts_with(spelled, STR("<")) && str_ends_with(spelled, STR(">"))) ||
           (str_starts_with(spelled, STR("[")) && str_ends_with(spelled, STR("]")));
}

/* True for a spelling without bars of a token that begins a text or separates turns. */
static bool is_mark_of_turns(struct str spelled) {
    static const char *const spellings[] = {"<s>",
                                            "<bos>",
                                            "<start_of_turn>",
                                            "[INST]",
                                            "[/INST]",
                                            "[TOOL_CALLS]",
                                            "[TOOL_RESULTS]",
                                            "[/TOOL_RESULTS]",
                                            "[SYSTEM_PROMPT]",
                                            "[/SYSTEM_PROMPT]",
                                            "[AVAILABLE_TOOLS]",
                                            "[/AVAILABLE_TOOLS]"};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (str_is(spelled, spellings[i])) return true;
    return false;
}

/* Converters have lost the kinds of tokens, so that a chat's marks were ordinary or unused: they
 * are control tokens all the same, in a prompt as at the end of an answer. A byte-level vocabulary
 * has words such as </s> of its own, which are control tokens only if the file names them. */
static void find_controls(struct tokenizer *tokenizer, const struct tokenizer_source *source) {
    struct tokenizer_vocab *vocab = &tokenizer->vocab;
    bool has_words = str_is(source->model, "gpt2");
    if (source->kinds_are_exact) return;
    for (size_t i = 0; i < vocab->count; i++) {
        if (vocab->kinds[i] != TOKEN_NORMAL && vocab->kinds[i] != TOKEN_UNUSED) continue;
        struct str spelled = source->tokens[i];
        int32_t id = (int32_t)i;
        bool is_named = id == source->bos || id == source->eos || id == source->eot;
        if (!has_words || vocab->kinds[i] == TOKEN_UNUSED)
            is_named = is_named || tokenizer_is_end(tokenizer, id) || is_mark_of_turns(spelled);
        if (looks_like_control(spelled) || (is_named && is_in_brackets(spelled)))
            vocab->kinds[i] = TOKEN_CONTROL;
    }
}

static enum err add_special(struct tokenizer *tokenizer, struct str spelled, size_t id,
                            struct error *error) {
    const struct tokenizer_vocab *vocab = &tokenizer->vocab;
    enum special_rule rule = SPECIAL_ON_REQUEST;
    if (vocab->kinds[id] == TOKEN_USER_DEFINED)
        rule = looks_like_control(spelled) || tokenizer_is_end(tokenizer, (int32_t)id)
                   ? SPECIAL_UNLESS_PLAIN
                   : SPECIAL_ALWAYS;
    if (!(vocab->flags[id] & TOKEN_IN_NORMALIZED))
        return special_add(&tokenizer->specials, spelled, (int32_t)id, rule, error);
    struct buf content;
    buf_init(&content, BUF_UNLIMITED);
    if (utf8_is_valid(spelled))
        tokenizer_normalize(tokenizer, spelled, STRETCH_LATER, &content);
    else
        buf_add_str(&content, spelled);
    enum err err =
        special_add(&tokenizer->normalized_specials, buf_str(&content), (int32_t)id, rule, error);
    buf_release(&content);
    return err;
}

enum err tokenizer_open(struct tokenizer **ret_tokenizer, const struct tokenizer_source *source,
                        struct error *error) {
    enum err err = check_source(source, error);
    if (err != OK) return err;
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) return err_set(error, ERR_LIMIT, "no memory for a tokenizer");
    tokenizer->model = model_kind_find(source->model);
    tokenizer->bos = source->bos;
    tokenizer->eos = source->eos;
    tokenizer->unknown = source->unknown;
    if (str_is(source->model, "llama") || str_is(source->model, "t5"))
        tokenizer->space_prefix = source->space_prefix;
    tokenizer->spaces_late = source->spaces_late;
    tokenizer->add_bos = source->add_bos;
    tokenizer->add_eos = source->add_eos;
    tokenizer->normalize_nfc = source->normalize_nfc;
    special_init(&tokenizer->specials);
    special_init(&tokenizer->normalized_specials);
    err = tokenizer_vocab_open(&tokenizer->vocab, source, tokenizer->model->decode, error);
    if (err == OK) {
        find_ends(tokenizer, source);
        find_controls(tokenizer, source);
        err = tokenizer->model->open(tokenizer, source, error);
    }
    for (size_t id = 0; err == OK && id < tokenizer->vocab.count; id++)
        if (tokenizer_vocab_is_special(&tokenizer->vocab, id))
            err = add_special(tokenizer, source->tokens[id], id, error);
    if (err != OK) {
        tokenizer_close(tokenizer);
        return err;
    }
    *ret_tokenizer = tokenizer;
    return OK;
}

void tokenizer_close(struct tokenizer *tokenizer) {
    if (!tokenizer) return;
    bpe_close(&tokenizer->bpe);
    unigram_close(&tokenizer->unigram);
    charsmap_close(&tokenizer->charsmap);
    special_release(&tokenizer->specials);
    special_release(&tokenizer->normalized_specials);
    tokenizer_vocab_close(&tokenizer->vocab);
    free(tokenizer);
}

/* --- decoding and questions ------------------------------------------------------------------ */

static bool is_token(const struct tokenizer *tokenizer, int32_t id) {
    return id >= 0 && (size_t)id < tokenizer->vocab.count;
}

void tokenizer_decode(const struct tokenizer *tokenizer, int32_t id, bool show_special,
                      struct buf *buf) {
    switch (tokenizer_kind(tokenizer, id)) {
    case TOKEN_UNUSED: return;
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
        if (!show_special) return;
        break;
    case TOKEN_NORMAL:
    case TOKEN_USER_DEFINED:
    case TOKEN_BYTE: break;
    }
    buf_add_str(buf, tokenizer_bytes(tokenizer, id));
}

void tokenizer_decode_text(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                           bool show_special, struct buf *buf) {
    bool has_own = tokenizer->space_prefix != SPACE_PREFIX_NONE;
    for (size_t i = 0; i < count; i++) {
        struct str bytes = tokenizer_bytes(tokenizer, ids[i]);
        enum token_kind kind = tokenizer_kind(tokenizer, ids[i]);
        bool is_first = i == 0 || (i == 1 && ids[0] == tokenizer->bos);
        if (has_own && is_first && kind == TOKEN_NORMAL && bytes.bytes > 0 && *bytes.at == ' ')
            buf_add_str(buf, str_skip(bytes, 1));
        else
            tokenizer_decode(tokenizer, ids[i], show_special, buf);
    }
}

struct str tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id) {
    return is_token(tokenizer, id) ? tokenizer->vocab.tokens[id] : (struct str){0};
}

size_t tokenizer_count(const struct tokenizer *tokenizer) {
    return tokenizer->vocab.count;
}

enum token_kind tokenizer_kind(const struct tokenizer *tokenizer, int32_t id) {
    return is_token(tokenizer, id) ? (enum token_kind)tokenizer->vocab.kinds[id] : TOKEN_UNUSED;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer) {
    return tokenizer->bos;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer) {
    return tokenizer->eos;
}

bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id) {
    for (size_t i = 0; i < tokenizer->end_count; i++)
        if (tokenizer->ends[i] == id) return true;
    return false;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, struct str text) {
    if (text.bytes == 0) return TOKEN_NONE;
    return table_find(&tokenizer->vocab.by_bytes, tokenizer->vocab.tokens, text);
}
