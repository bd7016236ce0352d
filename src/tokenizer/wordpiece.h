/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wordpiece: BERT's tokenizer: text made plain, cut into words, each word into the longest tokens
 * from its beginning; a word that has no such tokens is unknown as a whole (Devlin et al. 2018;
 * Hugging Face's BertNormalizer, BertPreTokenizer and WordPiece).
 *
 * Thread: any.  Memory: the caller's. */

#include "tokenizer/vocab.h"

/* Appends `text` (valid UTF-8) as the rules have it. */
void wordpiece_normalize(struct buf *buf, struct str text, const struct bert_rules *rules);

/* Appends the ids of a normalised text. The vocab's first pieces begin with a space. `word` is
 * scratch. `unknown` may be TOKEN_NONE: then such a word has no ids. */
void wordpiece_encode(const struct tokenizer_vocab *vocab, struct str text, int32_t unknown,
                      size_t word_characters_max, struct buf *word, struct ids *ids);
