/* SPDX-License-Identifier: Apache-2.0 */

/* start: which sequences run: which ones get slots and blocks, and which ones lose them.
 *
 * LINES. Urgent sequences and all others wait in two lines. In each line preempted sequences come
 * before those that never began. No sequence overtakes the first of its line, so that the first
 * does not starve.
 *
 * STATES (state_places.h). A sequence of a model with states takes a place, which a stored state
 * may lose. It goes on from a stored state, or from its beginning, also after a preemption.
 *
 * PREEMPTION. When a sequence needs a block and none is left, a sequence is preempted:
 *   - one that is not urgent before an urgent one;
 *   - among these, the one that loses the fewest generated tokens per page that it alone holds;
 *   - never the one that started first, so that it always ends;
 *   - never one that was preempted PREEMPTIONS_MAX times, which holds all blocks it needs.
 * When no sequence may be preempted, the one that needs the block has no row in this step. Then a
 * sequence that may not be preempted is running, and gives its blocks back when it ends.
 *
 * STARTING. Sequences that are not urgent start while admission expects all running sequences to
 * fit in the pool. The pages that this leaves free for their growth serve urgent sequences too,
 * which start as soon as their prompt fits. When it does not fit, or no slot is free, others are
 * preempted for the first urgent one, if that gains enough. While that one waits for blocks no
 * other sequence starts.
 *
 * FAIRNESS. Urgent sequences leave the others one of URGENT_SLOTS_SHARE slots. They start only
 * while they hold at most all but one of URGENT_PAGES_SHARE pages. An urgent sequence that waits
 * for this limit does not stop the line of the others. When no other sequence runs, the first of
 * that line starts without regard to admission.
 *
 * WINDOW PAGES (kv_pages.h). A sequence starts with the window pages of its whole prompt, and drops
 * them as its rows pass them. It can use a prefix up to the last place before which the window
 * pages exist. */

#include "base/min_max.h"
#include "scheduler/kv_pages.h"
#include "scheduler/kv_pool.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"
#include "scheduler/state_places.h"

#include <assert.h>
#include <math.h>

static uint32_t available_pages(const struct scheduler *scheduler) {
    return prefix_tree_available_pages(scheduler->tree);
}

/* Keys and values of the last sampled token are never stored: no later token reads them. */
static uint32_t blocks_at_most(const struct sequence *sequence) {
    return backend_blocks_for(sequence->request->tokens_max - 1);
}

static bool is_reserved(const struct sequence *sequence) {
    return sequence->preemptions >= PREEMPTIONS_MAX;
}

/* Preemption. */

/* Pages that a running sequence alone holds. */
static uint32_t private_pages(const struct scheduler *scheduler, const struct sequence *sequence) {
    const struct backend_caps *caps = &scheduler->backend->caps;
    const uint32_t *table = block_table(scheduler, sequence->slot);
    uint32_t count = 0;
    for (uint32_t i = 0; i < sequence->block_count; i++) {
        if (kv_pool_holds(scheduler->pool, table[i]) == 1) count += caps->full_pages;
        if (i >= sequence->passed_count && kv_pages_window_holds(scheduler->pages, table[i]) == 1)
            count += caps->window_pages;
    }
    return count;
}

static uint64_t oldest_start(const struct scheduler *scheduler) {
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < scheduler->running_count; i++)
        if (scheduler->running[i]->started < oldest) oldest = scheduler->running[i]->started;
    return oldest;
}

/* The sequence to preempt; NULL without one. O(blocks in use), which is fine: preemption is
 * rare. */
