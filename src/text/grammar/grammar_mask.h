/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grammar_mask: which tokens may come next, as a bit per token.
 *
 * A token may come if its bytes can begin the rest of a text of the grammar. Tokens that end an
 * answer may come exactly when the text is whole. A mask is made once per state of a grammar and
 * kept for all answers, the one that was not needed for longest goes first.
 *
 * Thread: one, as grammar.h.
 * Memory: at most GRAMMAR_MASK_BYTES for masks, or `masks_min` masks if they take more. */

#include "grammar/grammar.h"
#include "grammar/token_tree.h"

#define GRAMMAR_MASK_BYTES ((size_t)64 << 20)

struct grammar_masks;

struct grammar_masks_options {
    const struct str *tokens; /* (token_count) bytes of each; empty: it never comes. Borrowed until
                                 the masks are open */
    uint32_t token_count;
    const int32_t *end_tokens; /* (end_token_count) tokens that end an answer; copied */
    uint32_t end_token_count;
    uint32_t vocab;           /* bits of a mask */
    uint32_t masks_min;       /* masks that must exist at a time */
    size_t grammar_bytes_max; /* all grammars; past it, the one without a new mask for longest
                                 forgets what it has grown by */
};

struct grammar_masks *grammar_masks_open(const struct grammar_masks_options *options);
void grammar_masks_close(struct grammar_masks *masks); /* NULL is allowed */

/* The mask of a state: ((vocab + 31) / 32) words, which stay until masks_min other masks have been
 * asked for. NULL if the automaton would be larger than its limit, if no token can go on, or if the
 * mask takes more work than a step may: the state is spent then. */
const uint32_t *grammar_mask(struct grammar_masks *masks, struct grammar_state *state);

/* Whether a token may come that begins in the last `tail` bytes of `forced` and goes on behind
 * them, where `forced` follows the text of the state. */
bool grammar_token_crosses(struct grammar_masks *masks, struct grammar_state *state,
                           struct str forced, size_t tail);

struct grammar_mask_stats {
    uint64_t asked, made;
    uint64_t work_max; /* fuel of the mask that took most */
};
struct grammar_mask_stats grammar_mask_stats(const struct grammar_masks *masks);
