/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/tokenizer.h"

#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/special.h"
#include "tokenizer/unicode.h"
#include "tokenizer/wordpiece.h"

#include <assert.h>
#include <stdlib.h>

/* A piece without a break takes 36 bytes of scratch for each of its own. */
#define TEXT_BYTES_MAX (64u << 20)
#define ENDS_MAX 16

struct encoding;

/* One kind of model (tokenizer.ggml.model). */
struct model_kind {
    const char *name;
    vocab_decode_fn decode; /* spelling of an ordinary token → bytes */
    enum err (*open)(struct tokenizer *tokenizer, const struct tokenizer_source *source,
                     struct error *error);
    /* Whether normalising changes more than the form C that any model may ask for; NULL: never. */
    bool (*normalizes)(const struct tokenizer *tokenizer);
    /* Appends the stretch as the model wants it. */
    void (*normalize)(const struct tokenizer *tokenizer, struct str stretch, bool is_first,
                      struct buf *text);
    /* Ids of a stretch without special tokens, normalised. */
    void (*encode)(struct encoding *encoding, struct str stretch);
};

struct tokenizer {
    const struct model_kind *model;
    struct vocab vocab;
    struct special_set specials;            /* looked for in the raw text */
    struct special_set normalized_specials; /* looked for in normalised text */
    const struct pre_rules *pre;
    struct bpe bpe;
    enum space_prefix space_prefix;
    bool spaces_late, cuts_words;
    struct bert_rules bert;
    int32_t bos, eos, unknown;
    bool add_bos, add_eos, normalize_nfc;
    int32_t ends[ENDS_MAX]; /* tokens that end a generation */
    size_t end_count;
};

/* One call of tokenizer_encode. */
struct encoding {
    const struct tokenizer *tokenizer;
    struct ids *ids;
    bool parse_special;
    const char *start; /* of the text */
    struct bpe_scratch scratch;
    struct buf spaced; /* scratch of the models that write spaces their own way */
};

/* --- ids ------------------------------------------------------------------------------------- */

void ids_add(struct ids *ids, int32_t id) {
    if (ids->count == ids->capacity) {
        size_t capacity = ids->capacity ? ids->capacity * 2 : 64;
        int32_t *at = realloc(ids->at, capacity * sizeof *at);
        if (!at) abort();
        ids->at = at;
        ids->capacity = capacity;
    }
    ids->at[ids->count++] = id;
}

void ids_release(struct ids *ids) {
    free(ids->at);
    *ids = (struct ids){0};
}

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
    return bpe_open(&tokenizer->bpe, &tokenizer->vocab, source, BPE_BYTES, ignore_merges, error);
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
    return bpe_open(&tokenizer->bpe, &tokenizer->vocab, source, BPE_CHARACTERS,
                    source->merge_policy == MERGE_UNLESS_WHOLE, error);
}

static bool llama_normalizes(const struct tokenizer *tokenizer) {
    return !tokenizer->spaces_late;
}

static void llama_normalize(const struct tokenizer *tokenizer, struct str stretch, bool is_first,
                            struct buf *text) {
    sentencepiece_escape(text, stretch, tokenizer->space_prefix, is_first);
}

