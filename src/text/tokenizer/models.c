/* SPDX-License-Identifier: Apache-2.0 */

/* The kinds of models: how each reads its part of the source, and how it encodes a stretch. */

#include "base/utf8.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_internal.h"
#include "tokenizer/unicode.h"
#include "tokenizer/wordpiece.h"

#include <string.h>

#define SPACE "\xE2\x96\x81" /* U+2581 */

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

/* --- Unigram --------------------------------------------------------------------------------- */

static enum err t5_open(struct tokenizer *tokenizer, const struct tokenizer_source *source,
                        struct error *error) {
    enum err err = unigram_open(&tokenizer->unigram, &tokenizer->vocab, source, error);
    return err == OK && source->unigram.charsmap.bytes > 0
               ? charsmap_open(&tokenizer->charsmap, source->unigram.charsmap, error)
               : err;
}

static bool t5_normalizes(const struct tokenizer *tokenizer) {
    (void)tokenizer;
    return true;
}

static bool is_white(struct str text, size_t at) {
    uint32_t code_point;
    utf8_decode(text, at, &code_point);
    return unicode_class(code_point) == CHAR_SPACE;
}

/* As SentencePiece strips a text: U+0020 at both ends, and at the right U+2581, too. */
static struct str strip_spaces(struct str text) {
    while (text.bytes > 0 && *text.at == ' ') text = str_skip(text, 1);
    while (text.bytes > 0 && (text.at[text.bytes - 1] == ' ' || str_ends_with(text, STR(SPACE))))
        text.bytes -= text.at[text.bytes - 1] == ' ' ? 1 : strlen(SPACE);
    return text;
}

static struct str strip(const struct unigram_rules *rules, struct str text) {
    uint32_t code_point;
    if (rules->is_sentencepiece) return rules->strips_left ? strip_spaces(text) : text;
    while (rules->strips_left && text.bytes > 0 && is_white(text, 0))
        text = str_skip(text, utf8_decode(text, 0, &code_point));
    while (rules->strips_right && text.bytes > 0) {
        size_t last = text.bytes - 1;
        while (last > 0 && ((unsigned char)text.at[last] & 0xC0) == 0x80) last--;
        if (!is_white(text, last)) break;
        text.bytes = last;
    }
    return text;
}

/* A space is a space here, and no U+2581, as in the vocabulary. */
static void t5_normalize(const struct tokenizer *tokenizer, struct str stretch,
                         enum stretch_place place, struct buf *text) {
    const struct unigram_rules *rules = &tokenizer->unigram.rules;
    struct buf mapped;
    (void)place;
    buf_init(&mapped, BUF_UNLIMITED);
    if (rules->is_sentencepiece)
        charsmap_add_longest(&tokenizer->charsmap, &mapped, stretch);
    else
        charsmap_add(&tokenizer->charsmap, &mapped, stretch);
    const struct str from = strip(rules, buf_str(&mapped));
    bool was_space = false;
    for (size_t at = 0; at < from.bytes;) {
        const bool is_mark = str_starts_with(str_skip(from, at), STR(SPACE));
        const bool is_space = is_mark || from.at[at] == ' ';
        if (!is_space)
            buf_add_byte(text, from.at[at]);
        else if (!was_space || !rules->collapses || (is_mark && rules->is_sentencepiece))
            buf_add_byte(text, ' ');
        /* SentencePiece drops no space behind a U+2581 of the text. */
        was_space = is_space && !(is_mark && rules->is_sentencepiece);
        at += is_mark ? strlen(SPACE) : 1;
    }
    buf_release(&mapped);
}

/* A word with its space before it. */
static void encode_word(struct encoding *encoding, struct str word, bool has_prefix) {
    buf_clear(&encoding->spaced);
    if (has_prefix) buf_add_byte(&encoding->spaced, ' ');
    buf_add_str(&encoding->spaced, word);
    unigram_encode(&encoding->tokenizer->unigram, buf_str(&encoding->spaced), &encoding->unigram,
                   encoding->ids);
}

/* Words between white space, each with a space before it. */
static void encode_bare_words(struct encoding *encoding, struct str text, bool has_prefix) {
    uint32_t code_point;
    for (size_t at = 0; at < text.bytes;) {
        if (is_white(text, at)) {
            at += utf8_decode(text, at, &code_point);
            continue;
        }
        const size_t begin = at;
        while (at < text.bytes && !is_white(text, at)) at += utf8_decode(text, at, &code_point);
        encode_word(encoding, (struct str){text.at + begin, at - begin}, has_prefix);
    }
}

static void t5_encode(struct encoding *encoding, struct str stretch) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    const struct unigram_rules *rules = &tokenizer->unigram.rules;
    const bool is_first = stretch.at == encoding->start;
    const bool wants = tokenizer->space_prefix == SPACE_PREFIX_FIRST
                           ? is_first
                           : tokenizer->space_prefix != SPACE_PREFIX_NONE;
    const bool may_begin = !(is_first && encoding->continues);
    if (rules->drops_spaces) {
        encode_bare_words(encoding, stretch, wants && may_begin);
        return;
    }
    bool has_prefix = wants && may_begin && stretch.bytes > 0 &&
                      (tokenizer->space_prefix == SPACE_PREFIX_ALWAYS || stretch.at[0] != ' ');
    for (size_t at = 0; at < stretch.bytes; has_prefix = false) {
        size_t end = rules->is_whole ? SIZE_MAX : str_find_byte(stretch, ' ', at + 1);
        if (end == SIZE_MAX) end = stretch.bytes;
        encode_word(encoding, (struct str){stretch.at + at, end - at}, has_prefix);
        at = end;
    }
}

static const struct model_kind known_models[] = {
    {"gpt2", gpt2_decode, gpt2_open, NULL, NULL, gpt2_encode},
    {"llama", sentencepiece_decode, llama_open, llama_normalizes, llama_normalize, llama_encode},
    {"t5", sentencepiece_decode, t5_open, t5_normalizes, t5_normalize, t5_encode},
    {"bert", sentencepiece_decode, bert_open, bert_normalizes, bert_normalize, bert_encode},
};

const struct model_kind *model_kind_find(struct str name) {
    for (size_t i = 0; i < sizeof known_models / sizeof *known_models; i++)
        if (str_is(name, known_models[i].name)) return &known_models[i];
    return NULL;
}
