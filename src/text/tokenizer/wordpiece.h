/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wordpiece: BERT's tokenizer. Text is normalised and cut into words, and each word from its
 * beginning into the longest tokens. A word that cannot be cut so is unknown as a whole (Devlin et
 * al. 2018; Hugging Face's BertNormalizer, BertPreTokenizer and WordPiece).
 *
 * Thread: any.
 * Memory: the caller's. */

#include "tokenizer/vocab.h"

/* Appends `text` (valid UTF-8), normalised by the rules. */
void wordpiece_normalize(struct buf *buf, struct str text, const struct bert_rules *rules);

/* Appends the ids of a normalised text. First pieces of words begin with a space in the vocab.
 * `word` is scratch. `unknown` may be TOKEN_NONE: then an unknown word has no ids. */
void wordpiece_encode(const struct tokenizer_vocab *vocab, struct str text, int32_t unknown,
                      size_t word_characters_max, struct buf *word, struct ids *ids);
