/* SPDX-License-Identifier: Apache-2.0 */

/* compose: which rows the next step has.
 *
 *   1. Every running sequence in decode gets a block when it needs one (start.c).
 *   2. Rows of decode are added, one per sequence, in the order of their prompts: neighbours share
 *      blocks.
 *      Where nothing else is to be computed, guesses of its next tokens follow (drafts.h).
 *      Rows of given tokens follow: all that a sequence has, as far as there is room.
 *   3. Rows of prefill of urgent sequences are added; with room left, urgent sequences start.
 *   4. Rows of prefill of the others are added; with room left, others start.
 *
 * A sequence starts only in a step with room, behind the rows of all sequences before it. Suppose
 * that many sequences share a prefix that no step has computed. Then the first one's blocks are in
 * the tree before the second looks for them, although both start in one step. So no prefix is
 * computed twice.
 *
 * URGENT STEPS. While a step is under way an urgent step may pass it (backend.h). It has prefill of
 * urgent sequences without rows in the step under way, so that a request that arrives during a long
 * step waits for a slice of it and not for its end. No work is discarded. Blocks that the step
 * under way writes are in the tree, but an urgent sequence does not use them: it finds a prefix
 * only up to them, and computes the rest itself. At retiring both copies become one block again.
 *
 * STATES. A sequence saves at most one state per step (saves.c), and its rows end before the second
 * place. One that begins with a state, or a part of a block, which the step being composed writes
 * has no rows in it (match.c). So the sequences that share a prefix begin in the step that computes
 * it, and have rows in the next one.
 *
 * AHEAD. With steps_max 2 a step is composed while another is under way. Then:
 *   - A sequence whose next token is pending has a decode row all the same. When the token ends it,
 *     the row is for nothing. The ends at max_tokens and of the context are known before; such a
 *     sequence has no row more.
 *   - No sequence is preempted: all may have rows under way. Where a block is missing the step is
 *     not begun, and the one under way ends first.
 *   - A sequence may be given tokens where its next one is pending. What the step under way samples
 *     for it is thrown away, and the given tokens are rows of the next step.
 *   - A block of a pending token enters the tree when that token is known.
 *
 * LOGIT ROWS. A backend may have room for fewer logit rows than rows, but for one per sequence.
 * Rows of decode come first. A prompt that is scored takes half of the room that is left, so that
 * prefill behind it can end and sample. Without any room no prefill has rows: its last one could
 * sample.
 *
 * FAIRNESS. Per row of a step at most URGENT_ROWS_PER_ROW urgent rows pass it. Urgent prefill
 * leaves the others a quarter of the rows that decode leaves. start.c shares slots and blocks.
 * Every sequence in decode or with given tokens, urgent or not, has a row in every step.
 *
 * LIVENESS. A step has rows whenever work exists. With no running sequence the first in line starts
 * without regard to admission; scheduler_submit has checked that it fits alone. */

#include "base/min_max.h"
#include "base/rng.h"
#include "scheduler/kv_pages.h"
#include "scheduler/kv_pool.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"
#include "scheduler/state_places.h"

#include <assert.h>

/* Puts `found` in the place of a block with the same tokens, which is dropped. When `found` has
 * lost its window pages it gets those of the dropped block. */
static void swap_block(struct scheduler *scheduler, struct sequence *sequence, uint32_t index,
                       uint32_t found) {
    uint32_t *table = block_table(scheduler, sequence->slot);
    uint32_t own = table[index];
    kv_pool_hold(scheduler->pool, found);
    if (index >= sequence->passed_count) {
        if (kv_pages_has_window(scheduler->pages, found)) {
            kv_pages_hold_window(scheduler->pages, found);
            prefix_tree_drop_window(scheduler->tree, own);
        } else {
            kv_pages_move_window(scheduler->pages, own, found);
        }
    }
    prefix_tree_drop(scheduler->tree, own);
    table[index] = found;
    map_block(scheduler, sequence, index);
}