static struct sequence *find_victim(const struct scheduler *scheduler, bool may_be_urgent) {
    uint64_t oldest = oldest_start(scheduler);
    struct sequence *victim = NULL;
    double victim_loss = 0;
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        struct sequence *sequence = scheduler->running[i];
        bool is_urgent = sequence->request->is_urgent;
        if (sequence->started == oldest || is_reserved(sequence)) continue;
        if (is_urgent && (!may_be_urgent || (victim && !victim->request->is_urgent))) continue;
        uint32_t gain = private_pages(scheduler, sequence);
        double loss = gain > 0 ? (double)sequence->generated_count / gain : INFINITY;
        bool is_first = !victim || (victim->request->is_urgent && !is_urgent);
        if (!is_first && loss > victim_loss) continue;
        if (!is_first && loss == victim_loss && sequence->started < victim->started) continue;
        victim = sequence;
        victim_loss = loss;
    }
    return victim;
}

static void preempt(struct scheduler *scheduler, struct sequence *sequence) {
    stop_running(scheduler, sequence);
    sequence->state = SEQUENCE_PREEMPTED;
    sequence->preemptions++;
    struct sequence **link = &scheduler->lines[line_of(sequence)].preempted;
    while (*link && (*link)->started < sequence->started) link = &(*link)->next_preempted;
    sequence->next_preempted = *link;
    *link = sequence;
    scheduler->is_recovering = true;
    scheduler->stats.preemptions++;
    scheduler->preempted_events[scheduler->preempted_event_count++] =
        (struct preempted_event){sequence->request->id, sequence->index};
}

bool grow_running(struct scheduler *scheduler) {
    uint32_t i = 0;
    while (i < scheduler->running_count) {
        struct sequence *sequence = scheduler->running[i];
        uint32_t *table = block_table(scheduler, sequence->slot);
        if (rows_with_block(sequence) >= rows_missing(sequence) || sequence->is_leaving) {
            i++;
        } else if (prefix_tree_take(scheduler->tree, &table[sequence->block_count])) {
            map_block(scheduler, sequence, sequence->block_count++);
        } else if (scheduler->under_way > 0) {
            return false;
        } else {
            struct sequence *victim = find_victim(scheduler, true);
            if (victim) {
                if (running_index(scheduler, victim) < i) i--;
                preempt(scheduler, victim);
            } else {
                i++;
            }
        }
    }
    return true;
}

/* Adds the pages that a running sequence is expected to take in addition to those of its
 * `block_count` blocks, of which `passed_count` have no window pages. */
static void add_expected(const struct scheduler *scheduler, const struct sequence *sequence,
                         uint32_t block_count, uint32_t passed_count, struct admission_load *load) {
    const struct backend_caps *caps = &scheduler->backend->caps;
    const struct live_request *request = sequence->request;
    double mean;
    double variance;
    admission_expect(&scheduler->admission, sequence->generated_count,
                     request->tokens_max - request->prompt_count, &mean, &variance);
    const double tokens = BACKEND_BLOCK_TOKENS;
    double blocks = (sequence_token_count(sequence) + mean) / tokens;
    double seen = caps->window_tokens / tokens + 1;
    double block_pages = caps->full_pages + (blocks <= seen ? caps->window_pages : 0.0);
    load->mean += caps->full_pages * fmax(0, blocks - block_count) +
                  caps->window_pages * fmax(0, fmin(blocks, seen) - (block_count - passed_count));
    load->variance += variance / (tokens * tokens) * block_pages * block_pages;
}

static struct admission_load running_load(const struct scheduler *scheduler) {
    struct admission_load load = {.used = (double)scheduler->backend->caps.page_count -
                                          available_pages(scheduler)};
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        const struct sequence *sequence = scheduler->running[i];
        if (!is_reserved(sequence) && !sequence->is_leaving)
            add_expected(scheduler, sequence, sequence->block_count, sequence->passed_count, &load);
    }
    return load;
}

