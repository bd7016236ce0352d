/* SPDX-License-Identifier: Apache-2.0 */

/* match: which tokens of a sequence the cache has, so that they need not be computed.
 *
 * BLOCKS. A sequence begins with the blocks of the tree that have its first tokens, and shares
 * them. Layers with a window need the window pages (kv_pages.h) of the last of them.
 *
 * PART. The next block of the tree may have its first tokens in common, where a prefix that many
 * prompts have ends between two multiples of 16. The sequence gets a block of its own, into which
 * the pages of that one are copied, and computes from the first token that differs. So a prefix of
 * 300 tokens spares 300 rows and not 288. Only blocks that earlier steps have written can be
 * copied: copies come before all rows of a step.
 *
 * STATES (state_places.h). A sequence of a model with states can begin only where a state is
 * stored, within the tokens that the cache has: in the longest such prefix. It may be one that the
 * step being composed saves. Then the sequence begins, and has its first rows in the next step:
 * steps are what orders copies. Where a running sequence will save a longer one, the line waits for
 * it.
 *
 * The last token is always computed, because its logits are needed; so is a whole prompt that needs
 * scores. */

#include "base/min_max.h"
#include "scheduler/kv_pages.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"
#include "scheduler/state_places.h"

#include <string.h>

/* Blocks that are looked at for a part. Those that were added first have been written, and prompts
 * with a common prefix have it in common with each of them. */
#define PART_TRIES 64u

struct state_steps steps_now(const struct scheduler *scheduler) {
    struct state_steps steps = {.composed = scheduler->step_number};
    if (scheduler->steps_max == 1 && scheduler->under_way > 0)
        steps.passed = scheduler->plans[scheduler->oldest].step.number;
    return steps;
}

/* True when the step under way, which an urgent step may pass, still writes to the block. With
 * steps_max 2 none may: whoever uses the block comes later. */
static bool is_unwritten(const struct scheduler *scheduler, uint32_t block) {
    const uint64_t passed = steps_now(scheduler).passed;
    return passed > 0 && scheduler->written_in[block] == passed;
}

/* How many of `count` leading blocks a sequence can begin after: its next row needs window
 * pages. */
static uint32_t usable_blocks(const struct scheduler *scheduler, const uint32_t *blocks,
                              uint32_t count) {
    uint32_t usable = 0;
    uint32_t run = 0; /* blocks up to this one that have their window pages */
    for (uint32_t i = 0; i < count; i++) {
        run = kv_pages_has_window(scheduler->pages, blocks[i]) ? run + 1 : 0;
        uint32_t seen = i + 1 - first_seen_block(scheduler, (i + 1) * BACKEND_BLOCK_TOKENS);
        if (run >= seen) usable = i + 1;
    }
    return usable;
}

/* The tokens of a sequence behind `blocks` blocks, at most `room`, but for its last one. */
static uint32_t tokens_behind(const struct sequence *sequence, uint32_t blocks, uint32_t room,
                              int32_t *ret_tokens) {
    const uint32_t first = blocks * BACKEND_BLOCK_TOKENS;
    const uint32_t count = min_u32(sequence_token_count(sequence) - 1 - first, room);
    sequence_tokens(sequence, first, count, ret_tokens);
    return count;
}

/* Finds the child of `parent`, the last of `blocks` blocks, that has the most leading tokens in
 * common with those behind it. A sequence that waits for its state may wait for the child, too. */
static void match_part(const struct scheduler *scheduler, const struct sequence *sequence,
                       uint32_t parent, uint32_t blocks, struct match *match) {
    int32_t tokens[BACKEND_BLOCK_TOKENS];
    const uint32_t count = tokens_behind(sequence, blocks, BACKEND_BLOCK_TOKENS, tokens);
    uint32_t at = prefix_tree_first_child(scheduler->tree, parent);
    for (uint32_t tries = 0; at != PREFIX_NONE && tries < PART_TRIES; tries++) {
        uint32_t common =
            prefix_tree_common(scheduler->tree, at, sequence->request->cache_salt, tokens, count);
        bool is_written = scheduler->states || scheduler->written_in[at] != scheduler->step_number;
        if (common > match->part_tokens && is_written && !is_unwritten(scheduler, at) &&
            kv_pages_has_window(scheduler->pages, at))
            match->part = at, match->part_tokens = common;
        at = prefix_tree_next_child(scheduler->tree, at);
    }
}

/* Whether a row behind the first `count` blocks finds the window pages that it sees. */
static bool has_windows(const struct scheduler *scheduler, const uint32_t *blocks, uint32_t count) {
    uint32_t first = first_seen_block(scheduler, count * BACKEND_BLOCK_TOKENS);
    while (first < count && kv_pages_has_window(scheduler->pages, blocks[first])) first++;
    return first == count;
}

/* Finds the longest stored state behind `count` blocks, the last of which is `node`, with a tail of
 * at most `room` tokens. The tail must be in the cache: in the next block, or in `part`. */
