/* SPDX-License-Identifier: Apache-2.0 */

/* The kinds of models: how each reads its part of the source, and how it encodes a stretch. */

#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_internal.h"
#include "tokenizer/wordpiece.h"

#include <string.h>

/* --- byte-level BPE -------------------------------------------------------------------------- */

static enum err gpt2_open(struct tokenizer *tokenizer, const struct tokenizer_source *source,
                          struct error *error) {
    tokenizer->pre = pre_rules_find(source->pre);
    if (!tokenizer->pre)
        return err_set(error, ERR_INVALID, "the pre-tokenizer '%.*s' is not known",
                       STR_ARGS(source->pre));
    bool ignore_merges = tokenizer->pre->ignore_merges;
    if (source->merge_policy != MERGE_AS_PRE_SAYS)
        ignore_merges = source->merge_policy == MERGE_UNLESS_WHOLE;
    return bpe_open(&tokenizer->bpe, &tokenizer->vocab, source, BPE_BYTES,
                    ignore_merges ? BPE_WHOLE_ALL : BPE_WHOLE_MERGED, error);
}

static void gpt2_encode(struct encoding *encoding, struct str stretch) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    size_t at = 0;
    while (at < stretch.bytes) {
        size_t end = pre_piece_end(tokenizer->pre, stretch, at);
        bpe_encode(&tokenizer->bpe, (struct str){stretch.at + at, end - at}, &encoding->scratch,
                   encoding->ids);
        at = end;
    }
}

static size_t gpt2_decode(struct str spelled, enum token_kind kind, char *ret_bytes) {
    if (kind == TOKEN_NORMAL) return bpe_decode_spelling(spelled, ret_bytes);
    if (spelled.bytes > 0) memcpy(ret_bytes, spelled.at, spelled.bytes);
    return spelled.bytes;
}

/* --- SentencePiece --------------------------------------------------------------------------- */

static enum err llama_open(struct tokenizer *tokenizer, const struct tokenizer_source *source,
                           struct error *error) {
    if (!source->scores && source->merge_count == 0)
        return err_set(error, ERR_INVALID, "the vocabulary has neither scores nor merges");
    tokenizer->cuts_words = sentencepiece_cuts_words(source);
    enum bpe_whole whole = tokenizer->cuts_words ? BPE_WHOLE_MERGED : BPE_WHOLE_UNMARKED;
    if (source->merge_policy == MERGE_UNLESS_WHOLE) whole = BPE_WHOLE_ALL;
    return bpe_open(&tokenizer->bpe, &tokenizer->vocab, source, BPE_CHARACTERS, whole, error);
}

static bool llama_normalizes(const struct tokenizer *tokenizer) {
    return !tokenizer->spaces_late;
}

static void llama_normalize(const struct tokenizer *tokenizer, struct str stretch,
                            enum stretch_place place, struct buf *text) {
    enum space_prefix prefix =
        place == STRETCH_INSIDE ? SPACE_PREFIX_NONE : tokenizer->space_prefix;
    sentencepiece_escape(text, stretch, prefix, place == STRETCH_FIRST);
}

static void llama_encode(struct encoding *encoding, struct str stretch) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    if (tokenizer->spaces_late) {
        bool is_first = stretch.at == encoding->start;
        enum space_prefix prefix =
            is_first && encoding->continues ? SPACE_PREFIX_NONE : tokenizer->space_prefix;
        buf_clear(&encoding->spaced);
        sentencepiece_escape(&encoding->spaced, stretch, prefix, is_first);
        stretch = buf_str(&encoding->spaced);
    }
    for (size_t at = 0; at < stretch.bytes;) {
        size_t end = sentencepiece_piece_end(stretch, at, tokenizer->cuts_words);
        bpe_encode(&tokenizer->bpe, (struct str){stretch.at + at, end - at}, &encoding->scratch,
                   encoding->ids);
        at = end;
    }
}

/* --- WordPiece ------------------------------------------------------------------------------- */

static enum err bert_open(struct tokenizer *tokenizer, const struct tokenizer_source *source,
                          struct error *error) {
    (void)error;
    tokenizer->bert = source->bert;
    return OK;
}

static bool bert_normalizes(const struct tokenizer *tokenizer) {
    (void)tokenizer;
    return true;
}

static void bert_normalize(const struct tokenizer *tokenizer, struct str stretch,
                           enum stretch_place place, struct buf *text) {
    (void)place;
    wordpiece_normalize(text, stretch, &tokenizer->bert);
}

static void bert_encode(struct encoding *encoding, struct str stretch) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    wordpiece_encode(&tokenizer->vocab, stretch, tokenizer->unknown,
                     tokenizer->bert.word_characters_max, &encoding->spaced, encoding->ids);
}

static const struct model_kind known_models[] = {
    {"gpt2", gpt2_decode, gpt2_open, NULL, NULL, gpt2_encode},
    {"llama", sentencepiece_decode, llama_open, llama_normalizes, llama_normalize, llama_encode},
    {"bert", sentencepiece_decode, bert_open, bert_normalizes, bert_normalize, bert_encode},
};

const struct model_kind *model_kind_find(struct str name) {
    for (size_t i = 0; i < sizeof known_models / sizeof *known_models; i++)
        if (str_is(name, known_models[i].name)) return &known_models[i];
    return NULL;
}