static void llama_encode(struct encoding *encoding, struct str stretch) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    if (tokenizer->spaces_late) {
        buf_clear(&encoding->spaced);
        sentencepiece_escape(&encoding->spaced, stretch, tokenizer->space_prefix,
                             stretch.at == encoding->start);
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

static void bert_normalize(const struct tokenizer *tokenizer, struct str stretch, bool is_first,
                           struct buf *text) {
    (void)is_first;
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

static const struct model_kind *model_find(struct str name) {
    for (size_t i = 0; i < sizeof known_models / sizeof *known_models; i++)
        if (str_is(name, known_models[i].name)) return &known_models[i];
    return NULL;
}

/* --- opening --------------------------------------------------------------------------------- */

struct bert_rules tokenizer_bert_uncased(void) {
    return (struct bert_rules){.cleans = true,
                               .spaces_chinese = true,
                               .strips_accents = true,
                               .lowercases = true,
                               .word_characters_max = BERT_WORD_CHARACTERS_MAX};
}

bool tokenizer_adds_bos_by_default(struct str model, struct str pre) {
    if (str_is(model, "llama") || str_is(model, "bert")) return true;
    const struct pre_rules *rules = str_is(model, "gpt2") ? pre_rules_find(pre) : NULL;
    return rules && rules->add_bos;
}

static enum err check_id(const struct tokenizer_source *source, const char *name, int32_t id,
                         struct error *error) {
    if (id == TOKEN_NONE || (id >= 0 && (size_t)id < source->token_count)) return OK;
    return err_set(error, ERR_INVALID, "the %s token %d is outside the %zu tokens", name, id,
                   source->token_count);
}

static enum err check_source(const struct tokenizer_source *source, struct error *error) {
    if (!model_find(source->model))
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
    assert(tokenizer->end_count < ENDS_MAX);
    tokenizer->ends[tokenizer->end_count++] = id;
}

/* llama.cpp's rule: the ids that the file names, and the spellings that models use for it. */
static void find_ends(struct tokenizer *tokenizer, const struct tokenizer_source *source) {
    static const char *const spellings[] = {
        "<|eot_id|>",    "<|im_end|>", "<|end|>",   "<|end_of_text|>",
        "<|endoftext|>", "<|eom_id|>", "<EOT>",     "<end_of_turn>",
        "<eos>",         "</s>",       "<|return|>"};
    _Static_assert(sizeof spellings / sizeof *spellings + 2 <= ENDS_MAX, "room for every end");
    add_end(tokenizer, source->eos);
    add_end(tokenizer, source->eot);
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        add_end(tokenizer, tokenizer_find(tokenizer, str_from(spellings[i])));
}

static bool normalizes(const struct tokenizer *tokenizer) {
    const struct model_kind *model = tokenizer->model;
    return model->normalizes && model->normalizes(tokenizer);
}

/* Appends `text` (valid UTF-8) as the model wants it. */
static void normalize(const struct tokenizer *tokenizer, struct str text, bool is_first,
                      struct buf *normalized) {
    struct buf composed;
    buf_init(&composed, SIZE_MAX / 2);
    if (tokenizer->normalize_nfc && !nfc_is_plain(text)) {
        nfc_add(&composed, text);
        text = buf_str(&composed);
    }
    if (normalizes(tokenizer))
        tokenizer->model->normalize(tokenizer, text, is_first, normalized);
    else
        buf_add_str(normalized, text);
    buf_release(&composed);
}

static enum err add_special(struct tokenizer *tokenizer, struct str spelled, size_t id,
                            struct error *error) {
    const struct vocab *vocab = &tokenizer->vocab;
    bool always = vocab->kinds[id] == TOKEN_USER_DEFINED;
    if (!(vocab->flags[id] & TOKEN_IN_NORMALIZED))
        return special_add(&tokenizer->specials, spelled, (int32_t)id, always, error);
    struct buf content;
    buf_init(&content, SIZE_MAX / 2);
    if (utf8_is_valid(spelled))
        normalize(tokenizer, spelled, false, &content);
    else
        buf_add_str(&content, spelled);
    enum err err =
        special_add(&tokenizer->normalized_specials, buf_str(&content), (int32_t)id, always, error);
    buf_release(&content);
    return err;
}

enum err tokenizer_open(struct tokenizer **ret_tokenizer, const struct tokenizer_source *source,
                        struct error *error) {
    enum err err = check_source(source, error);
    if (err != OK) return err;
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) return err_set(error, ERR_LIMIT, "no memory for a tokenizer");
    tokenizer->model = model_find(source->model);
    tokenizer->bos = source->bos;
    tokenizer->eos = source->eos;
    tokenizer->unknown = source->unknown;
    if (str_is(source->model, "llama")) tokenizer->space_prefix = source->space_prefix;
    tokenizer->spaces_late = source->spaces_late;
    tokenizer->add_bos = source->add_bos;
    tokenizer->add_eos = source->add_eos;
    tokenizer->normalize_nfc = source->normalize_nfc;
    special_init(&tokenizer->specials);
    special_init(&tokenizer->normalized_specials);
    err = vocab_open(&tokenizer->vocab, source, tokenizer->model->decode, error);
    if (err == OK) err = tokenizer->model->open(tokenizer, source, error);
    for (size_t id = 0; err == OK && id < tokenizer->vocab.count; id++)
        if (vocab_is_special(&tokenizer->vocab, id))
            err = add_special(tokenizer, source->tokens[id], id, error);
    if (err != OK) {
        tokenizer_close(tokenizer);
        return err;
    }
    find_ends(tokenizer, source);
    *ret_tokenizer = tokenizer;
    return OK;
}

void tokenizer_close(struct tokenizer *tokenizer) {
    if (!tokenizer) return;
    bpe_close(&tokenizer->bpe);
    special_release(&tokenizer->specials);
    special_release(&tokenizer->normalized_specials);
    vocab_close(&tokenizer->vocab);
    free(tokenizer);
}

/* --- encoding -------------------------------------------------------------------------------- */

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
    size_t from;      /* the end of what was encoded */
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

/* Cuts `text` at the tokens of `set`: their ids are added, what stands between goes to `encode`.
 * As in Hugging Face tokenizers, white space that one token swallowed may still be a token. */
static void cut_specials(struct encoding *encoding, const struct special_set *set, struct str text,
                         void (*encode)(struct encoding *encoding, struct str stretch)) {
    struct cutting cutting = {.tokenizer = encoding->tokenizer, .text = text};
    size_t search = 0;
    struct special_match match;
    while (special_find(set, text, search, encoding->parse_special, &match)) {
        search = match.end;
        if (!fit_match(&cutting, &match)) continue;
        if (match.start > cutting.from)
            encode(encoding, (struct str){text.at + cutting.from, match.start - cutting.from});
        ids_add(encoding->ids, match.id);
        cutting.from = match.end;
    }
    if (cutting.from < text.bytes) encode(encoding, str_skip(text, cutting.from));
}

static void encode_normalized(struct encoding *encoding, struct str text) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    cut_specials(encoding, &tokenizer->normalized_specials, text, tokenizer->model->encode);
}

