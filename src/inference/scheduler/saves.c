/* SPDX-License-Identifier: Apache-2.0 */

/* saves: where sequences save their states for others (state_places.h).
 *
 * A block of keys and values serves every prefix that ends in it; a state serves one prefix alone.
 * To save one per block would fill the memory with states that nobody reads. But the scheduler
 * knows the prompts that wait. So a sequence that begins saves its state at
 *   - the places where waiting prompts leave its own: the branches of their tree on its path;
 *   - the place up to which the cache has its tokens, but no state: other prompts have left it
 *     there before;
 *   - the last whole block of its prompt, if a client waits for it: the next turn of a chat begins
 *     there.
 * A place is left out when few rows would be spared: less than a block behind the one before it,
 * unless many sequences wait for it.
 *
 * A place in the middle of a block serves others only if they find the keys and values before it in
 * a whole block of the tree. Where the prompt ends in that block, the beginning of the block is
 * taken instead. So equal prompts, and the sequences of one request, begin at their last whole
 * block.
 *
 * A state is stored behind its node when the step that saves it is composed, or at the latest when
 * that step has ended: where the tree has other blocks for the sequence's tokens, it takes those
 * only then. */

#include "base/min_max.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"
#include "scheduler/state_places.h"

#include <assert.h>

/* Branches that are looked at: prompts with equal beginnings have few. */
#define BRANCHES_MAX 64u
/* A state less than a block behind another is saved if it spares so many rows. */
#define SPARED_ROWS_MIN 256u

/* A position at which a state would serve others, and how many that wait now. */
struct branch {
    uint32_t position;
    uint32_t count;
};

struct branches {
    struct branch at[BRANCHES_MAX + 2];
    uint32_t count;
};

/* Adds a position, if its keys and values will be in blocks of the tree; in ascending order. */
static void add_branch(const struct scheduler *scheduler, const struct live_request *request,
                       uint32_t position, uint32_t count, struct branches *branches) {
    position = min_u32(position, request->prompt_count - 1);
    const uint32_t rest = position % BACKEND_BLOCK_TOKENS;
    const bool is_within = position - rest + BACKEND_BLOCK_TOKENS > request->prompt_count;
    if (is_within || !scheduler->backend->caps.copies_pages) position -= rest;
    uint32_t i = branches->count++;
    for (; i > 0 && branches->at[i - 1].position > position; i--)
        branches->at[i] = branches->at[i - 1];
    branches->at[i] = (struct branch){position, count};
}

/* Adds the places where the prompts of one sweep leave that of the sequence. */
static void add_sweep(const struct scheduler *scheduler, const struct sequence *sequence,
                      uint64_t sweep, struct branches *branches) {
    const struct waiting *waiting = &scheduler->lines[line_of(sequence)].waiting;
    struct waiting_item own = sequence->request->waiting;
    const struct waiting_item *item = &sequence->request->waiting;
    if (sweep != own.sweep) {
        own.sweep = sweep;
        item = &own;
    }
    uint32_t position = sequence->computed, count;
    while (branches->count < BRANCHES_MAX &&
           (position = waiting_branch(waiting, item, position, &count)) > 0)
        add_branch(scheduler, sequence->request, position, count, branches);
}

void plan_saves(const struct scheduler *scheduler, struct sequence *sequence,
                const struct match *match) {
    const struct live_request *request = sequence->request;
    struct branches branches = {.count = 0};
    sequence->save_count = 0;
    if (!scheduler->states || !scheduler->is_caching) return;
    if (scheduler->lines[line_of(sequence)].waiting.count > 0) {
        add_sweep(scheduler, sequence, request->waiting.sweep, &branches);
        add_sweep(scheduler, sequence, request->waiting.sweep + 1, &branches);
    }
    add_branch(scheduler, request, match->known, 1, &branches);
    if (request->is_urgent || request->sequence_count > 1)
        add_branch(scheduler, request, request->prompt_count - 1, 1, &branches);
    uint32_t last = sequence->computed;
    for (uint32_t i = 0; i < branches.count && sequence->save_count < SEQUENCE_SAVES_MAX; i++) {
        const struct branch *branch = &branches.at[i];
        if (branch->position <= last) continue;
        const uint64_t rows = branch->position - last;
        if (rows < BACKEND_BLOCK_TOKENS && rows * branch->count < SPARED_ROWS_MIN) continue;
        sequence->saves[sequence->save_count++] = last = branch->position;
    }
}

uint32_t rows_to_save(const struct sequence *sequence) {
    if (sequence->save_count < 2) return UINT32_MAX;
    return sequence->saves[1] - 1 - sequence->computed;
}