void enter_blocks(struct scheduler *scheduler, struct sequence *sequence, bool may_swap) {
    if (!scheduler->is_caching) return;
    uint32_t *table = block_table(scheduler, sequence->slot);
    uint32_t known = min_u32(sequence->computed, sequence_token_count(sequence));
    uint32_t full = known / BACKEND_BLOCK_TOKENS;
    for (uint32_t i = sequence->node_count; i < full; i++) {
        uint32_t parent = i > 0 ? table[i - 1] : PREFIX_ROOT;
        int32_t tokens[BACKEND_BLOCK_TOKENS];
        sequence_tokens(sequence, i * BACKEND_BLOCK_TOKENS, BACKEND_BLOCK_TOKENS, tokens);
        uint32_t found;
        uint64_t salt = sequence->request->cache_salt;
        if (!prefix_tree_find(scheduler->tree, parent, salt, tokens, &found)) {
            prefix_tree_add(scheduler->tree, parent, salt, tokens, table[i]);
        } else {
            if (!may_swap) return;
            swap_block(scheduler, sequence, i, found);
        }
        sequence->node_count = i + 1;
    }
}

static const uint32_t *allowed_of(const struct scheduler *scheduler,
                                  const struct sequence *sequence) {
    const struct live_request *request = sequence->request;
    if (!request->is_constrained) return NULL;
    return scheduler->allowed(scheduler->user, request->id, sequence->index);
}

/* Whether the changes of a sequence's logits depend on its last token. */
static bool depends_on_tokens(const struct live_request *request) {
    const struct sampling *sampling = &request->sampling;
    return request->is_constrained || sampling->bad_word_ints > 0 ||
           sampling_has_frequency(sampling) || sampling_has_repetition(sampling);
}

static void add_logit_row(const struct scheduler *scheduler, struct plan *plan,
                          struct sequence *sequence, uint32_t row) {
    const struct live_request *request = sequence->request;
    struct step *step = &plan->step;
    bool is_pending = sequence->pending > 0; /* the row's token is not known */
    bool is_late = is_pending && depends_on_tokens(request);
    uint32_t index = step->logit_count++;
    plan->late_count += is_late;
    plan->logit_rows[index] = (struct logit_row){
        .row = row,
        .sequence = step->sequence_count - 1,
        .index = index,
        .sampling = &request->sampling,
        .seed = sequence->index == 0 ? request->seed : rng_at(request->seed, sequence->index),
        .counter = sequence->generated_count + sequence->pending,
        .prompt = request->prompt,
        .prompt_count = request->prompt_count,
        .generated = is_pending ? NULL : sequence->generated,
        .allowed = is_pending ? NULL : allowed_of(scheduler, sequence),
        .is_late = is_late,
    };
    sequence->pending++;
}

/* Adds the logit row of a guess behind the one of the token before it. */
static void add_draft_row(struct plan *plan, struct sequence *sequence, const uint32_t *allowed) {
    const uint32_t index = plan->step.logit_count++;
    struct logit_row *row = &plan->logit_rows[index];
    *row = plan->logit_rows[index - 1];
    row->row++;
    row->index = index;
    row->counter++;
    row->generated = sequence->generated;
    row->allowed = allowed;
    sequence->pending++;
    sequence->computed++;
}

uint32_t compose_late(const struct scheduler *scheduler, struct plan *plan) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->step.logit_count && plan->late_count > 0; i++) {
        const struct logit_row *row = &plan->logit_rows[i];
        const struct sequence *sequence = plan->members[row->sequence];
        if (!row->is_late || sequence->is_leaving || is_for_nothing(sequence, row)) continue;
        assert(row->counter == sequence->generated_count);
        struct logit_row *late = &plan->late_rows[count++];
        *late = *row;
        late->generated = sequence->generated;
        late->allowed = allowed_of(scheduler, sequence);
    }
    return count;
}

/* Adds logit rows for the prompt tokens that follow positions sequence->computed and on, whose rows
 * begin at `row`. Tokens scored before a preemption are left out. */
