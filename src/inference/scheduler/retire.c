/* SPDX-License-Identifier: Apache-2.0 */

/* retire: the samples of a step, and how sequences end.
 *
 * A sequence ends when a sampled token was its last (here), when the caller cancels it, or when the
 * caller finds a stop string. The caller may do so inside on_event, and while the device computes
 * rows of the sequence. The blocks of such rows must not be given away before the step has ended.
 * So a sequence with rows under way only gets `is_leaving`, and is removed when all samples of
 * those steps are taken; that is one step later for a sequence in the next step already. Ending a
 * sequence twice is allowed.
 *
 * GIVEN TOKENS. With two steps under way the next step has a row of the last known token already,
 * whose sample would come where the given tokens are. Its keys and values are needed; its sample is
 * for nothing, and is thrown away.
 *
 * GUESSES (drafts.h). A row of a guess that proves wrong has left keys and values behind the
 * sequence's last known token. No row sees them: the sequence goes on from its first unknown
 * position, whose rows write there again.
 *
 * PAGES. What a step gives back at its end may be written by later steps only, and steps touch the
 * cache in the order of their submits (backend.h). So it does no harm that the next step, under way
 * already, still reads there: with steps_max 2 the backend has copied its page tables. */

#include "base/min_max.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"

#include <assert.h>
#include <stddef.h>

static void report(const struct scheduler *scheduler, const struct scheduler_event *event) {
    if (scheduler->on_event) scheduler->on_event(scheduler->user, event);
}

static void remove_preempted(struct scheduler *scheduler, struct sequence *sequence) {
    struct sequence **link = &scheduler->lines[line_of(sequence)].preempted;
    while (*link != sequence) {
        assert(*link);
        link = &(*link)->next_preempted;
    }
    *link = sequence->next_preempted;
    sequence->next_preempted = NULL;
}

/* Takes a sequence that never started out of its request's line. */
static void remove_waiting(struct scheduler *scheduler, struct sequence *sequence) {
    struct live_request *request = sequence->request;
    sequence->state = SEQUENCE_DONE;
    if (sequence->index != request->sequence_next) return;
    while (request->sequence_next < request->sequence_count &&
           request->sequences[request->sequence_next].state != SEQUENCE_WAITING)
        request->sequence_next++;
    if (request->sequence_next == request->sequence_count)
        waiting_remove(&scheduler->lines[line_of(sequence)].waiting, &request->waiting);
}

/* Takes a sequence out of all lists and reports its end; the last one of a request frees it. */
static void let_go(struct scheduler *scheduler, struct sequence *sequence) {
    assert(sequence->state != SEQUENCE_DONE);
    struct live_request *request = sequence->request;
    if (sequence->state == SEQUENCE_RUNNING) stop_running(scheduler, sequence);
    if (sequence->state == SEQUENCE_PREEMPTED) remove_preempted(scheduler, sequence);
    if (sequence->state == SEQUENCE_WAITING) remove_waiting(scheduler, sequence);
    sequence->state = SEQUENCE_DONE;
    scheduler->stats.finished++;
    scheduler->open_sequences--;
    if (sequence->reason != FINISH_CANCELLED)
        admission_learn(&scheduler->admission, sequence->generated_count);

    struct scheduler_event event = {
        .kind = SCHEDULER_FINISHED,
        .id = request->id,
        .sequence = sequence->index,
        .reason = sequence->reason,
        .has_stop_token = sequence->has_stop_token,
        .prompt_tokens = request->prompt_count,
        .cached_tokens = sequence->cached_tokens,
        .generated_tokens = sequence->generated_count,
    };
    if (sequence->has_stop_token) event.token = sequence->generated[sequence->generated_count - 1];
    /* Before the report: inside it the caller may submit the same id again, or cancel this one. */
    if (--request->open_count == 0) {
        request_table_remove(&scheduler->requests, request);
        live_request_close(request);
    }
    report(scheduler, &event);
}

void mark_leaving(struct scheduler *scheduler, struct sequence *sequence,
                  enum finish_reason reason) {
    if (sequence->state == SEQUENCE_DONE || sequence->is_leaving) return;
    sequence->reason = reason;
    sequence->is_leaving = true;
    sequence->next_leaving = scheduler->leaving;
    scheduler->leaving = sequence;
}

void let_go_leaving(struct scheduler *scheduler) {
    struct sequence **link = &scheduler->leaving;
    while (*link) {
        struct sequence *sequence = *link;
        if (sequence->steps > 0) {
            link = &sequence->next_leaving;
            continue;
        }
        *link = sequence->next_leaving;
        let_go(scheduler, sequence);
        /* on_event may have called this function and changed the list. */
        link = &scheduler->leaving;
    }
}

/* Appends a token; `sample` is NULL for a given one. */
static void take_token(struct scheduler *scheduler, struct sequence *sequence, int32_t token,
                       const struct sample *sample) {
    const struct live_request *request = sequence->request;
    assert(token >= 0 && (uint32_t)token < scheduler->backend->caps.vocab);
    sequence_append(sequence, token);
    scheduler->stats.generated_tokens++;
    struct scheduler_event event = {
        .kind = SCHEDULER_TOKEN,
        .id = request->id,
        .sequence = sequence->index,
        .token = token,
        .token_index = sequence->generated_count - 1,
        .sample = request->sampling.logprobs ? sample : NULL,
        .is_given = !sample,
    };
    report(scheduler, &event);
    if (sequence->is_leaving) return; /* on_event has ended it */
    if (sampling_is_stop(&request->sampling, token, sequence->generated_count)) {
        sequence->has_stop_token = true;
        mark_leaving(scheduler, sequence, FINISH_STOP);
    } else if (sequence_token_count(sequence) == request->tokens_max) {
        mark_leaving(scheduler, sequence, FINISH_LENGTH);
    }
}

