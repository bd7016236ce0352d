/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* judgements_internal: the sums of judgements, for the files of store/ alone.
 *
 * Thread: any; the lock of the database is held.
 * Memory: none.
 * Invariant: the sums change in the transaction that adds the row. */

#include "store/judgements.h"
#include "store/store_internal.h"

/* The bytes that a row counts: its texts and JUDGEMENT_ROW_BYTES. */
#define JUDGEMENT_BYTES                                                                            \
    "(400 + length(CAST(custom_id AS BLOB)) + length(CAST(curator AS BLOB))"                       \
    " + coalesce(length(CAST(fields AS BLOB)), 0) + coalesce(length(CAST(comment AS BLOB)), 0))"

/* Gives a row for each batch whose sums are not those of its judgements. */
#define JUDGEMENT_SUMS_BROKEN                                                                      \
    "SELECT batch_id, line, curator FROM (SELECT batch_id, min(line) AS line,"                     \
    " min(curator) AS curator, count(*) AS judgements, sum" JUDGEMENT_BYTES " AS bytes,"           \
    " count(DISTINCT curator) AS curators FROM judgements GROUP BY batch_id) AS found"             \
    " WHERE NOT EXISTS (SELECT 1 FROM judgement_sums AS s WHERE s.batch_id = found.batch_id"       \
    " AND s.judgements = found.judgements AND s.bytes = found.bytes"                               \
    " AND s.curators = found.curators)"

/* Adds a judgement to the sums of its batch. ERR_INVALID if its line or batch is full, ERR_LIMIT if
 * the batch's owner has no room. */
enum err judgement_sums_add(struct store *store, const struct store_judgement *judgement,
                            const struct store_judgement_limits *limits,
                            struct error *error) MUST_CHECK;
