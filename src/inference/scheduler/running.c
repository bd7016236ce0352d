/* SPDX-License-Identifier: Apache-2.0 */

/* running: the running sequences in their order, their rows and blocks, and who is first in line.
 *
 * They stand in the order of their prompts, so that sequences with a common prefix are neighbours
 * in a step. start.c says which sequences run, compose.c which rows they get. */

#include "scheduler/kv_pages.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"
#include "scheduler/state_places.h"

#include <assert.h>
#include <string.h>

uint32_t rows_missing(const struct sequence *sequence) {
    uint32_t count = sequence_token_count(sequence) + sequence->pending;
    bool is_last = sequence->pending > 0 && count == sequence->request->tokens_max;
    return is_last ? 0 : count - sequence->computed;
}

uint32_t rows_with_block(const struct sequence *sequence) {
    return sequence->block_count * BACKEND_BLOCK_TOKENS - sequence->computed;
}

bool has_block_for_next(const struct sequence *sequence) {
    return rows_with_block(sequence) > 0;
}

bool is_in_decode(const struct scheduler *scheduler, const struct sequence *sequence) {
    return !sequence->is_leaving && rows_missing(sequence) == 1 && has_block_for_next(sequence) &&
           !is_held_up(scheduler, sequence);
}

bool is_to_be_scored(const struct sequence *sequence) {
    const struct live_request *request = sequence->request;
    return request->sampling.prompt_logprobs && sequence->scored + 1 < request->prompt_count;
}

/* --- the lines --- */

struct sequence *first_in_line(const struct scheduler *scheduler, enum line_kind kind) {
    const struct line *line = &scheduler->lines[kind];
    if (line->preempted) return line->preempted;
    struct waiting_item *item = waiting_first(&line->waiting);
    if (!item) return NULL;
    struct live_request *request = (struct live_request *)item; /* its first member */
    return &request->sequences[request->sequence_next];
}

bool scheduler_has_work(const struct scheduler *scheduler) {
    return scheduler->running_count > 0 || first_in_line(scheduler, LINE_URGENT) ||
           first_in_line(scheduler, LINE_OTHERS);
}

/* --- the order --- */

uint32_t running_index(const struct scheduler *scheduler, const struct sequence *sequence) {
    const struct live_request *request = sequence->request;
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

void add_running(struct scheduler *scheduler, struct sequence *sequence) {
    uint32_t index = running_index(scheduler, sequence);
    struct sequence **at = &scheduler->running[index];
    memmove(at + 1, at, (scheduler->running_count - index) * sizeof(struct sequence *));
    *at = sequence;
    scheduler->running_count++;
    scheduler->urgent_count += sequence->request->is_urgent;
}

static void remove_running(struct scheduler *scheduler, const struct sequence *sequence) {
    uint32_t index = running_index(scheduler, sequence);
    struct sequence **at = &scheduler->running[index];
    assert(index < scheduler->running_count && *at == sequence);
    scheduler->running_count--;
    scheduler->urgent_count -= sequence->request->is_urgent;
    memmove(at, at + 1, (scheduler->running_count - index) * sizeof(struct sequence *));
}

/* --- blocks --- */

void map_block(const struct scheduler *scheduler, const struct sequence *sequence, uint32_t index) {
    uint32_t block = block_table(scheduler, sequence->slot)[index];
    uint32_t *pages = page_table(scheduler, sequence->slot) + index;
    for (uint32_t group = 0; group < kv_pages_per_block(scheduler->pages); group++)
        pages[(size_t)group * scheduler->table_blocks_max] =
            kv_pages_of(scheduler->pages, block, group);
}

void leave_window(struct scheduler *scheduler, struct sequence *sequence) {
    const uint32_t *table = block_table(scheduler, sequence->slot);
    uint32_t first = first_seen_block(scheduler, sequence->computed);
    assert(sequence->steps == 0 || scheduler->steps_max > 1);
    for (; sequence->passed_count < first; sequence->passed_count++)
        prefix_tree_drop_window(scheduler->tree, table[sequence->passed_count]);
}

/* ---- states ---- */

void let_go_part(struct scheduler *scheduler, struct sequence *sequence) {
    if (sequence->part == PREFIX_NONE) return;
    prefix_tree_drop_window(scheduler->tree, sequence->part);
    prefix_tree_drop(scheduler->tree, sequence->part);
    sequence->part = PREFIX_NONE;
}

void let_go_state(struct scheduler *scheduler, struct sequence *sequence) {
    if (sequence->state_from == STATE_NONE) return;
    state_places_unpin(scheduler->states, sequence->state_from);
    sequence->state_from = STATE_NONE;
}

void stop_running(struct scheduler *scheduler, struct sequence *sequence) {
    assert(sequence->state == SEQUENCE_RUNNING && sequence->steps == 0);
    remove_running(scheduler, sequence);
    let_go_part(scheduler, sequence);
    if (scheduler->states) {
        let_go_state(scheduler, sequence);
        state_places_free(scheduler->states, sequence->state_place);
    }
    const uint32_t *table = block_table(scheduler, sequence->slot);
    for (uint32_t i = sequence->block_count; i-- > 0;) {
        if (i >= sequence->passed_count) prefix_tree_drop_window(scheduler->tree, table[i]);
        prefix_tree_drop(scheduler->tree, table[i]);
    }
    scheduler->free_slots[scheduler->free_slot_count++] = sequence->slot;
    sequence->computed = sequence->block_count = sequence->node_count = 0;
    sequence->passed_count = sequence->slot = sequence->pending = 0;
    sequence->save_count = sequence->unstored = 0;
}
