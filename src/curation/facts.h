/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* facts: the uncertainty and the labels of every answer of a batch, by which queues choose lines.
 *
 * The answers of a batch are read when a caller first asks, and each later call reads the
 * answers that have come since. So a batch without such a call costs nothing.
 *
 * Thread: any. A call that reads lets other callers of the same batch wait.
 * Memory: 16 bytes per line from the first call on.
 * Invariant: a fact that is known does not change. */

#include "curation/deck.h"

#define FACT_NOT_TOLD (-1.0f) /* the line does not tell the uncertainty */

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
