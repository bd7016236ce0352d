/* SPDX-License-Identifier: Apache-2.0 */

/* compose: which rows the next step has.
 *
 *   1. Every running sequence in decode gets a block when it needs one. When none is left, one
 *      sequence is preempted: the one that loses the fewest generated tokens for each block it
 * alone holds. Never the one that started first, which so always ends; never one that was preempted
 *      PREEMPTIONS_MAX times, which holds all it needs. When nobody may be preempted the sequence
 *      sits this step out: then one that may not be preempted is running, and it gives its blocks
 *      back in the end.
 *   2. Rows of decode, one a sequence, in the order of their prompts: neighbours share blocks.
 *   3. Rows of sequences in prefill, as many as the step still has room for.
 *   4. With room left, preempted sequences and then waiting requests start. Nobody overtakes the
 *      first in line, who so does not starve.
 *
 * A sequence starts only in a step with room, after the rows of everybody before it are in. So when
 * many share a prefix that nobody has computed, the first one's blocks are in the tree before the
 * second looks for them, though all of that happens in one step: nothing is computed twice.
 *
 * Liveness: a step has rows, or there is no work. With nobody running the first in line starts
 * whatever admission expects; scheduler_submit made sure that it fits alone. */

#include "base/rng.h"
#include "scheduler/kv_pool.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static uint32_t rows_left(const struct scheduler *scheduler) {
    return scheduler->rows_max - scheduler->step.row_count;
}

static uint32_t available_blocks(const struct scheduler *scheduler) {
    return kv_pool_free_count(scheduler->pool) + kv_pool_cached_count(scheduler->pool);
}

static uint32_t rows_missing(const struct sequence *sequence) {
    return sequence_token_count(sequence) - sequence->computed;
}

/* The last sampled token is never stored: nobody reads it. */
static uint32_t blocks_at_most(const struct sequence *sequence) {
    return blocks_for(sequence->request->tokens_max - 1);
}

static bool is_reserved(const struct sequence *sequence) {
    return sequence->preemptions >= PREEMPTIONS_MAX;
}

/* Where a sequence stands in `running`, or would. */
static uint32_t running_index(const struct scheduler *scheduler, const struct sequence *sequence) {
    const struct request *request = sequence->request;
    uint32_t low = 0;
    uint32_t high = scheduler->running_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct sequence *other = scheduler->running[middle];
        int order = waiting_compare_tokens(other->request->prompt, other->request->prompt_count,
                                           request->prompt, request->prompt_count);
        if (order < 0 || (order == 0 && other->started < sequence->started))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add_running(struct scheduler *scheduler, struct sequence *sequence) {
    uint32_t index = running_index(scheduler, sequence);
    struct sequence **at = &scheduler->running[index];
    memmove(at + 1, at, (scheduler->running_count - index) * sizeof(struct sequence *));
    *at = sequence;
    scheduler->running_count++;
}

static void remove_running(struct scheduler *scheduler, const struct sequence *sequence) {
    uint32_t index = running_index(scheduler, sequence);
    struct sequence **at = &scheduler->running[index];
    assert(index < scheduler->running_count && *at == sequence);
    scheduler->running_count--;
    memmove(at, at + 1, (scheduler->running_count - index) * sizeof(struct sequence *));
}

void stop_running(struct scheduler *scheduler, struct sequence *sequence) {
    assert(sequence->state == SEQUENCE_RUNNING && !sequence->is_in_step);
    remove_running(scheduler, sequence);
    const uint32_t *table = block_table(scheduler, sequence->slot);
    for (uint32_t i = sequence->block_count; i-- > 0;) prefix_tree_drop(scheduler->tree, table[i]);
    scheduler->free_slots[scheduler->free_slot_count++] = sequence->slot;
    sequence->computed = sequence->block_count = sequence->node_count = sequence->slot = 0;
}

/* Preemption. */

static uint32_t private_blocks(const struct scheduler *scheduler, const struct sequence *sequence) {
    const uint32_t *table = block_table(scheduler, sequence->slot);
    uint32_t count = 0;
    for (uint32_t i = 0; i < sequence->block_count; i++)
        count += kv_pool_holds(scheduler->pool, table[i]) == 1;
    return count;
}

/* NULL when nobody may be preempted. O(blocks in use); a preemption is rare. */
static struct sequence *find_victim(const struct scheduler *scheduler) {
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < scheduler->running_count; i++)
        if (scheduler->running[i]->started < oldest) oldest = scheduler->running[i]->started;

    struct sequence *victim = NULL;
    double victim_loss = 0;
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        struct sequence *sequence = scheduler->running[i];
        if (sequence->started == oldest || is_reserved(sequence)) continue;
        uint32_t gain = private_blocks(scheduler, sequence);
        double loss = gain > 0 ? (double)sequence->generated_count / gain : INFINITY;
        if (victim && loss > victim_loss) continue;
        if (victim && loss == victim_loss && sequence->started < victim->started) continue;
        victim = sequence;
        victim_loss = loss;
    }
    return victim;
}

