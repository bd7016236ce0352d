/* SPDX-License-Identifier: Apache-2.0 */

/* Text to ids: special tokens are cut out; the text between is normalised and goes to the model. */

#include "base/utf8.h"
#include "tokenizer/normalize.h"
#include "tokenizer/tokenizer_internal.h"
#include "tokenizer/unicode.h"

#include <string.h>

/* The longest text. A piece without a break takes 36 bytes of scratch per byte. */
#define TEXT_BYTES_MAX (64u << 20)

static bool is_space(struct str text, size_t at) {
    uint32_t code_point;
    utf8_decode(text, at, &code_point);
    return unicode_class(code_point) == CHAR_SPACE;
}

static bool is_word(struct str text, size_t at) {
    uint32_t code_point;
    utf8_decode(text, at, &code_point);
    return unicode_bits(code_point) & CHAR_WORD;
}

/* Where the character before `at` begins; at > 0. */
static size_t step_back(struct str text, size_t at) {
    do at--;
    while (at > 0 && ((unsigned char)text.at[at] & 0xC0) == 0x80);
    return at;
}

/* Whether `at` is between characters: a token of half a character may match inside of one. */
static bool is_boundary(struct str text, size_t at) {
    return at == text.bytes || ((unsigned char)text.at[at] & 0xC0) != 0x80;
}

static bool touches_word(struct str text, const struct special_match *match) {
    if (match->start > 0 && is_word(text, step_back(text, match->start))) return true;
    return match->end < text.bytes && is_word(text, match->end);
}

/* A walk over the special tokens of one text. */
struct cutting {
    const struct tokenizer *tokenizer;
    struct str text;
    size_t from;      /* end of the encoded text */
    size_t space_end; /* all is white space from the last token that took its right up to here */
};

/* Widens a match by the white space that its token swallows. False when it must not match here. */
static bool fit_match(struct cutting *cutting, struct special_match *match) {
    struct str text = cutting->text;
    if (!is_boundary(text, match->start) || !is_boundary(text, match->end)) return false;
    uint8_t flags = cutting->tokenizer->vocab.flags[match->id];
    if ((flags & TOKEN_SINGLE_WORD) && touches_word(text, match)) return false;
    if (flags & TOKEN_TAKES_LEFT) {
        while (match->start > cutting->from && is_space(text, step_back(text, match->start)))
            match->start = step_back(text, match->start);
    }
    if (flags & TOKEN_TAKES_RIGHT) {
        if (cutting->space_end > match->end) match->end = cutting->space_end;
        uint32_t code_point;
        while (match->end < text.bytes && is_space(text, match->end))
            match->end += utf8_decode(text, match->end, &code_point);
        cutting->space_end = match->end;
    }
    return true;
}

/* Cuts `text` at the tokens of `set`: their ids are added, and the text between goes to `encode`.
 * As in Hugging Face tokenizers, white space that one token swallowed may still be a token. */
static void cut_specials(struct encoding *encoding, const struct special_set *set, struct str text,
                         struct text_ranges plain,
                         void (*encode)(struct encoding *encoding, struct str stretch)) {
    struct cutting cutting = {.tokenizer = encoding->tokenizer, .text = text};
    struct special_search search = {
        .text = text, .parse_special = encoding->parse_special, .plain = plain};
    struct special_match match;
    while (special_find(set, &search, &match)) {
        search.from = match.end;
        if (!fit_match(&cutting, &match)) continue;
        if (match.start > cutting.from)
            encode(encoding, (struct str){text.at + cutting.from, match.start - cutting.from});
        ids_add(encoding->ids, match.id);
        cutting.from = match.end;
    }
    if (cutting.from < text.bytes) encode(encoding, str_skip(text, cutting.from));
}

static void encode_normalized(struct encoding *encoding, struct str text,
                              struct text_ranges plain) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    cut_specials(encoding, &tokenizer->normalized_specials, text, plain, tokenizer->model->encode);
}

/* Appends from..to of the stretch, normalised. */
static void normalize_part(const struct encoding *encoding, struct str stretch, size_t from,
                           size_t to, struct buf *text) {
    bool is_first = stretch.at == encoding->start;
    enum stretch_place place = from > 0 || (is_first && encoding->continues) ? STRETCH_INSIDE
                               : is_first                                    ? STRETCH_FIRST
                                                                             : STRETCH_LATER;
    tokenizer_normalize(encoding->tokenizer, (struct str){stretch.at + from, to - from}, place,
                        text);
}

/* Where the plain bytes of a stretch lie in `normalized`, which is made of it: its parts are
 * normalised one by one. Where that gives another text, because characters were composed over a
 * border, all of it is plain. */