static void add_scored_rows(struct plan *plan, struct sequence *sequence, uint32_t row,
                            uint32_t count) {
    const struct live_request *request = sequence->request;
    struct step *step = &plan->step;
    for (uint32_t i = 0; i < count && is_to_be_scored(sequence); i++) {
        if (sequence->computed + i < sequence->scored) continue;
        sequence->scored++;
        uint32_t index = step->logit_count++;
        plan->logit_rows[index] = (struct logit_row){.row = row + i,
                                                     .sequence = step->sequence_count - 1,
                                                     .index = index,
                                                     .sampling = &request->sampling,
                                                     .prompt = request->prompt,
                                                     .prompt_count = request->prompt_count,
                                                     .scored = &request->prompt[sequence->scored]};
    }
}

/* Writes the tokens at sequence->computed and on. In decode the only one may be pending. */
static void write_tokens(const struct sequence *sequence, uint32_t count, int32_t *ret_tokens) {
    if (sequence->computed < sequence_token_count(sequence)) {
        sequence_tokens(sequence, sequence->computed, count, ret_tokens);
    } else {
        assert(count == 1 && sequence->pending == 1 && !sequence->slot_is_new);
        *ret_tokens = backend_pending(sequence->slot);
    }
}

/* Copies the pages of the part that a sequence begins with, and lets go of it. */
static void copy_part(struct scheduler *scheduler, struct plan *plan, struct sequence *sequence) {
    const uint32_t part = sequence->part;
    if (part == PREFIX_NONE) return;
    const uint32_t to =
        block_table(scheduler, sequence->slot)[sequence->computed / BACKEND_BLOCK_TOKENS];
    for (uint32_t group = 0; group < kv_pages_per_block(scheduler->pages); group++)
        plan->copies[plan->step.copy_count++] =
            (struct page_copy){.from = kv_pages_of(scheduler->pages, part, group),
                               .to = kv_pages_of(scheduler->pages, to, group)};
    let_go_part(scheduler, sequence);
}

/* Says where the state of the part that was added last comes from. */
static void add_state(struct scheduler *scheduler, struct plan *plan, struct sequence *sequence) {
    struct step_sequence *part = &plan->sequences[plan->step.sequence_count - 1];
    const uint32_t stored = sequence->state_from;
    part->state = part->state_from = sequence->state_place;
    if (sequence->slot_is_new)
        part->state_from = stored == STATE_NONE ? BACKEND_STATE_ZERO : stored;
    if (stored != STATE_NONE) {
        state_places_note_read(scheduler->states, stored, steps_now(scheduler));
        let_go_state(scheduler, sequence);
    }
    state_places_note_written(scheduler->states, sequence->state_place, steps_now(scheduler));
}

/* Adds the next `count` tokens of a running sequence to a step, and the rows of a guess (NULL:
 * none) behind them. */
static void add_guessed_rows(struct scheduler *scheduler, struct plan *plan,
                             struct sequence *sequence, uint32_t count, const struct draft *draft) {
    struct step *step = &plan->step;
    const uint32_t first = step->row_count, known = count;
    write_tokens(sequence, count, plan->tokens + first);
    for (uint32_t i = 0; draft && i < draft->count; i++)
        plan->tokens[first + count++] = draft->tokens[i];
    assert(count > 0 && count <= plan->rows_max - first && sequence->newest_step != step->number);
    for (uint32_t i = 0; i < count; i++) plan->positions[first + i] = sequence->computed + i;

    uint32_t end = sequence->computed + count;
    copy_part(scheduler, plan, sequence);
    const uint32_t *table = block_table(scheduler, sequence->slot);
    assert(backend_blocks_for(end) <= sequence->block_count);
    for (uint32_t i = sequence->computed / BACKEND_BLOCK_TOKENS; i < backend_blocks_for(end); i++)
        scheduler->written_in[table[i]] = step->number;
    plan->members[step->sequence_count] = sequence;
    plan->sequences[step->sequence_count++] = (struct step_sequence){
        .slot = sequence->slot,
        .slot_is_new = sequence->slot_is_new,
        .row_first = first,
        .row_count = count,
        .kv_tokens = sequence->computed,
        .block_count = backend_blocks_for(end),
        .page_stride = scheduler->table_blocks_max,
        .pages = page_table(scheduler, sequence->slot),
    };
    if (scheduler->states) add_state(scheduler, plan, sequence);
    step->row_count += count;
    sequence->slot_is_new = false;
    sequence->newest_step = step->number;
    sequence->steps++;
    if (is_to_be_scored(sequence)) add_scored_rows(plan, sequence, first, count);
    sequence->computed += known;
    if (rows_missing(sequence) == 0) add_logit_row(scheduler, plan, sequence, first + known - 1);
    for (uint32_t i = known; i < count; i++)
        add_draft_row(plan, sequence, draft->allowed[i - known]);
    assert(sequence->computed == end);
    enter_blocks(scheduler, sequence, false);
    if (scheduler->states) save_state(scheduler, plan, sequence);
}

