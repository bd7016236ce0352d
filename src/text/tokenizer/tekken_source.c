/* SPDX-License-Identifier: Apache-2.0 */

/* tokenizer_open_tekken: Mistral's tekken.json, which mistral-common reads.
 *
 *   config          pattern, version ("v3" …), default_vocab_size, default_num_special_tokens
 *   vocab           a list of {rank, token_bytes (base64)}, by rank
 *   special_tokens  a list of {rank, token_str}; absent in versions up to v7, which have names of
 *                   their own
 *
 * The special tokens have the first ids, the unnamed ones among them too; the rest of the
 * vocabulary's size are the first tokens of `vocab`. The file is read without a tree, since it has
 * a million values. */

#include "base/base64.h"
#include "json/span.h"
#include "tokenizer/json_source.h"
#include "tokenizer/ranked.h"
#include "tokenizer/vocab.h"

#include <stdio.h>

#define TOKEN_TEXT_BYTES_MAX 4096
#define BOS 1
#define EOS 2

/* The special tokens of files that name none. */
static const char *const first_specials[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};

struct tekken {
    struct ranked ranked;
    struct buf text;      /* scratch: a decoded string */
    size_t special_count; /* the first ids */
};

static enum err read_size(struct str config, const char *key, size_t *ret_size,
                          struct error *error) {
    uint64_t size;
    if (!str_to_u64(json_span_get(config, key), &size) || size > TOKENIZER_VOCAB_TOKENS_MAX)
        return err_set(error, ERR_INVALID, "config: %s is not a number up to %u", key,
                       TOKENIZER_VOCAB_TOKENS_MAX);
    *ret_size = (size_t)size;
    return OK;
}

/* The text of a member that is a string; false for any other. */
static bool read_text(struct tekken *tekken, struct str object, const char *key,
                      struct str *ret_text) {
    const struct str raw = json_span_get(object, key);
    if (!json_span_is_string(raw)) return false;
    buf_clear(&tekken->text);
    json_span_decode(&tekken->text, raw);
    *ret_text = buf_str(&tekken->text);
    return !tekken->text.overflowed;
}

static enum err read_special(struct tekken *tekken, struct str token, struct error *error) {
    uint64_t id;
    struct str text;
    if (!json_span_is_object(token) || !str_to_u64(json_span_get(token, "rank"), &id) ||
        id >= tekken->special_count || !read_text(tekken, token, "token_str", &text))
        return err_set(error, ERR_INVALID,
                       "special_tokens: one has no token_str, or no rank below %zu",
                       tekken->special_count);
    return ranked_add_special(&tekken->ranked, (size_t)id, text, TOKEN_CONTROL, error);
}

static enum err read_specials(struct tekken *tekken, struct str list, struct error *error) {
    struct json_span_iter iter;
    struct str token;
    enum err err = OK;
    const size_t first_count = sizeof first_specials / sizeof *first_specials;
    if (!list.at || str_is(list, "null")) {
        for (size_t id = 0; id < first_count && id < tekken->special_count && err == OK; id++)
            err = ranked_add_special(&tekken->ranked, id, str_from(first_specials[id]),
                                     TOKEN_CONTROL, error);
    } else if (*list.at != '[' || !json_span_enter(&iter, list)) {
        err = err_set(error, ERR_INVALID, "special_tokens is no list");
    } else {
        while (err == OK && json_span_element(&iter, &token))
            err = read_special(tekken, token, error);
    }
    for (size_t id = 0; id < tekken->special_count && err == OK; id++) {
        char name[32];
        if (tekken->ranked.kinds[id] != TOKEN_UNUSED) continue;
        snprintf(name, sizeof name, "<SPECIAL_%zu>", id);
        err = ranked_add_special(&tekken->ranked, id, str_from(name), TOKEN_CONTROL, error);
    }
    return err;
}