/* Takes the first in line out of its line. */
static void leave_line(struct scheduler *scheduler, struct sequence *sequence,
                       uint32_t matched_tokens) {
    struct line *line = &scheduler->lines[line_of(sequence)];
    if (sequence->state == SEQUENCE_PREEMPTED) {
        line->preempted = sequence->next_preempted;
        sequence->next_preempted = NULL;
        return;
    }
    struct live_request *request = sequence->request;
    sequence->started = ++scheduler->starts;
    /* Tokens given before the start are no part of the prompt. */
    sequence->cached_tokens = min_u32(matched_tokens, request->prompt_count);
    scheduler->stats.prefix_queried_tokens += request->prompt_count;
    scheduler->stats.prefix_hit_tokens += sequence->cached_tokens;
    const struct scheduler_event event = {.kind = SCHEDULER_STARTED,
                                          .id = request->id,
                                          .sequence = sequence->index,
                                          .cached_tokens = sequence->cached_tokens};
    if (scheduler->on_event) scheduler->on_event(scheduler->user, &event);
    do {
        request->sequence_next++;
    } while (request->sequence_next < request->sequence_count &&
             request->sequences[request->sequence_next].state != SEQUENCE_WAITING);
    if (request->sequence_next == request->sequence_count) waiting_begin_first(&line->waiting);
}

/* The resources that a sequence takes if it starts now. */
struct demand {
    struct match match;
    uint32_t passed; /* matched blocks whose window pages it does not need */
    uint32_t whole;  /* blocks it needs at once */
    uint32_t blocks; /* needed blocks that no sequence uses yet */
    uint32_t pages;  /* needed pages that no sequence uses yet */
};

static bool has_pages(const struct scheduler *scheduler, const struct demand *demand) {
    uint32_t blocks = kv_pool_free_count(scheduler->pool) + kv_pool_cached_count(scheduler->pool);
    return demand->blocks <= blocks && demand->pages <= available_pages(scheduler);
}

static bool has_room(const struct scheduler *scheduler, const struct demand *demand) {
    return has_pages(scheduler, demand) &&
           (!scheduler->states ||
            state_places_can_take(scheduler->states, steps_now(scheduler), demand->match.state));
}

/* Adds a block of the tree and its pages to the demand, as far as no sequence uses them. */
static void demand_node(const struct scheduler *scheduler, uint32_t block, bool is_seen,
                        struct demand *demand) {
    const struct backend_caps *caps = &scheduler->backend->caps;
    bool is_used = kv_pool_holds(scheduler->pool, block) > 0;
    bool is_window_used = kv_pages_window_holds(scheduler->pages, block) > 0;
    demand->blocks += !is_used;
    demand->pages += is_used ? 0 : caps->full_pages;
    demand->pages += is_seen && !is_window_used ? caps->window_pages : 0;
}

/* What a sequence takes that begins with this match, the blocks of which are in `table`. */
static struct demand demand_with(const struct scheduler *scheduler, const struct sequence *sequence,
                                 const struct match *match, const uint32_t *table) {
    struct demand demand = {.match = *match};
    demand.passed = first_seen_block(scheduler, matched_tokens(match));
    demand.whole = is_reserved(sequence) ? blocks_at_most(sequence)
                                         : backend_blocks_for(sequence_token_count(sequence));
    demand.blocks = demand.whole - match->blocks;
    demand.pages = demand.blocks * kv_pages_per_block(scheduler->pages);
    for (uint32_t i = 0; i < match->blocks; i++)
        demand_node(scheduler, table[i], i >= demand.passed, &demand);
    return demand;
}

/* Writes the matched blocks into the table of the slot on top of the stack, which is free. A part
 * is left out where its block could not be kept until it is copied, and with it the state behind
 * it, without which the blocks are of no use. */
static struct demand demand_of(const struct scheduler *scheduler, const struct sequence *sequence) {
    uint32_t *table = block_table(scheduler, scheduler->free_slots[scheduler->free_slot_count - 1]);
    struct match match = match_prefix(scheduler, sequence, table);
    struct demand demand = demand_with(scheduler, sequence, &match, table);
    if (match.part_tokens == 0) return demand;
    struct demand with = demand;
    demand_node(scheduler, match.part, true, &with);
    if (has_pages(scheduler, &with)) return demand;
    match.part_tokens = 0;
    if (scheduler->states) match = (struct match){.state = STATE_NONE, .known = match.known};
    return demand_with(scheduler, sequence, &match, table);
}