static void preempt(struct scheduler *scheduler, struct sequence *sequence) {
    stop_running(scheduler, sequence);
    sequence->state = SEQUENCE_PREEMPTED;
    sequence->preemptions++;
    struct sequence **link = &scheduler->preempted;
    while (*link && (*link)->started < sequence->started) link = &(*link)->next_preempted;
    sequence->next_preempted = *link;
    *link = sequence;
    scheduler->is_recovering = true;
    scheduler->stats.preemptions++;
    scheduler->preempted_events[scheduler->preempted_event_count++] =
        (struct preempted_event){sequence->request->id, sequence->index};
}

static bool has_block_for_next(const struct sequence *sequence) {
    return sequence->block_count * BACKEND_BLOCK_TOKENS > sequence->computed;
}

static void grow_running(struct scheduler *scheduler) {
    uint32_t i = 0;
    while (i < scheduler->running_count) {
        struct sequence *sequence = scheduler->running[i];
        uint32_t *table = block_table(scheduler, sequence->slot);
        if (has_block_for_next(sequence)) {
            i++;
        } else if (prefix_tree_take(scheduler->tree, &table[sequence->block_count])) {
            sequence->block_count++;
            i++;
        } else {
            struct sequence *victim = find_victim(scheduler);
            if (victim) {
                if (running_index(scheduler, victim) < i) i--;
                preempt(scheduler, victim);
            } else {
                i++;
            }
        }
    }
}

/* Rows. */

void enter_blocks(struct scheduler *scheduler, struct sequence *sequence, bool may_swap) {
    if (!scheduler->is_caching) return;
    uint32_t *table = block_table(scheduler, sequence->slot);
    uint32_t full = sequence->computed / BACKEND_BLOCK_TOKENS;
    for (uint32_t i = sequence->node_count; i < full; i++) {
        uint32_t parent = i > 0 ? table[i - 1] : PREFIX_ROOT;
        int32_t tokens[BACKEND_BLOCK_TOKENS];
        sequence_tokens(sequence, i * BACKEND_BLOCK_TOKENS, BACKEND_BLOCK_TOKENS, tokens);
        uint32_t found;
        if (!prefix_tree_find(scheduler->tree, parent, tokens, &found)) {
            prefix_tree_add(scheduler->tree, parent, tokens, table[i]);
        } else {
            if (!may_swap) return;
            kv_pool_hold(scheduler->pool, found);
            prefix_tree_drop(scheduler->tree, table[i]);
            table[i] = found;
        }
        sequence->node_count = i + 1;
    }
}

static void add_logit_row(struct scheduler *scheduler, const struct sequence *sequence) {
    const struct request *request = sequence->request;
    struct step *step = &scheduler->step;
    scheduler->logit_rows[step->logit_count++] = (struct logit_row){
        .row = step->row_count - 1,
        .sequence = step->sequence_count - 1,
        .sampling = &request->sampling,
        .seed = sequence->index == 0 ? request->seed : rng_at(request->seed, sequence->index),
        .counter = sequence->generated_count,
        .prompt = request->prompt,
        .prompt_count = request->prompt_count,
        .generated = sequence->generated,
        .allowed = request->is_constrained
                       ? scheduler->allowed(scheduler->user, request->id, sequence->index)
                       : NULL,
    };
}

