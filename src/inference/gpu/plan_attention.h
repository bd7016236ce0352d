/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plan_attention: the attention of a step as a GPU's work (gpu/table.h).
 *
 * A group's layers have one list of work, for they see the same keys. Groups with the same window
 * share it too: only page numbers and slots differ. A decode row is a decode item; a piece of a
 * prompt is tile items; keys that several sequences share are prefix items, read once, from whose
 * partials the rows continue (plan_prefix.h). With few rows the decode items are cut
 * (plan_decode.h). Behind OP_KEEP the wanted rows have a list of their own.
 *
 * It knows no GPU, no program and no arithmetic.
 *
 * Thread: one at a time.
 * Memory: sized at open; a step allocates nothing. Results are valid until the next step.
 * Invariant: the items of a row have each key that it sees exactly once. A partial is left by one
 *     item and read by one of a later launch. Equal steps give equal plans. */

#include "gpu/table.h"
#include "program/kv_layout.h"
#include "scheduler/backend.h"

struct plan_attention_options {
    const struct kv_layout *layout; /* copied */
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t kept_group;      /* group of the last layer, which alone runs behind OP_KEEP */
    uint32_t tile_rows_heads; /* gpu_table's, as split_tokens */
    uint32_t split_tokens;
    uint64_t prefix_reads_min; /* likewise */
    uint32_t multiprocessors;  /* gpu_info's; 0: decode items are never cut */
    uint32_t page_count;       /* pages in the cache: every slot is in one */
    uint32_t rows_max;
    uint32_t sequences_max;
    uint32_t context_max;
    /* Steps are of whole texts, whose rows see later ones as well: all of their text, or with a
     * window, of which a row is the middle, as many behind as before it. */
    bool sees_both;
};

/* For gpu_limits. */
struct plan_attention_sizes {
    uint32_t pages_max;
    uint32_t items_max;
    uint32_t partials_max;
};

struct plan_attention;

struct plan_attention_sizes plan_attention_sizes(const struct plan_attention_options *options);
/* ERR_LIMIT without memory. */
enum err plan_attention_open(struct plan_attention **ret_plan,
                             const struct plan_attention_options *options,
                             struct error *error) MUST_CHECK;
void plan_attention_close(struct plan_attention *plan); /* NULL is allowed */
/* The work of a step, one struct per group of the layout. `wanted`, (wanted_count) ascending, are
 * the rows behind OP_KEEP. */
const struct gpu_group *plan_attention_step(struct plan_attention *plan, const struct step *step,
                                            const uint32_t *wanted, uint32_t wanted_count);
