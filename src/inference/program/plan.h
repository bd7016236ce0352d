/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plan: the places of a step's rows in the KV cache, and the attention work of the step.
 *
 * A slot per row says where HEADS writes its key and value. An item is a run of rows of one
 * sequence, with the pages that ATTENTION reads. Layers of one group (program/kv_layout.h) share
 * both. How items become tasks is the executor's choice: it costs differently on each processor.
 *
 * Thread: one at a time for a plan.
 * Memory: the arrays are the executor's. Items point into the step's page tables, which must not
 *     change while the plan is in use.
 * Invariant: items cover all rows once, in the order of the rows; item i has the same rows in every
 *     group. */

#include "kernels/kernels.h"
#include "program/kv_layout.h"
#include "scheduler/backend.h"

/* Rows of one item: enough to reuse the keys that it reads, few enough to spread. */
#define PLAN_ITEM_ROWS 32u

struct plan_group {
    uint32_t window;              /* positions that the layers see; 0: all */
    uint32_t *slots;              /* (rows_max) page · 16 + offset per row */
    struct attention_item *items; /* (rows_max), item_count of them set */
};

struct plan {
    uint32_t page_count; /* pages of the cache: every slot is in one */
    bool is_causal;
    uint32_t group_count;
    struct plan_group groups[BACKEND_GROUPS_MAX];
    uint32_t item_count; /* per group */
};

/* Sets the slots of a sequence's rows in one group: page · 16 + offset, by row of the step. */
void plan_slots(const struct step_sequence *sequence, uint32_t group, uint32_t page_count,
                uint32_t *slots);
/* Sets the slots of all rows, and the items. */
void plan_step(struct plan *plan, const struct step *step);
/* Makes each of the rows wanted[0..count), ascending, an item of its own: item and row i. */
void plan_keep(struct plan *plan, const struct step *step, const uint32_t *wanted, uint32_t count);
/* The number of leading blocks full of keys that both items read, in a group with that window.
 * Blocks that neither item sees do not end the run. */
uint32_t plan_common_blocks(const struct attention_item *a, const struct attention_item *b,
                            uint32_t window);