/* Puts the next `count` tokens of a running sequence into the step. */
static void add_rows(struct scheduler *scheduler, struct sequence *sequence, uint32_t count) {
    struct step *step = &scheduler->step;
    uint32_t first = step->row_count;
    assert(count > 0 && count <= rows_left(scheduler));
    sequence_tokens(sequence, sequence->computed, count, scheduler->tokens + first);
    for (uint32_t i = 0; i < count; i++) scheduler->positions[first + i] = sequence->computed + i;

    uint32_t end = sequence->computed + count;
    assert(blocks_for(end) <= sequence->block_count);
    scheduler->members[step->sequence_count] = sequence;
    scheduler->step_sequences[step->sequence_count++] = (struct step_sequence){
        .slot = sequence->slot,
        .slot_is_new = sequence->slot_is_new,
        .row_first = first,
        .row_count = count,
        .kv_tokens = sequence->computed,
        .block_count = blocks_for(end),
        .blocks = block_table(scheduler, sequence->slot),
    };
    step->row_count += count;
    sequence->slot_is_new = false;
    sequence->is_in_step = true;
    sequence->computed = end;
    if (rows_missing(sequence) == 0) add_logit_row(scheduler, sequence);
    enter_blocks(scheduler, sequence, false);
}

static void add_decode_rows(struct scheduler *scheduler) {
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        struct sequence *sequence = scheduler->running[i];
        if (rows_missing(sequence) == 1 && has_block_for_next(sequence))
            add_rows(scheduler, sequence, 1);
    }
}

static void add_prefill_rows(struct scheduler *scheduler, struct sequence *sequence) {
    uint32_t missing = rows_missing(sequence);
    uint32_t left = rows_left(scheduler);
    uint32_t count = missing < left ? missing : left;
    add_rows(scheduler, sequence, count);
    scheduler->stats.prefill_rows += count;
}

static void continue_prefills(struct scheduler *scheduler) {
    for (uint32_t i = 0; i < scheduler->running_count && rows_left(scheduler) > 0; i++)
        if (rows_missing(scheduler->running[i]) > 1)
            add_prefill_rows(scheduler, scheduler->running[i]);
}

/* Starts. */

/* Adds what a running sequence is expected to take beyond the blocks it has. */
static void add_expected(const struct scheduler *scheduler, const struct sequence *sequence,
                         uint32_t block_count, struct admission_load *load) {
    const struct request *request = sequence->request;
    double mean;
    double variance;
    admission_expect(&scheduler->admission, sequence->generated_count,
                     request->tokens_max - request->prompt_count, &mean, &variance);
    const double tokens = BACKEND_BLOCK_TOKENS;
    double blocks = (sequence_token_count(sequence) + mean) / tokens;
    load->mean += fmax(0, blocks - block_count);
    load->variance += variance / (tokens * tokens);
}

static struct admission_load running_load(const struct scheduler *scheduler) {
    struct admission_load load = {.used = kv_pool_used_count(scheduler->pool)};
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        const struct sequence *sequence = scheduler->running[i];
        if (!is_reserved(sequence)) add_expected(scheduler, sequence, sequence->block_count, &load);
    }
    return load;
}

/* Finds the blocks of the tree a sequence can begin with, not yet held. The last token is always
 * left to be computed, since its logits are wanted. */
static uint32_t match_prefix(const struct scheduler *scheduler, const struct sequence *sequence,
                             uint32_t *ret_blocks) {
    if (!scheduler->is_caching) return 0;
    uint32_t whole = (sequence_token_count(sequence) - 1) / BACKEND_BLOCK_TOKENS;
    uint32_t parent = PREFIX_ROOT;
    uint32_t count = 0;
    while (count < whole) {
        int32_t tokens[BACKEND_BLOCK_TOKENS];
        sequence_tokens(sequence, count * BACKEND_BLOCK_TOKENS, BACKEND_BLOCK_TOKENS, tokens);
        if (!prefix_tree_find(scheduler->tree, parent, tokens, &parent)) break;
        ret_blocks[count++] = parent;
    }
    return count;
}

static struct sequence *first_in_line(const struct scheduler *scheduler) {
    if (scheduler->preempted) return scheduler->preempted;
    struct waiting_item *item = waiting_first(&scheduler->waiting);
    if (!item) return NULL;
    struct request *request = (struct request *)item; /* its first member */
    return &request->sequences[request->sequence_next];
}