static void add_rows(struct scheduler *scheduler, struct plan *plan, struct sequence *sequence,
                     uint32_t count) {
    add_guessed_rows(scheduler, plan, sequence, count, NULL);
}

static void add_decode_rows(struct scheduler *scheduler, struct plan *plan) {
    uint32_t next = 0;
    plan->draft_count = drafts_choose(scheduler);
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        struct sequence *sequence = scheduler->running[i];
        if (!is_in_decode(scheduler, sequence)) continue;
        const struct draft *draft = next < plan->draft_count ? &scheduler->drafts[next++] : NULL;
        add_guessed_rows(scheduler, plan, sequence, 1, draft);
    }
    assert(next == plan->draft_count);
}

/* Whether the sequence is past its prompt and has rows of known tokens before its next one: given
 * tokens, or those that a preemption makes it compute again. */
static bool has_given(const struct sequence *sequence) {
    return !sequence->is_leaving && rows_missing(sequence) > 1 &&
           sequence->computed >= sequence->request->prompt_count;
}

/* Each such sequence gets a row at least, as if it were in decode. */
static void add_given_rows(struct scheduler *scheduler, struct plan *plan) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < scheduler->running_count; i++)
        left += has_given(scheduler->running[i]) && has_block_for_next(scheduler->running[i]);
    for (uint32_t i = 0; i < scheduler->running_count && left > 0; i++) {
        struct sequence *sequence = scheduler->running[i];
        if (!has_given(sequence) || !has_block_for_next(sequence)) continue;
        left--;
        assert(has_row_room(scheduler, plan, plan->rows_max - left));
        add_prefill_rows(scheduler, plan, sequence, plan->rows_max - left);
    }
}

bool has_row_room(const struct scheduler *scheduler, const struct plan *plan, uint32_t rows_end) {
    return plan->step.row_count < rows_end && plan->step.logit_count < scheduler->logit_rows_max;
}

void add_prefill_rows(struct scheduler *scheduler, struct plan *plan, struct sequence *sequence,
                      uint32_t rows_end) {
    uint32_t count = min_u32(rows_missing(sequence), rows_end - plan->step.row_count);
    count = min_u32(count, min_u32(rows_with_block(sequence), rows_to_save(sequence)));
    uint32_t logit_room = scheduler->logit_rows_max - plan->step.logit_count;
    if (scheduler->logit_rows_max < plan->rows_max && is_to_be_scored(sequence))
        count = min_u32(count, (logit_room + 1) / 2);
    add_rows(scheduler, plan, sequence, count);
    scheduler->stats.prefill_rows += count;
}

/* True when a sequence needs more rows than the last one before its next token. When a single token
 * of a prompt is left, its row counts as decode in a step, and as prefill in an urgent step. */
static bool is_in_prefill(const struct sequence *sequence, bool is_urgent_step) {
    return rows_missing(sequence) > 1 || (is_urgent_step && sequence->generated_count == 0);
}

