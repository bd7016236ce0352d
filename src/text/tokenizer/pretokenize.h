/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pretokenize: where the pieces of a text end, before the model sees them.
 *
 * Each rule set stands for the regular expression that the model was trained with. The matcher is
 * written by hand over the tables of unicode.h, and agrees with Hugging Face tokenizers on every
 * text. It knows no vocabulary.
 *
 * Thread: any; the rules are constant.
 * Memory: none. */

#include "base/str.h"

/* The expressions, by their shape; struct pre_rules has the variations of a shape. */
enum pre_shape {
    /* 's|'t|'re|'ve|'m|'ll|'d
     * | ?\p{L}+
     * | ?\p{N}+
     * | ?[^\s\p{L}\p{N}]+
     * |\s+(?!\S)
     * |\s+ */
    PRE_SHAPE_GPT2,
    /* (?i:'s|'t|'re|'ve|'m|'ll|'d)
     * |[^\r\n\p{L}\p{N}]?\p{L}+
     * |\p{N}{1,3}
     * | ?[^\s\p{L}\p{N}]+[\r\n]*
     * |\s*[\r\n]+
     * |\s+(?!\S)
     * |\s+ */
    PRE_SHAPE_LLAMA3,
    /* as LLAMA3, but a word ends before an upper letter behind a lower one, and / ends signs:
     *  [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+
     * |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*
     * |\p{N}{1,3}
     * | ?[^\s\p{L}\p{N}]+[\r\n/]*
     * |\s*[\r\n]+
     * |\s+(?!\S)
     * |\s+ */
    PRE_SHAPE_CASED,
    /* five expressions in turn, each over the text that the ones before have left:
     *   [\r\n]
     *   \s?\p{L}+
     *   \s?\p{P}+
     *   [一-龥ࠀ-一가-퟿]+
     *   \p{N} */
    PRE_SHAPE_DEEPSEEK,
    /* six, likewise, where each also cuts what the ones before have matched:
     *   [\r\n]
     *   \s?[A-Za-zµÀ-Ö…]+ (letters with a case, but for the lower ones of Armenian and Georgian)
     *   \s?[!-/:-~！-／：-～‘-‟　-。]+
     *   \s+$
     *   [一-龥ࠀ-一가-퟿]+
     *   \p{N} */
    PRE_SHAPE_DEEPSEEK_LLM,
    /* three, likewise:
     *   \p{N}{1,3}
     *   [一-龥぀-ゟ゠-ヿ]+
     *   [!-/:-@\[-`{-~][A-Za-z]+
     *  |[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
     *  | ?[\p{P}\p{S}]+[\r\n]*
     *  |\s*[\r\n]+
     *  |\s+(?!\S)
     *  |\s+ */
    PRE_SHAPE_DEEPSEEK_3,
};

struct pre_rules {
    const char *name; /* in the spelling of tokenizer.ggml.pre */
    enum pre_shape shape;
    uint8_t digits_max;   /* most numbers (\p{N}) of a piece (PRE_SHAPE_LLAMA3 and _CASED) */
    bool joins_endings;   /* (?i:'s|'t|'re|'ve|'m|'ll|'d)? belongs to its word (PRE_SHAPE_CASED) */
    bool digits_apart;    /* every \p{N} is cut out first; the text between is matched by itself */
    bool han_apart;       /* [\p{Han}]+ comes first, no word has such letters, and / ends no signs
                             (PRE_SHAPE_CASED) */
    bool signs_apart;     /* [\p{P}$+<=>^~|`]+ is cut out first, and [0-9][0-9][0-9] last */
    bool marks_as_letter; /* [\p{L}\p{M}] in place of the shape's \p{L} */
    bool ignore_merges;   /* a piece whose text is a token becomes it, also against the merges */
};

/* NULL for an unknown name. */
const struct pre_rules *pre_rules_find(struct str name);

/* The end of the piece that begins at text[from]; from < text.bytes. The text must be valid UTF-8.
 * The time for a whole text is linear. */
size_t pre_piece_end(const struct pre_rules *rules, struct str text, size_t from);
