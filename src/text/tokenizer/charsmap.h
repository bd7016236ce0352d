/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* charsmap: SentencePiece's precompiled rules of normalisation, as Hugging Face tokenizers applies
 * them: a grapheme of fewer than six bytes, else a character, is replaced by the text of its
 * shortest prefix that the rules have.
 *
 * The bytes are those of a model's precompiled_charsmap:
 *
 *   0  u32 bytes of the units, a multiple of 4
 *   4  u32 units of a double array (darts-clone): a trie of UTF-8 whose values are places
 *   …  texts, each ended by a NUL
 *
 * A map is valid if the units fill their bytes and the last text is ended. Units may lie: each step
 * of a walk is checked.
 *
 * Source: Aoe's double array as darts-clone stores it; tokenizers' Precompiled.
 *
 * Thread: any, once open.
 * Memory: owns a copy of the bytes. */

#include "base/buf.h"
#include "base/err.h"

#define CHARSMAP_BYTES_MAX (16u << 20)

/* All zero is a map without rules. */
struct charsmap {
    uint32_t *units; /* (unit_count) */
    size_t unit_count;
    char *texts; /* (text_bytes) the last is a NUL */
    size_t text_bytes;
};

/* ERR_INVALID with a sentence for bytes that are no such map. */
enum err charsmap_open(struct charsmap *ret_map, struct str bytes, struct error *error) MUST_CHECK;
void charsmap_close(struct charsmap *map);

/* Appends `text` (valid UTF-8), normalised. */
void charsmap_add(const struct charsmap *map, struct buf *buf, struct str text);
/* The same as SentencePiece does: the longest text at each place that the rules have. */
void charsmap_add_longest(const struct charsmap *map, struct buf *buf, struct str text);
