/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pretokenize: where the pieces of a text end, before the model sees them.
 *
 * Each rule set stands for the regular expression that the model was trained with; the matcher is
 * written by hand over the tables of unicode.h and agrees with Hugging Face tokenizers on every
 * text. Knows no vocabulary.
 *
 * Thread: any; the rules are constant.  Memory: none. */

#include "base/str.h"

/* The expressions, by their shape; `struct pre_rules` holds what varies within one. */
enum pre_shape {
    /* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
    PRE_SHAPE_GPT2,
    /* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
     * |\s*[\r\n]+|\s+(?!\S)|\s+ */
    PRE_SHAPE_LLAMA3,
    /* [\r\n], then \s?\p{L}+, then \s?\p{P}+, then [一-龥ࠀ-一가-퟿]+, then \p{N}: each
     * cuts what the ones before it left. */
    PRE_SHAPE_DEEPSEEK,
};

struct pre_rules {
    const char *name; /* as tokenizer.ggml.pre spells it */
    enum pre_shape shape;
    uint8_t digits_max;   /* numbers in one piece (PRE_SHAPE_LLAMA3) */
    bool digits_apart;    /* every number is cut out first, and the stretches between stand alone */
    bool signs_apart;     /* [\p{P}$+<=>^~|`]+ is cut out first, and [0-9][0-9][0-9] last */
    bool marks_as_letter; /* [\p{L}\p{M}] where the shape says \p{L} */
    bool ignore_merges;   /* a piece that is a token is that token, whatever the merges say */
};

/* NULL for a name that is not known. */
const struct pre_rules *pre_rules_find(struct str name);

/* The end of the piece that begins at text[from]; from < text.bytes and the text must be valid
 * UTF-8. Time is linear over a whole text. */
size_t pre_piece_end(const struct pre_rules *rules, struct str text, size_t from);
