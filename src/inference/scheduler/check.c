/* SPDX-License-Identifier: Apache-2.0 */

/* check: the rules that the scheduler keeps, asserted over the whole pool and all requests. */

#include "base/mem.h"
#include "scheduler/kv_pages.h"
#include "scheduler/kv_pool.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"
#include "scheduler/state_places.h"

#include <assert.h>
#include <stdlib.h>

/* How many block tables have a block, and how many of these hold its window pages. */
struct uses {
    uint32_t blocks;
    uint32_t windows;
};

/* Checks the page tables, as far as later rows see the pages. */
static void check_pages(const struct scheduler *scheduler, const struct sequence *sequence,
                        uint32_t index) {
    const struct backend_caps *caps = &scheduler->backend->caps;
    uint32_t block = block_table(scheduler, sequence->slot)[index];
    const uint32_t *pages = page_table(scheduler, sequence->slot) + index;
    uint32_t groups = caps->full_pages + (index >= sequence->passed_count ? caps->window_pages : 0);
    for (uint32_t group = 0; group < groups; group++)
        assert(pages[(size_t)group * scheduler->table_blocks_max] ==
               kv_pages_of(scheduler->pages, block, group));
}

/* Blocks that are full and in the tree are shared; a block still being filled has one owner. */
static void check_blocks(const struct scheduler *scheduler, const struct sequence *sequence,
                         struct uses *uses) {
    const struct backend_caps *caps = &scheduler->backend->caps;
    const uint32_t *table = block_table(scheduler, sequence->slot);
    assert(sequence->block_count <= scheduler->table_blocks_max);
    assert(sequence->node_count <= sequence->computed / BACKEND_BLOCK_TOKENS);
    assert(sequence->node_count <= sequence_token_count(sequence) / BACKEND_BLOCK_TOKENS);
    assert(backend_blocks_for(sequence->computed) <= sequence->block_count);
    assert(sequence->passed_count <= first_seen_block(scheduler, sequence->computed));
    assert(sequence->steps > 0 ||
           sequence->passed_count == first_seen_block(scheduler, sequence->computed));
    if (sequence->part != PREFIX_NONE) {
        assert(sequence->slot_is_new && prefix_tree_has(scheduler->tree, sequence->part));
        uses[sequence->part].blocks++;
        uses[sequence->part].windows += caps->window_pages > 0;
    }
    for (uint32_t i = 0; i < sequence->block_count; i++) {
        uses[table[i]].blocks++;
        uses[table[i]].windows += caps->window_pages > 0 && i >= sequence->passed_count;
        check_pages(scheduler, sequence, i);
        if (i < sequence->node_count)
            assert(prefix_tree_has(scheduler->tree, table[i]));
        else
            assert(!prefix_tree_has(scheduler->tree, table[i]) &&
                   kv_pool_holds(scheduler->pool, table[i]) == 1);
    }
}

static void check_order(const struct sequence *a, const struct sequence *b) {
    int order = waiting_compare_tokens(a->request->prompt, a->request->prompt_count,
                                       b->request->prompt, b->request->prompt_count);
    assert(order < 0 || (order == 0 && a->started < b->started));
}

static void check_running(const struct scheduler *scheduler, struct uses *uses) {
    assert(scheduler->running_count + scheduler->free_slot_count == scheduler->running_max);
    uint32_t urgent = 0;
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        const struct sequence *sequence = scheduler->running[i];
        urgent += sequence->request->is_urgent;
        assert(sequence->state == SEQUENCE_RUNNING && sequence->started > 0);
        assert(sequence->preemptions <= PREEMPTIONS_MAX);
        assert(sequence->slot < scheduler->running_max);
        uint32_t tokens = sequence_token_count(sequence) + sequence->pending;
        /* One that is leaving may have had samples that nobody took. */
        assert(sequence->computed < tokens || sequence->is_leaving);
        assert(tokens <= sequence->request->tokens_max);
        /* A step samples several tokens of a guess. */
        assert(sequence->pending <= sequence->steps ||
               (sequence->steps == 1 && sequence->pending <= 1 + scheduler->draft_tokens_max));
        assert(sequence->steps <= scheduler->under_way);
        assert(!sequence->is_leaving || sequence->steps > 0);
        if (i > 0) check_order(scheduler->running[i - 1], sequence);
        check_blocks(scheduler, sequence, uses);
    }
    assert(urgent == scheduler->urgent_count && urgent <= scheduler->urgent_max);
    assert(scheduler->running_count - urgent <= scheduler->others_max);
}