static struct text_ranges normalized_plain(struct encoding *encoding, struct str stretch,
                                           struct str normalized) {
    struct text_ranges plain = {0};
    struct buf parts;
    size_t start = (size_t)(stretch.at - encoding->start), at = 0;
    buf_init(&parts, BUF_UNLIMITED);
    const struct text_ranges *all = &encoding->plain;
    while (encoding->plain_at < all->count && all->at[encoding->plain_at].end <= start)
        encoding->plain_at++;
    for (size_t i = encoding->plain_at; i < all->count; i++) {
        struct text_range span = all->at[i];
        if (span.start >= start + stretch.bytes) break;
        size_t from = span.start > start ? span.start - start : 0;
        size_t to = span.end - start < stretch.bytes ? span.end - start : stretch.bytes;
        normalize_part(encoding, stretch, at, from, &parts);
        size_t begin = parts.bytes;
        normalize_part(encoding, stretch, from, to, &parts);
        text_ranges_add(&plain, begin, parts.bytes);
        at = to;
    }
    if (plain.count > 0) {
        normalize_part(encoding, stretch, at, stretch.bytes, &parts);
        if (!str_equals(buf_str(&parts), normalized)) {
            text_ranges_truncate(&plain, 0);
            text_ranges_add(&plain, 0, normalized.bytes);
        }
    }
    buf_release(&parts);
    return plain;
}

static void encode_raw(struct encoding *encoding, struct str stretch) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    bool has_more = tokenizer->normalized_specials.count > 0 && encoding->plain.count > 0;
    bool is_plain =
        !tokenizer_normalizes(tokenizer) && (!tokenizer->normalize_nfc || nfc_is_plain(stretch));
    if (is_plain && !has_more) {
        encode_normalized(encoding, stretch, (struct text_ranges){0});
        return;
    }
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    normalize_part(encoding, stretch, 0, stretch.bytes, &text);
    struct text_ranges plain = {0};
    if (has_more) plain = normalized_plain(encoding, stretch, buf_str(&text));
    const char *start = encoding->start;
    encoding->start = stretch.at == start ? text.at : NULL;
    encode_normalized(encoding, buf_str(&text), plain);
    encoding->start = start;
    text_ranges_release(&plain);
    buf_release(&text);
}

enum err tokenizer_encode(const struct tokenizer *tokenizer, struct str text,
                          struct encode_options options, struct ids *ids, struct error *error) {
    if (text.bytes > TEXT_BYTES_MAX)
        return err_set(error, ERR_LIMIT, "a text of %zu bytes is over the %u that are encoded",
                       text.bytes, TEXT_BYTES_MAX);
    size_t valid = utf8_valid_prefix(text);
    if (valid != text.bytes)
        return err_set(error, ERR_INVALID, "the text is not valid UTF-8 at byte %zu", valid);
    size_t start = ids->count;
    bool add_bos = options.add_bos && tokenizer->add_bos && tokenizer->bos != TOKEN_NONE;
    if (add_bos) ids_add(ids, tokenizer->bos);
    struct encoding encoding = {.tokenizer = tokenizer,
                                .ids = ids,
                                .parse_special = options.parse_special,
                                .continues = options.continues,
                                .start = text.at,
                                .scratch.bytes_max = options.scratch_bytes_max,
                                .unigram.bytes_max = options.scratch_bytes_max};
    if (options.plain) encoding.plain = *options.plain;
    buf_init(&encoding.spaced, BUF_UNLIMITED);
    cut_specials(&encoding, &tokenizer->specials, text, encoding.plain, encode_raw);
    size_t too_long = encoding.scratch.too_long_bytes;
    if (encoding.unigram.too_long_bytes > too_long) too_long = encoding.unigram.too_long_bytes;
    unigram_scratch_release(&encoding.unigram);
    bpe_scratch_release(&encoding.scratch);
    buf_release(&encoding.spaced);
    if (too_long > 0) {
        ids->count = start;
        return err_set(error, ERR_LIMIT, "%zu bytes without a break are too long to be encoded",
                       too_long);
    }
    /* The text wrote its own BOS: one of the two goes. */
    if (add_bos && ids->count > start + 1 && ids->at[start + 1] == tokenizer->bos) {
        ids->count--;
        memmove(ids->at + start, ids->at + start + 1, (ids->count - start) * sizeof *ids->at);
    }
    if (options.add_bos && tokenizer->add_eos && tokenizer->eos != TOKEN_NONE)
        ids_add(ids, tokenizer->eos);
    return OK;
}
