/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* card: one line as a curator's page shows it, and the shape of all answers of its batch.
 *
 * Thread: any.
 * Memory: the texts of one line, from both batches. */

#include "curation/deck.h"

struct card_source {
    struct store *store;
    const char *batch_id;
    struct deck_reader *reader;
    struct deck_reader *with; /* another batch, whose answer is shown, too; NULL: none */
    const char *with_id;
};

/* Appends the card of a line that has a result:
 * {"line","custom_id","request","result","answer","text","uncertainty","other","judgements"}. */
enum err card_write(struct buf *buf, const struct card_source *source, uint32_t line,
                    struct error *error) MUST_CHECK;
/* Appends the JSON schema that the requests of all lines ask for, or null if they ask for none or
 * for different ones. The schema of a decision is made from its questions. */
enum err card_write_schema(struct buf *buf, struct deck_reader *reader,
                           struct error *error) MUST_CHECK;