void take_given(struct scheduler *scheduler, struct sequence *sequence) {
    const struct live_request *request = sequence->request;
    if (!scheduler->given || !request->is_constrained || sequence->is_leaving) return;
    int32_t tokens[SCHEDULER_GIVEN_MAX];
    uint32_t room =
        min_u32(request->tokens_max - sequence_token_count(sequence), SCHEDULER_GIVEN_MAX);
    uint32_t count = scheduler->given(scheduler->user, request->id, sequence->index, room, tokens);
    assert(count <= room);
    /* A token that the step under way would sample has its place taken: see is_for_nothing. */
    if (count > 0) sequence->pending = 0;
    for (uint32_t i = 0; i < count && !sequence->is_leaving; i++)
        take_token(scheduler, sequence, tokens[i], NULL);
}

static void take_score(const struct scheduler *scheduler, const struct sequence *sequence,
                       const struct logit_row *row, const struct sample *sample) {
    struct scheduler_event event = {
        .kind = SCHEDULER_SCORED,
        .id = sequence->request->id,
        .sequence = sequence->index,
        .token = *row->scored,
        .token_index = (uint32_t)(row->scored - row->prompt),
        .sample = sample,
    };
    report(scheduler, &event);
}

/* Whether a row of a guess has computed the token that its sequence has there. */
static bool is_right(const struct sequence *sequence, const struct logit_row *row, int32_t guess) {
    return row->counter <= sequence->generated_count &&
           sequence->generated[row->counter - 1] == guess;
}

/* Takes the samples of a guess, whose first logit row is number `first`, up to the first wrong
 * token. Rows behind that one are as if they had never been computed. */
static void take_guessed(struct scheduler *scheduler, const struct plan *plan, uint32_t first,
                         const struct draft *draft) {
    struct sequence *sequence = draft->sequence;
    sequence->computed -= draft->count;
    sequence->pending = 0;
    scheduler->stats.drafts++;
    scheduler->stats.draft_tokens += draft->count;
    for (uint32_t i = 0; i <= draft->count && !sequence->is_leaving; i++) {
        const struct logit_row *row = &plan->logit_rows[first + i];
        if (i > 0 && !is_right(sequence, row, draft->tokens[i - 1])) break;
        sequence->computed += i > 0;
        scheduler->stats.accepted_tokens += i > 0;
        if (row->counter < sequence->generated_count) continue; /* a given token is there */
        take_token(scheduler, sequence, plan->samples[first + i].token, &plan->samples[first + i]);
        take_given(scheduler, sequence);
    }
}

/* The guess whose first row this is; NULL: the row belongs to none. */
static const struct draft *draft_of(const struct scheduler *scheduler, const struct plan *plan,
                                    const struct logit_row *row) {
    if (row->sequence >= plan->draft_count) return NULL;
    const struct draft *draft = &scheduler->drafts[row->sequence];
    return draft->count > 0 ? draft : NULL;
}

/* Takes the samples of a step, which has no sequences afterwards. */
static void take_samples(struct scheduler *scheduler, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->step.logit_count; i++) {
        const struct logit_row *row = &plan->logit_rows[i];
        const struct sample *sample = &plan->samples[i];
        struct sequence *sequence = plan->members[row->sequence];
        const struct draft *draft = draft_of(scheduler, plan, row);
        if (draft) {
            take_guessed(scheduler, plan, i, draft);
            i += draft->count;
            continue;
        }
        if (is_for_nothing(sequence, row)) continue;
        sequence->pending -= !row->scored;
        if (sequence->is_leaving) continue;
        if (row->scored) {
            take_score(scheduler, sequence, row, sample);
        } else {
            take_token(scheduler, sequence, sample->token, sample);
            take_given(scheduler, sequence);
        }
    }
    for (uint32_t i = 0; i < plan->draft_count; i++)
        draft_learn(&scheduler->drafts[i], plan->sequences[i].kv_tokens + 1);
    for (uint32_t i = 0; i < plan->step.sequence_count; i++) plan->members[i]->steps--;
}

/* Called when the blocks are in the tree, so that their window pages are cached and not freed. */
static void leave_windows(struct scheduler *scheduler, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->step.sequence_count; i++)
        leave_window(scheduler, plan->members[i]);
}

void retire_step(struct scheduler *scheduler) {
    const struct plan *plan = plan_at(scheduler, 0);
    scheduler->ended_rows = scheduler->is_passed ? 0 : plan->step.row_count;
    take_samples(scheduler, plan);
    for (uint32_t i = 0; i < plan->step.sequence_count; i++)
        enter_blocks(scheduler, plan->members[i], true);
    store_states(scheduler, plan);
    leave_windows(scheduler, plan);
    /* From here on the step is not under way, and on_event may end its sequences at once. */
    scheduler->under_way--;
    scheduler->oldest = (scheduler->oldest + 1) % scheduler->steps_max;
    let_go_leaving(scheduler);
}

/* Does not swap blocks that another sequence has entered meanwhile: the step under way may not have
 * written them yet. The sequence's next step swaps them. */
void retire_urgent(struct scheduler *scheduler) {
    take_samples(scheduler, &scheduler->urgent);
    store_states(scheduler, &scheduler->urgent);
    leave_windows(scheduler, &scheduler->urgent);
    let_go_leaving(scheduler);
}