static void encode_raw(struct encoding *encoding, struct str stretch) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    if (!normalizes(tokenizer) && (!tokenizer->normalize_nfc || nfc_is_plain(stretch))) {
        encode_normalized(encoding, stretch);
        return;
    }
    struct buf text;
    buf_init(&text, SIZE_MAX / 2);
    bool is_first = stretch.at == encoding->start;
    normalize(tokenizer, stretch, is_first, &text);
    if (is_first) encoding->start = text.at;
    encode_normalized(encoding, buf_str(&text));
    encoding->start = NULL;
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
                                .start = text.at};
    buf_init(&encoding.spaced, SIZE_MAX / 2);
    cut_specials(&encoding, &tokenizer->specials, text, encode_raw);
    bpe_scratch_release(&encoding.scratch);
    buf_release(&encoding.spaced);
    /* The text wrote its own BOS: one of the two goes. */
    if (add_bos && ids->count > start + 1 && ids->at[start + 1] == tokenizer->bos) {
        ids->count--;
        memmove(ids->at + start, ids->at + start + 1, (ids->count - start) * sizeof *ids->at);
    }
    if (options.add_bos && tokenizer->add_eos && tokenizer->eos != TOKEN_NONE)
        ids_add(ids, tokenizer->eos);
    return OK;
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