/* Takes blocks for table[first..end); has_room has counted them. */
static void take_blocks(struct scheduler *scheduler, uint32_t *table, uint32_t first,
                        uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        bool taken = prefix_tree_take(scheduler->tree, &table[i]);
        assert(taken);
    }
}

/* Holds what a sequence begins with until its first rows: the block of which it gets a part, so
 * that neither it nor its pages are taken, and the stored state. */
static void hold_beginning(struct scheduler *scheduler, struct sequence *sequence,
                           const struct match *match) {
    sequence->part = match->part_tokens > 0 ? match->part : PREFIX_NONE;
    sequence->state_from = match->state;
    if (sequence->part != PREFIX_NONE) {
        kv_pool_hold(scheduler->pool, sequence->part);
        kv_pages_hold_window(scheduler->pages, sequence->part);
    }
    if (match->state != STATE_NONE) state_places_pin(scheduler->states, match->state);
}

/* Takes a place for the state, and decides where states are saved. */
static void start_state(struct scheduler *scheduler, struct sequence *sequence,
                        const struct match *match) {
    bool taken = state_places_take(scheduler->states, steps_now(scheduler), &sequence->state_place);
    assert(taken); /* with nothing running, all places but one can be */
    scheduler->stats.state_hits += match->state != STATE_NONE;
    touch_states(scheduler, sequence, match->blocks);
    plan_saves(scheduler, sequence, match);
}

static void start(struct scheduler *scheduler, struct sequence *sequence,
                  const struct demand *demand) {
    leave_line(scheduler, sequence, matched_tokens(&demand->match));
    uint32_t slot = scheduler->free_slots[--scheduler->free_slot_count];
    uint32_t *table = block_table(scheduler, slot);
    for (uint32_t i = 0; i < demand->match.blocks; i++) {
        kv_pool_hold(scheduler->pool, table[i]);
        if (i >= demand->passed) kv_pages_hold_window(scheduler->pages, table[i]);
    }
    hold_beginning(scheduler, sequence, &demand->match);
    take_blocks(scheduler, table, demand->match.blocks, demand->whole);
    sequence->state = SEQUENCE_RUNNING;
    sequence->slot = slot;
    sequence->slot_is_new = true;
    sequence->block_count = demand->whole;
    sequence->node_count = demand->match.blocks;
    sequence->passed_count = demand->passed;
    sequence->computed = matched_tokens(&demand->match);
    for (uint32_t i = 0; i < demand->whole; i++) map_block(scheduler, sequence, i);
    add_running(scheduler, sequence);
    if (scheduler->states) start_state(scheduler, sequence, &demand->match);
}

enum try { STARTED, WAITS_FOR_ROOM, WAITS_FOR_STATE };

/* `load` is the expected need of the running ones. It does not bind urgent sequences, and not the
 * first of the others, which urgent ones could starve. */
static enum try try_start(struct scheduler *scheduler, struct sequence *sequence,
                          struct admission_load *load) {
    struct demand demand = demand_of(scheduler, sequence);
    if (is_state_coming(scheduler, sequence, matched_tokens(&demand.match))) return WAITS_FOR_STATE;
    struct admission_load with = *load;
    with.used += demand.pages;
    if (!is_reserved(sequence))
        add_expected(scheduler, sequence, demand.whole, demand.passed, &with);
    if (scheduler->running_count > 0) {
        bool is_bound =
            !sequence->request->is_urgent && scheduler->running_count > scheduler->urgent_count;
        if (is_bound && !admission_fits(&with, scheduler->backend->caps.page_count))
            return WAITS_FOR_ROOM;
        if (!has_room(scheduler, &demand)) return WAITS_FOR_ROOM;
    }
    start(scheduler, sequence, &demand);
    *load = with;
    return STARTED;
}