/* The prefix of a sequence before a position. False when a block of it is not in the tree. */
static bool find_prefix(const struct scheduler *scheduler, const struct sequence *sequence,
                        uint32_t position, struct state_prefix *ret_prefix) {
    const uint32_t *table = block_table(scheduler, sequence->slot);
    const uint32_t blocks = position / BACKEND_BLOCK_TOKENS;
    const uint64_t salt = sequence->request->cache_salt;
    uint32_t i = min_u32(blocks, sequence->node_count);
    uint32_t node = i > 0 ? table[i - 1] : PREFIX_ROOT;
    for (; i < blocks; i++) {
        int32_t tokens[BACKEND_BLOCK_TOKENS];
        sequence_tokens(sequence, i * BACKEND_BLOCK_TOKENS, BACKEND_BLOCK_TOKENS, tokens);
        if (!prefix_tree_find(scheduler->tree, node, salt, tokens, &node)) return false;
    }
    *ret_prefix = (struct state_prefix){
        .node = node, .salt = salt, .tail_count = position % BACKEND_BLOCK_TOKENS};
    sequence_tokens(sequence, blocks * BACKEND_BLOCK_TOKENS, ret_prefix->tail_count,
                    ret_prefix->tail);
    return true;
}

void touch_states(struct scheduler *scheduler, const struct sequence *sequence, uint32_t blocks) {
    const uint32_t *table = block_table(scheduler, sequence->slot);
    blocks = min_u32(blocks, sequence->node_count);
    for (uint32_t k = blocks + 1; k-- > 0;) {
        const uint32_t node = k > 0 ? table[k - 1] : PREFIX_ROOT;
        uint32_t at = state_places_first(scheduler->states, node);
        if (at == STATE_NONE) continue;
        int32_t tail[STATE_TAIL_MAX];
        const uint32_t first = k * BACKEND_BLOCK_TOKENS;
        const uint32_t count = min_u32(sequence_token_count(sequence) - first, STATE_TAIL_MAX);
        sequence_tokens(sequence, first, count, tail);
        for (uint32_t length; at != STATE_NONE; at = state_places_next(scheduler->states, at))
            if (state_places_has_tail(scheduler->states, at, sequence->request->cache_salt, tail,
                                      count, &length))
                state_places_touch(scheduler->states, at);
    }
}

/* Stores a saved state, which may have been stored for another sequence meanwhile. False when its
 * blocks are not in the tree. */
static bool store(struct scheduler *scheduler, struct sequence *sequence, uint32_t position,
                  uint32_t place) {
    struct state_prefix prefix;
    if (!find_prefix(scheduler, sequence, position, &prefix)) return false;
    if (state_places_find(scheduler->states, &prefix) == STATE_NONE)
        state_places_store(scheduler->states, place, &prefix);
    else
        state_places_free(scheduler->states, place);
    touch_states(scheduler, sequence, position / BACKEND_BLOCK_TOKENS);
    return true;
}

static bool is_stored(const struct scheduler *scheduler, const struct sequence *sequence,
                      uint32_t position) {
    struct state_prefix prefix;
    return find_prefix(scheduler, sequence, position, &prefix) &&
           state_places_find(scheduler->states, &prefix) != STATE_NONE;
}

void save_state(struct scheduler *scheduler, struct plan *plan, struct sequence *sequence) {
    const uint32_t index = plan->step.sequence_count - 1;
    struct step_sequence *part = &plan->sequences[index];
    plan->is_unstored[index] = false;
    const uint32_t position = sequence->save_count > 0 ? sequence->saves[0] : UINT32_MAX;
    if (position > sequence->computed) return;
    assert(position > part->kv_tokens);
    sequence->save_count--;
    for (uint32_t i = 0; i < sequence->save_count; i++) sequence->saves[i] = sequence->saves[i + 1];
    if (is_stored(scheduler, sequence, position) ||
        !state_places_take(scheduler->states, steps_now(scheduler), &part->save_to))
        return;
    part->save_rows = position - part->kv_tokens;
    scheduler->stats.state_saves++;
    state_places_note_written(scheduler->states, part->save_to, steps_now(scheduler));
    if (store(scheduler, sequence, position, part->save_to)) return;
    plan->is_unstored[index] = true;
    sequence->unstored = position;
}

void store_states(struct scheduler *scheduler, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->step.sequence_count && scheduler->states; i++) {
        const struct step_sequence *part = &plan->sequences[i];
        struct sequence *sequence = plan->members[i];
        const uint32_t position = part->kv_tokens + part->save_rows;
        if (!plan->is_unstored[i]) continue;
        if (!store(scheduler, sequence, position, part->save_to))
            state_places_free(scheduler->states, part->save_to);
        if (sequence->unstored == position) sequence->unstored = 0;
    }
}
