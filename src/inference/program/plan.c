/* SPDX-License-Identifier: Apache-2.0 */
#include "program/plan.h"

#include <assert.h>

uint32_t plan_common_blocks(const struct attention_item *a, const struct attention_item *b,
                            uint32_t window) {
    uint32_t a_first = backend_first_seen_block(window, a->position);
    uint32_t b_first = backend_first_seen_block(window, b->position);
    uint32_t a_end = a->position + a->row_count, b_end = b->position + b->row_count;
    uint32_t most = (a_end < b_end ? a_end : b_end) / KV_BLOCK_TOKENS;
    uint32_t count = a_first < b_first ? a_first : b_first;
    if (a->blocks == b->blocks || count > most) return most;
    while (count < most && a->blocks[count] == b->blocks[count]) count++;
    return count;
}

static const uint32_t *pages_of(const struct step_sequence *sequence, uint32_t group) {
    return sequence->pages + (size_t)group * sequence->page_stride;
}

/* Item `index`: `count` rows of a sequence, from the row at `position` on. */
static void set_item(struct plan *plan, uint32_t index, const struct step_sequence *sequence,
                     uint32_t row, uint32_t position, uint32_t count) {
    uint32_t key_count = plan->is_causal ? position + count : sequence->row_count;
    for (uint32_t i = 0; i < plan->group_count; i++)
        plan->groups[i].items[index] = (struct attention_item){.row = row,
                                                               .row_count = count,
                                                               .position = position,
                                                               .key_count = key_count,
                                                               .blocks = pages_of(sequence, i)};
}

void plan_slots(const struct step_sequence *sequence, uint32_t group, uint32_t page_count,
                uint32_t *slots) {
    const uint32_t *pages = pages_of(sequence, group);
    for (uint32_t i = 0; i < sequence->row_count; i++) {
        uint32_t position = sequence->kv_tokens + i;
        uint32_t page = pages[position / KV_BLOCK_TOKENS];
        assert(page < page_count);
        slots[sequence->row_first + i] = page * KV_BLOCK_TOKENS + position % KV_BLOCK_TOKENS;
    }
}

void plan_step(struct plan *plan, const struct step *step) {
    plan->item_count = 0;
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *sequence = &step->sequences[i];
        assert(plan->is_causal || sequence->kv_tokens == 0);
        for (uint32_t j = 0; j < plan->group_count; j++)
            plan_slots(sequence, j, plan->page_count, plan->groups[j].slots);
        for (uint32_t j = 0; j < sequence->row_count; j++) {
            uint32_t position = sequence->kv_tokens + j, row = sequence->row_first + j;
            assert(step->positions[row] == position);
            if (j % PLAN_ITEM_ROWS != 0) continue;
            uint32_t left = sequence->row_count - j;
            set_item(plan, plan->item_count++, sequence, row, position,
                     left < PLAN_ITEM_ROWS ? left : PLAN_ITEM_ROWS);
        }
    }
}

void plan_keep(struct plan *plan, const struct step *step, const uint32_t *wanted, uint32_t count) {
    uint32_t sequence = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = wanted[i];
        assert(row < step->row_count && (i == 0 || row > wanted[i - 1]));
        while (row >= step->sequences[sequence].row_first + step->sequences[sequence].row_count)
            sequence++;
        set_item(plan, i, &step->sequences[sequence], i, step->positions[row], 1);
    }
    plan->item_count = count;
}
