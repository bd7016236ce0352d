/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sentencepiece: how SentencePiece writes spaces, as U+2581, with or without one before the text;
 * and where such a text may be cut, so that the pieces are short. bpe.h does the merging.
 *
 * Thread: any.
 * Memory: the caller's buf. */

#include "tokenizer/vocab.h"

/* The bytes of a token: U+2581 is a space, "<0x0A>" of kind byte is one byte. A
 * tokenizer_vocab_decode_fn. */
size_t sentencepiece_decode(struct str spelled, enum token_kind kind, char *ret_bytes);

/* True for a token spelled "<0xHH>". */
bool sentencepiece_byte(struct str spelled, unsigned char *ret_byte);

/* True when every space of a token is at its beginning. Then no merge crosses the beginning of a
 * word, and words may be encoded one by one. */
bool sentencepiece_cuts_words(const struct tokenizer_source *source);

/* Appends the stretch with its prefix, and with its spaces as U+2581. */
void sentencepiece_escape(struct buf *buf, struct str stretch, enum space_prefix prefix,
                          bool is_first);

/* The end of the piece that begins at text[from] of an escaped text: a word with the spaces before
 * it, or all of the text. */
size_t sentencepiece_piece_end(struct str text, size_t from, bool cuts_words);