/* True when urgent sequences and this one would hold more than their share of the pages. Then it
 * waits for one of them to end, and does not stop the line of the others. */
static bool is_beyond_share(const struct scheduler *scheduler, const struct sequence *sequence) {
    if (scheduler->urgent_count == 0) return false;
    const struct backend_caps *caps = &scheduler->backend->caps;
    uint64_t held = (uint64_t)backend_blocks_for(sequence_token_count(sequence)) *
                    kv_pages_per_block(scheduler->pages);
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        const struct sequence *other = scheduler->running[i];
        if (!other->request->is_urgent) continue;
        held += (uint64_t)other->block_count * caps->full_pages;
        held += (uint64_t)(other->block_count - other->passed_count) * caps->window_pages;
    }
    return held > scheduler->urgent_pages_max;
}

/* True when slots and shares let the first in line start. */
static bool may_start(const struct scheduler *scheduler, const struct sequence *first) {
    if (scheduler->free_slot_count == 0) return false;
    if (line_of(first) == LINE_OTHERS)
        return scheduler->running_count - scheduler->urgent_count < scheduler->others_max;
    return scheduler->urgent_count < scheduler->urgent_max && !is_beyond_share(scheduler, first);
}

bool start_line(struct scheduler *scheduler, enum line_kind kind, struct plan *plan,
                uint32_t rows_end) {
    struct sequence *sequence = first_in_line(scheduler, kind);
    if (!sequence || !has_row_room(scheduler, plan, rows_end) || !may_start(scheduler, sequence))
        return true;
    if (kind == LINE_OTHERS) {
        if (scheduler->is_recovering && scheduler->running_count > 0 &&
            (uint64_t)available_pages(scheduler) * RECOVERED_SHARE <
                scheduler->backend->caps.page_count)
            return true;
        scheduler->is_recovering = false;
    }
    struct admission_load load = running_load(scheduler);
    while (sequence && has_row_room(scheduler, plan, rows_end) && may_start(scheduler, sequence)) {
        enum try try = try_start(scheduler, sequence, &load);
        if (try != STARTED) return try == WAITS_FOR_STATE;
        if (!is_held_up(scheduler, sequence)) add_prefill_rows(scheduler, plan, sequence, rows_end);
        sequence = first_in_line(scheduler, kind);
    }
    return true;
}

/* Pages gained if all sequences that may be preempted for an urgent one were preempted. */
static uint32_t pages_to_gain(const struct scheduler *scheduler) {
    uint64_t oldest = oldest_start(scheduler);
    uint32_t gain = 0;
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        const struct sequence *sequence = scheduler->running[i];
        if (sequence->request->is_urgent || sequence->started == oldest || is_reserved(sequence))
            continue;
        gain += private_pages(scheduler, sequence);
    }
    return gain;
}

bool make_room(struct scheduler *scheduler) {
    const struct sequence *first = first_in_line(scheduler, LINE_URGENT);
    if (!first || scheduler->urgent_count >= scheduler->urgent_max ||
        is_beyond_share(scheduler, first))
        return true;
    if (scheduler->free_slot_count == 0) {
        struct sequence *victim = find_victim(scheduler, false);
        if (!victim) return true;
        if (scheduler->under_way > 0) return false;
        preempt(scheduler, victim);
    }
    uint32_t needed = demand_of(scheduler, first).pages;
    if (needed > available_pages(scheduler) + pages_to_gain(scheduler)) return true;
    for (;;) {
        const struct demand demand = demand_of(scheduler, first);
        if (has_room(scheduler, &demand)) return true;
        struct sequence *victim = find_victim(scheduler, false);
        if (!victim) return true;
        if (scheduler->under_way > 0) return false;
        preempt(scheduler, victim);
    }
}
