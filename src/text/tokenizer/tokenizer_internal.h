/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tokenizer_internal: the struct behind tokenizer.h, for tokenizer.c, which opens it, models.c,
 * which has the kinds of models, and encode.c, which turns text into ids. Only these include it.
 *
 * Thread: as tokenizer.h: immutable after tokenizer_open.
 * Memory: as tokenizer.h. A struct encoding belongs to one call. */

#include "tokenizer/bpe.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/special.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram.h"

#define TOKENIZER_ENDS_MAX 16

struct encoding;

/* The place of a stretch that is normalised. */
enum stretch_place {
    STRETCH_FIRST,  /* at the beginning of the text */
    STRETCH_LATER,  /* after a special token */
    STRETCH_INSIDE, /* directly after another stretch */
};

/* One kind of model (tokenizer.ggml.model). */
struct model_kind {
    const char *name;
    tokenizer_vocab_decode_fn decode; /* spelling of an ordinary token → bytes */
    enum err (*open)(struct tokenizer *tokenizer, const struct tokenizer_source *source,
                     struct error *error);
    /* True when normalising does more than form C, which any model may ask for. NULL: never. */
    bool (*normalizes)(const struct tokenizer *tokenizer);
    /* Appends the stretch in the model's form. */
    void (*normalize)(const struct tokenizer *tokenizer, struct str stretch,
                      enum stretch_place place, struct buf *text);
    /* Adds the ids of a normalised stretch without special tokens. */
    void (*encode)(struct encoding *encoding, struct str stretch);
};

struct tokenizer {
    const struct model_kind *model;
    struct tokenizer_vocab vocab;
    struct special_set specials;            /* looked for in the raw text */
    struct special_set normalized_specials; /* looked for in normalised text */
    const struct pre_rules *pre;
    struct bpe bpe;
    enum space_prefix space_prefix;
    bool spaces_late, cuts_words;
    struct bert_rules bert;
    struct unigram unigram;
    struct charsmap charsmap;
    int32_t bos, eos, unknown;
    bool add_bos, add_eos, normalize_nfc;
    int32_t ends[TOKENIZER_ENDS_MAX]; /* tokens that end a generation */
    size_t end_count;
};

/* One call of tokenizer_encode. */
struct encoding {
    const struct tokenizer *tokenizer;
    struct ids *ids;
    bool parse_special, continues;
    struct text_ranges plain; /* plain bytes of the text; borrowed */
    size_t plain_at;          /* the first span that is not behind the encoder */
    const char *start;        /* start of the text */
    struct bpe_scratch scratch;
    struct unigram_scratch unigram;
    struct buf spaced; /* scratch of models that write spaces in their own form */
};

/* NULL for an unknown name. */
const struct model_kind *model_kind_find(struct str name);

/* True when tokenizer_normalize may do more than form C. */
bool tokenizer_normalizes(const struct tokenizer *tokenizer);
/* Appends `text` (valid UTF-8) in the model's form. */
void tokenizer_normalize(const struct tokenizer *tokenizer, struct str text,
                         enum stretch_place place, struct buf *normalized);
