/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* own_words: a worker's refusal in the words of the API that was asked. A worker names the members
 * of OpenAI's request, which the client has not written, and clients of each API know a prompt that
 * is too long by a sentence of their own.
 *
 * Thread: any; pure.
 * Memory: as dialect.h.
 * Invariant: a body that is no error of OpenAI's form is copied as it stands. */

#include "base/buf.h"

/* One text of a worker's sentence or `param`, and what stands there instead. Members are written
 * between apostrophes, as sentences name them. */
struct own_word {
    const char *inside, *own;
};

struct own_words {
    const struct own_word *words; /* ends with zeros; the first that fits is taken */
    /* The sentence about a prompt that does not fit: what stands before, between and behind its
     * tokens and the most that fit. NULL: the worker's own. */
    const char *too_long[3];
};

extern const struct own_words ollama_words, ollama_embed_words, messages_words, responses_words;

/* Appends the error body in these words. */
void own_words_write(const struct own_words *words, struct str error, struct buf *body);
