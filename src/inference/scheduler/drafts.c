/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/drafts.h"

#include "base/min_max.h"
#include "scheduler/kv_pages.h"
#include "scheduler/kv_pool.h"
#include "scheduler/prefix_tree.h"
#include "scheduler/state.h"

#include <assert.h>

/* Fewer common tokens tell nothing. */
#define LENGTH_MIN 2u
/* Tokens of a text that are looked at, the last ones: a look takes some microseconds. */
#define LOOKED_AT 16384u
/* A chance moves by 1/PACE towards what was seen. */
#define PACE 8u
/* Rows are added where they bring this many times the tokens per time. */
#define GAIN_MIN 1.02
/* Drafts take no block while less than 1/FREE_SHARE of the pages is free. */
#define FREE_SHARE 8u

/* Chances in 1/255 before any is learned, by the length from LENGTH_MIN on. */
static const uint8_t first_chances[SEQUENCE_DRAFT_LENGTHS] = {90, 128, 153, 178, 190, 204, 217};

static uint32_t index_of_length(uint32_t length) {
    return min_u32(length - LENGTH_MIN, SEQUENCE_DRAFT_LENGTHS - 1);
}

static int32_t token_at(const struct sequence *sequence, uint32_t at) {
    const struct live_request *request = sequence->request;
    return at < request->prompt_count ? request->prompt[at]
                                      : sequence->generated[at - request->prompt_count];
}

/* How many tokens up to `at` equal those up to `last`, as far as it matters. */
static uint32_t common_length(const struct sequence *sequence, uint32_t at, uint32_t last) {
    uint32_t length = 0;
    while (length < LENGTH_MIN + SEQUENCE_DRAFT_LENGTHS - 1 && length <= at &&
           token_at(sequence, at - length) == token_at(sequence, last - length))
        length++;
    return length;
}

void draft_find(struct draft *ret_draft, struct sequence *sequence, uint32_t room) {
    *ret_draft = (struct draft){.sequence = sequence};
    const uint32_t last = sequence_token_count(sequence) - 1;
    const uint32_t first = last > LOOKED_AT ? last - LOOKED_AT : 0;
    uint32_t length = LENGTH_MIN - 1, place = 0;
    for (uint32_t at = last; at-- > first && length < LENGTH_MIN + SEQUENCE_DRAFT_LENGTHS - 1;) {
        if (token_at(sequence, at) != token_at(sequence, last)) continue;
        uint32_t common = common_length(sequence, at, last);
        if (common > length) length = common, place = at;
    }
    if (length < LENGTH_MIN) return;
    ret_draft->length = length;
    for (uint32_t i = 0; i < min_u32(room, DRAFT_TOKENS_MAX); i++) {
        /* A text that repeats itself goes on with the guess. */
        const uint32_t at = place + 1 + i;
        const int32_t token =
            at <= last ? token_at(sequence, at) : ret_draft->tokens[at - last - 1];
        if (sampling_is_stop(&sequence->request->sampling, token, UINT32_MAX)) break;
        ret_draft->tokens[ret_draft->found++] = token;
    }
}

static uint8_t *chance_at(const struct draft *draft, uint32_t index) {
    if (draft->is_from_model) return guess_chance_at(draft->sequence, draft->certainty[index]);
    uint8_t *chance = &draft->sequence->draft_chances[index_of_length(draft->length + index)];
    if (*chance == 0) *chance = first_chances[index_of_length(draft->length + index)];
    return chance;
}

double draft_chance(const struct draft *draft, uint32_t index) {
    return *chance_at(draft, index) / 255.0;
}

static void learn(uint8_t *chance, bool is_right) {
    if (is_right)
        *chance = (uint8_t)(*chance + (255u - *chance + PACE - 1) / PACE);
    else
        *chance = (uint8_t)(*chance - (*chance - 1u) / PACE);
}

void draft_learn(const struct draft *draft, uint32_t known) {
    const struct sequence *sequence = draft->sequence;
    const uint32_t count = sequence_token_count(sequence);
    bool is_right = true;
    for (uint32_t i = 0; i < draft->found && known + i < count && is_right; i++) {
        is_right = token_at(sequence, known + i) == draft->tokens[i];
        learn(chance_at(draft, i), is_right);
        if (i == 0 && draft->is_from_model) learn(guess_chance_of_first(draft->sequence), is_right);
    }
}

/* ---- the drafts of a step ---- */

/* Whether the next step has rows of decode alone, as far as is known before it is composed. */
static bool may_draft(const struct scheduler *scheduler) {
    const uint32_t others = scheduler->running_count - scheduler->urgent_count;
    return scheduler->draft_tokens_max > 0 && scheduler->steps_max == 1 && !scheduler->states &&
           scheduler->running_count <= DRAFT_SEQUENCES_MAX &&
           !first_in_line(scheduler, LINE_URGENT) &&
           (others >= scheduler->others_max || !first_in_line(scheduler, LINE_OTHERS));
}

