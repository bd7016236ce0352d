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
 * The last token is always computed, because its logits are needed; so is a whole prompt that needs
 * scores. */

#include "base/least.h"
#include "scheduler/kv_pages.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"

/* Blocks that are looked at for a part. Those that were added first have been written, and prompts
 * with a common prefix have it in common with each of them. */
#define PART_TRIES 64u

/* True when the step under way, which an urgent step may pass, still writes to the block. With
 * steps_max 2 none may: whoever uses the block comes later. */
static bool is_unwritten(const struct scheduler *scheduler, uint32_t block) {
    const struct plan *plan = &scheduler->plans[scheduler->oldest];
    return scheduler->steps_max == 1 && scheduler->under_way > 0 &&
           scheduler->written_in[block] == plan->step.number;
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

/* Finds the child of `parent` that has the most leading tokens in common with those behind the
 * matched blocks. */
static void match_part(const struct scheduler *scheduler, const struct sequence *sequence,
                       uint32_t parent, struct match *match) {
    int32_t tokens[BACKEND_BLOCK_TOKENS];
    uint32_t first = match->blocks * BACKEND_BLOCK_TOKENS;
    uint32_t count = least_u32(sequence_token_count(sequence) - 1 - first, BACKEND_BLOCK_TOKENS);
    sequence_tokens(sequence, first, count, tokens);
    uint32_t at = prefix_tree_first_child(scheduler->tree, parent);
    for (uint32_t tries = 0; at != PREFIX_NONE && tries < PART_TRIES; tries++) {
        uint32_t common =
            prefix_tree_common(scheduler->tree, at, sequence->request->cache_salt, tokens, count);
        bool is_written =
            scheduler->written_in[at] != scheduler->step_number && !is_unwritten(scheduler, at);
        if (common > match->part_tokens && is_written && kv_pages_has_window(scheduler->pages, at))
            match->part = at, match->part_tokens = common;
        at = prefix_tree_next_child(scheduler->tree, at);
    }
}

struct match match_prefix(const struct scheduler *scheduler, const struct sequence *sequence,
                          uint32_t *ret_blocks) {
    struct match match = {0};
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
    match.blocks = usable_blocks(scheduler, ret_blocks, count);
    if (scheduler->backend->caps.copies_pages && match.blocks == count)
        match_part(scheduler, sequence, parent, &match);
    return match;
}
