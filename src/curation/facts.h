/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* facts: what a queue needs to know of every answer of a batch: how uncertain it is, and its labels.
 *
 * The answers of a batch are read when a caller first asks, and each later call reads those that
 * have come since. So a batch whose queues are not asked for costs nothing.
 *
 * Thread: any. A call that reads keeps other callers of the same batch waiting.
 * Memory: 16 bytes per line from the first call on. */

#include "curation/deck.h"

#define FACT_NOT_TOLD (-1.0f) /* an uncertainty that the line does not tell */

struct fact {
    uint64_t labels;   /* answer_labels (answer.h); 0: there is no answer */
    float uncertainty; /* or FACT_NOT_TOLD */
    bool is_known;     /* the line has a result */
};

void facts_open(struct facts **ret_facts, size_t line_count);
void facts_close(struct facts *facts); /* NULL is allowed */
/* Copies the facts of all lines. The caller frees them. */
enum err facts_copy(struct deck_reader *reader, struct fact **ret_facts,
                    struct error *error) MUST_CHECK;