static void match_state_at(const struct scheduler *scheduler, const struct sequence *sequence,
                           uint32_t node, uint32_t count, uint32_t room, struct match *match) {
    int32_t tail[STATE_TAIL_MAX];
    const struct state_places *states = scheduler->states;
    const uint64_t passed = steps_now(scheduler).passed;
    const uint32_t behind = tokens_behind(sequence, count, min_u32(room, STATE_TAIL_MAX), tail);
    for (uint32_t at = state_places_first(states, node); at != STATE_NONE;
         at = state_places_next(states, at)) {
        uint32_t length;
        if (!state_places_has_tail(states, at, sequence->request->cache_salt, tail, behind,
                                   &length) ||
            (passed > 0 && state_places_written_in(states, at) == passed))
            continue;
        if (match->state == STATE_NONE || length > match->part_tokens)
            match->state = at, match->part_tokens = length;
    }
}

/* Finds the longest stored state within the known tokens: `count` blocks, and a part behind them.
 */
static struct match match_state(const struct scheduler *scheduler, const struct sequence *sequence,
                                const uint32_t *blocks, uint32_t count, const struct match *known) {
    struct match match = {.state = STATE_NONE, .known = known->known};
    const bool can_copy = scheduler->backend->caps.copies_pages;
    for (uint32_t k = count + 1; k-- > 0 && match.state == STATE_NONE;) {
        const uint32_t node = k > 0 ? blocks[k - 1] : PREFIX_ROOT;
        const uint32_t part = k < count ? blocks[k] : known->part;
        uint32_t room = k < count ? STATE_TAIL_MAX : known->part_tokens;
        if (state_places_first(scheduler->states, node) == STATE_NONE ||
            !has_windows(scheduler, blocks, k))
            continue;
        if (!can_copy || (room > 0 && !kv_pages_has_window(scheduler->pages, part))) room = 0;
        match_state_at(scheduler, sequence, node, k, room, &match);
        match.blocks = k;
        match.part = part;
    }
    if (match.state == STATE_NONE) match.blocks = 0;
    return match;
}

struct match match_prefix(const struct scheduler *scheduler, const struct sequence *sequence,
                          uint32_t *ret_blocks) {
    struct match match = {.state = STATE_NONE};
    if (!scheduler->is_caching || is_to_be_scored(sequence)) return match;
    uint32_t whole = (sequence_token_count(sequence) - 1) / BACKEND_BLOCK_TOKENS;
    uint32_t parent = PREFIX_ROOT;
    uint32_t count = 0;
    while (count < whole) {
        int32_t tokens[BACKEND_BLOCK_TOKENS];
        uint32_t found;
        sequence_tokens(sequence, count * BACKEND_BLOCK_TOKENS, BACKEND_BLOCK_TOKENS, tokens);
        if (!prefix_tree_find(scheduler->tree, parent, sequence->request->cache_salt, tokens,
                              &found) ||
            is_unwritten(scheduler, found))
            break;
        ret_blocks[count++] = parent = found;
    }
    match.blocks = scheduler->states ? count : usable_blocks(scheduler, ret_blocks, count);
    if (scheduler->backend->caps.copies_pages && match.blocks == count)
        match_part(scheduler, sequence, parent, count, &match);
    match.known = matched_tokens(&match);
    if (scheduler->states) match = match_state(scheduler, sequence, ret_blocks, count, &match);
    return match;
}

/* ---- states that are on their way ---- */

bool is_held_up(const struct scheduler *scheduler, const struct sequence *sequence) {
    if (!sequence->slot_is_new || sequence->state_from == STATE_NONE) return false;
    const struct state_steps steps = steps_now(scheduler);
    const uint64_t saved = state_places_written_in(scheduler->states, sequence->state_from);
    const uint64_t filled =
        sequence->part != PREFIX_NONE ? scheduler->written_in[sequence->part] : 0;
    return saved == steps.composed || filled == steps.composed ||
           (steps.passed > 0 && (saved == steps.passed || filled == steps.passed));
}

/* Whether a running sequence will save a state at a position from `least` on, in the beginning that
 * both have. */
static bool will_save(const struct sequence *running, const struct sequence *sequence,
                      uint32_t least) {
    const struct live_request *theirs = running->request, *own = sequence->request;
    uint32_t position = running->unstored;
    for (uint32_t i = 0; position < least && i < running->save_count; i++)
        position = running->saves[i];
    return position >= least && position < sequence_token_count(sequence) &&
           position <= own->prompt_count && theirs->cache_salt == own->cache_salt &&
           memcmp(theirs->prompt, own->prompt, position * sizeof *own->prompt) == 0;
}

bool is_state_coming(const struct scheduler *scheduler, const struct sequence *sequence,
                     uint32_t matched) {
    if (!scheduler->states || !scheduler->is_caching || is_to_be_scored(sequence)) return false;
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        const struct sequence *running = scheduler->running[i];
        /* An urgent sequence does not wait for one that may be slow. */
        const bool is_slow = sequence->request->is_urgent && !running->request->is_urgent;
        if (!running->is_leaving && !is_slow && will_save(running, sequence, matched + 1))
            return true;
    }
    return false;
}