/* The tokens of `vocab` that have ids; those behind them are not used. */
static enum err read_vocab(struct tekken *tekken, struct str list, struct error *error) {
    struct json_span_iter iter;
    struct str token, text;
    const size_t count = tekken->ranked.source.token_count - tekken->special_count;
    size_t rank = 0;
    enum err err = OK;
    if (!list.at || *list.at != '[' || !json_span_enter(&iter, list))
        return err_set(error, ERR_INVALID, "vocab is no list");
    for (; rank < count && err == OK && json_span_element(&iter, &token); rank++) {
        uint64_t said;
        char bytes[TOKEN_TEXT_BYTES_MAX];
        size_t byte_count;
        if (!json_span_is_object(token) || !str_to_u64(json_span_get(token, "rank"), &said) ||
            said != rank || !read_text(tekken, token, "token_bytes", &text) ||
            !base64_read(text, bytes, sizeof bytes, &byte_count))
            return err_set(error, ERR_INVALID,
                           "vocab: token %zu has not its place as rank, and token_bytes in base64",
                           rank);
        err = ranked_add(&tekken->ranked, tekken->special_count + rank, rank,
                         (struct str){bytes, byte_count}, error);
    }
    return err == OK && rank < count
               ? err_set(error, ERR_INVALID,
                         "vocab has %zu tokens of the %zu that default_vocab_size asks for", rank,
                         count)
               : err;
}

/* False for a version above v7, whose files name their special tokens. */
static bool may_lack_specials(struct str version) {
    return json_span_string_is(version, "v1") || json_span_string_is(version, "v2") ||
           json_span_string_is(version, "v3") || json_span_string_is(version, "v7");
}

static enum err read_config(struct tekken *tekken, struct str file, struct error *error) {
    const struct str config = json_span_get(file, "config");
    const struct str specials = json_span_get(file, "special_tokens");
    size_t count = 0;
    struct str pattern;
    if (!json_span_is_object(config)) return err_set(error, ERR_INVALID, "config is no object");
    enum err err = read_size(config, "default_vocab_size", &count, error);
    if (err == OK)
        err = read_size(config, "default_num_special_tokens", &tekken->special_count, error);
    if (err != OK) return err;
    if (tekken->special_count <= EOS || tekken->special_count >= count)
        return err_set(error, ERR_INVALID,
                       "config: default_num_special_tokens %zu of default_vocab_size %zu",
                       tekken->special_count, count);
    if ((!specials.at || str_is(specials, "null")) &&
        !may_lack_specials(json_span_get(config, "version")))
        return err_set(error, ERR_INVALID, "special_tokens is missing");
    err = ranked_open(&tekken->ranked, count, error);
    if (err != OK) return err;
    const char *pre =
        read_text(tekken, config, "pattern", &pattern) ? json_split_pre(pattern) : NULL;
    if (!pre) return err_set(error, ERR_INVALID, "config: the pattern is not known");
    struct tokenizer_source *source = &tekken->ranked.source;
    source->pre = str_from(pre);
    source->bos = BOS;
    source->eos = EOS;
    source->add_bos = true;
    return OK;
}

enum err tokenizer_open_tekken(struct tokenizer **ret_tokenizer, struct str json,
                               struct error *error) {
    struct tekken tekken = {.special_count = 0};
    struct str file;
    enum err err = OK;
    buf_init(&tekken.text, 2 * TOKEN_TEXT_BYTES_MAX);
    if (!json_span_is_utf8(json) || !json_span_read(json, &file) || !json_span_is_object(file))
        err = err_set(error, ERR_INVALID, "it is no JSON object");
    if (err == OK) err = read_config(&tekken, file, error);
    if (err == OK) err = read_specials(&tekken, json_span_get(file, "special_tokens"), error);
    if (err == OK) err = read_vocab(&tekken, json_span_get(file, "vocab"), error);
    if (err == OK) err = ranked_finish(&tekken.ranked, ret_tokenizer, error);
    if (err != OK) err_prefix(error, "tekken.json");
    ranked_close(&tekken.ranked);
    buf_release(&tekken.text);
    return err;
}