/* Each place is free, stored, of a running sequence, or of a state to be stored. */
static void check_states(const struct scheduler *scheduler) {
    if (!scheduler->states) return;
    uint32_t pins = 0, unstored = 0;
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        const struct sequence *sequence = scheduler->running[i];
        assert(sequence->state_from == STATE_NONE || sequence->slot_is_new);
        pins += sequence->state_from != STATE_NONE;
        for (uint32_t k = 0; k < sequence->save_count; k++)
            assert(sequence->saves[k] > (k > 0 ? sequence->saves[k - 1] : sequence->computed));
    }
    for (uint32_t i = 0; i < scheduler->under_way; i++) {
        const struct plan *plan = &scheduler->plans[(scheduler->oldest + i) % scheduler->steps_max];
        for (uint32_t k = 0; k < plan->step.sequence_count; k++) unstored += plan->is_unstored[k];
    }
    uint32_t taken = scheduler->backend->caps.state_places -
                     state_places_free_count(scheduler->states) -
                     state_places_stored_count(scheduler->states);
    assert(taken == scheduler->running_count + unstored);
    assert(state_places_check(scheduler->states) == pins);
}

static void check_requests(const struct scheduler *scheduler) {
    uint32_t states[4] = {0, 0, 0, 0};
    uint32_t requests = 0;
    uint32_t in_line = 0;
    for (uint32_t i = 0; i < scheduler->requests.bucket_count; i++) {
        for (const struct live_request *at = scheduler->requests.buckets[i]; at; at = at->next) {
            requests++;
            in_line += at->sequence_next < at->sequence_count;
            uint32_t open = 0;
            for (uint32_t k = 0; k < at->sequence_count; k++) {
                states[at->sequences[k].state]++;
                open += at->sequences[k].state != SEQUENCE_DONE;
            }
            assert(open == at->open_count && open > 0);
        }
    }
    uint32_t preempted = 0;
    for (int kind = 0; kind < LINE_COUNT; kind++) {
        const struct sequence *at = scheduler->lines[kind].preempted;
        for (; at; at = at->next_preempted) {
            assert(at->state == SEQUENCE_PREEMPTED && line_of(at) == (enum line_kind)kind);
            assert(!at->next_preempted || at->started < at->next_preempted->started);
            preempted++;
        }
    }
    assert(requests == scheduler->requests.count &&
           in_line == scheduler->lines[LINE_URGENT].waiting.count +
                          scheduler->lines[LINE_OTHERS].waiting.count);
    assert(states[SEQUENCE_RUNNING] == scheduler->running_count);
    assert(states[SEQUENCE_PREEMPTED] == preempted);
    assert(states[SEQUENCE_WAITING] + states[SEQUENCE_RUNNING] + states[SEQUENCE_PREEMPTED] ==
           scheduler->open_sequences);
}

void scheduler_check(const struct scheduler *scheduler) {
    uint64_t holds = kv_pool_check(scheduler->pool);
    prefix_tree_check(scheduler->tree);
    uint32_t block_count = kv_pool_block_count(scheduler->pool);
    uint64_t window_holds =
        kv_pages_check(scheduler->pages, block_count - kv_pool_free_count(scheduler->pool));
    struct uses *uses = mem_new(block_count, sizeof *uses);
    check_running(scheduler, uses);
    uint64_t entries = 0, window_entries = 0;
    for (uint32_t i = 0; i < block_count; i++) {
        assert(uses[i].blocks == kv_pool_holds(scheduler->pool, i));
        assert(uses[i].windows == kv_pages_window_holds(scheduler->pages, i));
        entries += uses[i].blocks;
        window_entries += uses[i].windows;
    }
    free(uses);
    assert(entries == holds && window_entries == window_holds);
    check_states(scheduler);
    check_requests(scheduler);
}