static void continue_prefills(struct scheduler *scheduler, enum line_kind kind, struct plan *plan,
                              uint32_t rows_end) {
    if (kind == LINE_URGENT && scheduler->urgent_count == 0) return;
    for (uint32_t i = 0; i < scheduler->running_count && has_row_room(scheduler, plan, rows_end);
         i++) {
        struct sequence *sequence = scheduler->running[i];
        /* No urgent step has rows of a sequence in the step under way. */
        bool is_busy = sequence->newest_step == plan->step.number ||
                       (plan == &scheduler->urgent && sequence->steps > 0);
        if (line_of(sequence) == kind && !is_busy && !sequence->is_leaving &&
            has_block_for_next(sequence) && is_in_prefill(sequence, plan == &scheduler->urgent) &&
            !is_held_up(scheduler, sequence))
            add_prefill_rows(scheduler, plan, sequence, rows_end);
    }
}

static void begin_plan(struct scheduler *scheduler, struct plan *plan) {
    plan->step.number = ++scheduler->step_number;
    plan->step.row_count = plan->step.sequence_count = plan->step.logit_count = 0;
    plan->step.copy_count = plan->late_count = plan->draft_count = 0;
}

static void count_plan(struct scheduler *scheduler, const struct plan *plan) {
    scheduler->stats.steps += plan->step.row_count > 0;
    scheduler->stats.rows += plan->step.row_count;
}

static bool has_others(const struct scheduler *scheduler) {
    return scheduler->running_count > scheduler->urgent_count ||
           first_in_line(scheduler, LINE_OTHERS);
}

bool compose_step(struct scheduler *scheduler) {
    struct plan *plan = plan_at(scheduler, scheduler->under_way);
    const struct step *step = &plan->step;
    scheduler->preempted_event_count = 0;
    if (!grow_running(scheduler) || !make_room(scheduler)) return false;
    begin_plan(scheduler, plan);
    add_decode_rows(scheduler, plan);
    add_given_rows(scheduler, plan);
    uint32_t left = plan->rows_max - step->row_count;
    uint32_t others_rows = left / OTHERS_ROWS_SHARE;
    uint32_t rows_end = plan->rows_max - (has_others(scheduler) ? others_rows : 0);
    continue_prefills(scheduler, LINE_URGENT, plan, rows_end);
    bool is_clear = start_line(scheduler, LINE_URGENT, plan, rows_end);
    rows_end = plan->rows_max;
    if (scheduler->urgent_count > 0)
        rows_end = max_u32(rows_end / URGENT_ROWS_SHARE, step->row_count + others_rows);
    continue_prefills(scheduler, LINE_OTHERS, plan, rows_end);
    if (is_clear) start_line(scheduler, LINE_OTHERS, plan, rows_end);

    assert(step->row_count > 0 || scheduler->under_way > 0 || !scheduler_has_work(scheduler));
    count_plan(scheduler, plan);
    scheduler->urgent_left = step->row_count * URGENT_ROWS_PER_ROW;
    scheduler->is_passed = false;
    return step->row_count > 0;
}

bool compose_urgent(struct scheduler *scheduler) {
    struct plan *plan = &scheduler->urgent;
    uint32_t rows_end = min_u32(plan->rows_max, scheduler->urgent_left);
    if (rows_end == 0) return false;
    if (scheduler->urgent_count == 0 && !first_in_line(scheduler, LINE_URGENT)) return false;
    begin_plan(scheduler, plan);
    continue_prefills(scheduler, LINE_URGENT, plan, rows_end);
    start_line(scheduler, LINE_URGENT, plan, rows_end);
    count_plan(scheduler, plan);
    if (plan->step.row_count > 0) scheduler->is_passed = true;
    scheduler->stats.urgent_steps += plan->step.row_count > 0;
    scheduler->stats.urgent_rows += plan->step.row_count;
    scheduler->urgent_left -= plan->step.row_count;
    return plan->step.row_count > 0;
}