/* The most rows that guesses may have, with `rows` rows that the sequences need anyway. */
static uint32_t room_for(const struct scheduler *scheduler, uint32_t rows) {
    const uint32_t rows_max = min_u32(scheduler->rows_max, STEP_COSTS_ROWS);
    const uint32_t logit_rows = scheduler->logit_rows_max - scheduler->running_count;
    return rows < rows_max ? min_u32(rows_max - rows, logit_rows) : 0;
}

/* The most tokens that a guess for a sequence may have: the last one of all has no row. */
static uint32_t room_of(const struct scheduler *scheduler, const struct sequence *sequence) {
    const struct live_request *request = sequence->request;
    if (is_to_be_scored(sequence) || (request->is_constrained && !scheduler->ahead)) return 0;
    return min_u32(request->tokens_max - sequence_token_count(sequence) - 1,
                   scheduler->draft_tokens_max);
}

/* Gives the guesses rows, the likeliest token first, as long as tokens per time grow. */
static void share_rows(const struct scheduler *scheduler, struct draft *drafts, uint32_t count,
                       uint32_t rows) {
    const uint32_t room = room_for(scheduler, rows);
    double chances[DRAFT_SEQUENCES_MAX] = {0}, tokens = count;
    uint32_t order[STEP_COSTS_ROWS], taken = 0, best = 0;
    if (room == 0 || count == 0) return;
    double most = tokens / step_costs_of(&scheduler->costs, rows) * GAIN_MIN;
    for (uint32_t i = 0; i < count; i++)
        chances[i] = drafts[i].found > 0 ? draft_chance(&drafts[i], 0) : 0;
    while (taken < room) {
        uint32_t next = 0;
        for (uint32_t i = 1; i < count; i++)
            if (chances[i] > chances[next]) next = i;
        if (chances[next] <= 0) break;
        struct draft *draft = &drafts[next];
        tokens += chances[next];
        order[taken++] = next;
        draft->count++;
        chances[next] *= draft->count < draft->found ? draft_chance(draft, draft->count) : 0;
        const double rate = tokens / step_costs_of(&scheduler->costs, rows + taken);
        if (rate > most) most = rate, best = taken;
    }
    while (taken > best) drafts[order[--taken]].count--;
}

/* Takes a block for rows of guesses where many are free: no sequence loses one for them. */
static bool take_block(struct scheduler *scheduler, struct sequence *sequence) {
    const uint32_t pages = kv_pages_free_count(scheduler->pages);
    if (pages < scheduler->backend->caps.page_count / FREE_SHARE ||
        pages < kv_pages_per_block(scheduler->pages) || kv_pool_free_count(scheduler->pool) == 0 ||
        sequence->block_count == scheduler->table_blocks_max)
        return false;
    uint32_t *table = block_table(scheduler, sequence->slot);
    if (!prefix_tree_take(scheduler->tree, &table[sequence->block_count])) return false;
    map_block(scheduler, sequence, sequence->block_count++);
    return true;
}

/* Keeps the rows of a guess that have a place in the cache, and whose tokens may come. */
static void fit(struct scheduler *scheduler, struct draft *draft) {
    struct sequence *sequence = draft->sequence;
    const struct live_request *request = sequence->request;
    while (rows_with_block(sequence) < 1 + draft->count && take_block(scheduler, sequence))
        continue;
    draft->count = min_u32(draft->count, rows_with_block(sequence) - 1);
    if (draft->count > 0 && request->is_constrained)
        draft->count = scheduler->ahead(scheduler->user, request->id, sequence->index,
                                        draft->tokens, draft->count, draft->allowed);
    sequence_foresee(sequence, draft->tokens, draft->count);
}

uint32_t drafts_choose(struct scheduler *scheduler) {
    scheduler->guessed_ns = 0;
    if (!may_draft(scheduler)) return 0;
    uint32_t count = 0, rows = 0;
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        struct sequence *sequence = scheduler->running[i];
        if (sequence->is_leaving) continue;
        rows += rows_missing(sequence);
        if (!is_in_decode(scheduler, sequence)) continue;
        draft_find(&scheduler->drafts[count++], sequence, room_of(scheduler, sequence));
    }
    for (uint32_t i = 0; i < count && scheduler->guess && count <= SCHEDULER_GUESSED_MAX; i++)
        guess_for(scheduler, &scheduler->drafts[i],
                  room_of(scheduler, scheduler->drafts[i].sequence), rows);
    share_rows(scheduler, scheduler->drafts, count, rows);
    for (uint32_t i = 0; i < count; i++) fit(scheduler, &scheduler->drafts[i]);
    return count;
}