/* Takes the first in line out of its line. */
static void leave_line(struct scheduler *scheduler, struct sequence *sequence,
                       uint32_t matched_blocks) {
    if (sequence->state == SEQUENCE_PREEMPTED) {
        scheduler->preempted = sequence->next_preempted;
        sequence->next_preempted = NULL;
        return;
    }
    struct request *request = sequence->request;
    sequence->started = ++scheduler->starts;
    sequence->cached_tokens = matched_blocks * BACKEND_BLOCK_TOKENS;
    scheduler->stats.prefix_queried_tokens += request->prompt_count;
    scheduler->stats.prefix_hit_tokens += sequence->cached_tokens;
    do {
        request->sequence_next++;
    } while (request->sequence_next < request->sequence_count &&
             request->sequences[request->sequence_next].state != SEQUENCE_WAITING);
    if (request->sequence_next == request->sequence_count) waiting_begin_first(&scheduler->waiting);
}

/* Gives a sequence a slot and `whole` blocks, the first `matched` of which are already in the table
 * of the slot on top of the stack. */
static void start(struct scheduler *scheduler, struct sequence *sequence, uint32_t matched,
                  uint32_t whole) {
    leave_line(scheduler, sequence, matched);
    uint32_t slot = scheduler->free_slots[--scheduler->free_slot_count];
    uint32_t *table = block_table(scheduler, slot);
    for (uint32_t i = 0; i < matched; i++) kv_pool_hold(scheduler->pool, table[i]);
    for (uint32_t i = matched; i < whole; i++) {
        bool taken = prefix_tree_take(scheduler->tree, &table[i]);
        assert(taken); /* counted in try_start */
    }
    sequence->state = SEQUENCE_RUNNING;
    sequence->slot = slot;
    sequence->slot_is_new = true;
    sequence->block_count = whole;
    sequence->node_count = matched;
    sequence->computed = matched * BACKEND_BLOCK_TOKENS;
    add_running(scheduler, sequence);
}

/* False when the sequence must wait. `load` is what running ones are expected to need. */
static bool try_start(struct scheduler *scheduler, struct sequence *sequence,
                      struct admission_load *load) {
    uint32_t *table = block_table(scheduler, scheduler->free_slots[scheduler->free_slot_count - 1]);
    uint32_t matched = match_prefix(scheduler, sequence, table);
    uint32_t live = 0; /* matched blocks that are used anyway */
    for (uint32_t i = 0; i < matched; i++) live += kv_pool_holds(scheduler->pool, table[i]) > 0;

    uint32_t whole = is_reserved(sequence) ? blocks_at_most(sequence)
                                           : blocks_for(sequence_token_count(sequence));
    struct admission_load with = *load;
    with.used += whole - live;
    if (!is_reserved(sequence)) add_expected(scheduler, sequence, whole, &with);
    if (scheduler->running_count > 0 &&
        !admission_fits(&with, kv_pool_block_count(scheduler->pool)))
        return false;
    assert(whole - live <= available_blocks(scheduler)); /* as used + new <= all */
    start(scheduler, sequence, matched, whole);
    *load = with;
    return true;
}

static void start_sequences(struct scheduler *scheduler) {
    if (rows_left(scheduler) == 0 || scheduler->free_slot_count == 0) return;
    struct sequence *sequence = first_in_line(scheduler);
    if (!sequence) return;
    if (scheduler->is_recovering && scheduler->running_count > 0 &&
        (uint64_t)available_blocks(scheduler) * RECOVERED_SHARE <
            kv_pool_block_count(scheduler->pool))
        return;
    scheduler->is_recovering = false;

    struct admission_load load = running_load(scheduler);
    while (sequence && rows_left(scheduler) > 0 && scheduler->free_slot_count > 0 &&
           try_start(scheduler, sequence, &load)) {
        add_prefill_rows(scheduler, sequence);
        sequence = first_in_line(scheduler);
    }
}

void compose_step(struct scheduler *scheduler) {
    struct step *step = &scheduler->step;
    step->number++;
    step->row_count = step->sequence_count = step->logit_count = 0;
    scheduler->preempted_event_count = 0;

    grow_running(scheduler);
    add_decode_rows(scheduler);
    continue_prefills(scheduler);
    start_sequences(scheduler);

    assert(step->row_count > 0 || !scheduler_has_work(scheduler));
    scheduler->stats.steps += step->row_count > 0;
    scheduler->stats.rows += step->row_count;
}
