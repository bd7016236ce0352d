/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* judgements: one row per judgement, the opinion of a curator on the answer of one line.
 *
 * A row is never changed and never removed: a change of mind adds a row. The newest row of
 * a (line, curator) counts, and the older ones are the audit trail. Rows stay as long as the row of
 * their batch, which outlives the batch's files. The store knows no meaning of a field or a
 * verdict.
 *
 * Thread: any.
 * Memory: a row owns its texts; store_judgement_release frees them.
 * Invariant: the versions of a (line, curator) are 1..n, and `seq` grows with them.
 * Invariant: an id names one judgement of its batch, so that a repeated call adds no second row. */

#include "store/batches.h"

#define JUDGEMENT_ID_BYTES 65       /* room for 64 characters and a NUL */
#define JUDGEMENT_CURATOR_BYTES 257 /* room for 64 characters of up to 4 bytes, and a NUL */

enum verdict { VERDICT_ACCEPTED, VERDICT_CORRECTED, VERDICT_SKIPPED, VERDICT_COUNT };

struct store_judgement {
    uint64_t seq;                /* set by the store; unique and rising in the state directory */
    char id[JUDGEMENT_ID_BYTES]; /* made by the client */
    char batch_id[STORE_ID_BYTES];
    uint64_t line; /* number of the line in the input file, from 1 */
    char *custom_id;
    char curator[JUDGEMENT_CURATOR_BYTES];
    char key_id[STORE_ID_BYTES]; /* public id of the caller's key; empty: none */
    int64_t created_unix_s;
    uint32_t version; /* from 1 on, per line and curator */
    enum verdict verdict;
    bool flagged;
    int32_t rating; /* 1 to 5; 0: none */
    char *fields;   /* canonical JSON text of the corrected fields, or NULL */
    char *comment;  /* or NULL */
};

void store_judgement_release(struct store_judgement *judgement);
void store_judgements_release(struct store_judgement *judgements, size_t count);

enum judgement_added {
    JUDGEMENT_ADDED,
    JUDGEMENT_KNOWN,    /* the same judgement was added before, under the same id */
    JUDGEMENT_ID_TAKEN, /* another judgement of the batch has the id */
    JUDGEMENT_OUTDATED, /* another version is the next one of this line and curator */
};

/* Adds a judgement as the version that it names, in one transaction that is durable on return.
 * *ret_row is the row of the judgement; with JUDGEMENT_ID_TAKEN the row that has the id; with
 * JUDGEMENT_OUTDATED the newest row of the line and curator, all zero if they have none. The caller
 * releases it after OK. */
enum err store_judgement_add(struct store *store, const struct store_judgement *judgement,
                             enum judgement_added *ret_added, struct store_judgement *ret_row,
                             struct error *error) MUST_CHECK;

/* Chooses rows of one batch. */
struct store_judgement_query {
    const char *batch_id;
    uint64_t after;       /* seq */
    struct str custom_id; /* `at` NULL: all */
    struct str curator;   /* `at` NULL: all */
};

/* Fills at most `limit` rows in the order of seq. The caller releases them. */
enum err store_judgement_list(struct store *store, const struct store_judgement_query *query,
                              size_t limit, struct store_judgement *ret_rows, size_t *ret_count,
                              bool *ret_has_more, struct error *error) MUST_CHECK;

/* Sets marks[line - 1] to 1 for each line up to `count` that the curator has judged. */
enum err store_judgement_mark(struct store *store, const char *batch_id, const char *curator,
                              unsigned char *marks, size_t count, struct error *error) MUST_CHECK;

/* A walk over the newest row of each (line, curator) of a batch, in the order of lines, then of
 * curators. */
struct store_judgement_walk {
    const char *batch_id;
    uint64_t line;                         /* of the latest row; starts at the first line wanted */
    char curator[JUDGEMENT_CURATOR_BYTES]; /* of the latest row; starts empty */
    uint64_t line_last;                    /* the last line wanted */
};

/* Fills at most `limit` further rows and moves the walk behind them; fewer than `limit` are the
 * last. The caller releases them. Each call sees all rows durable at its time. */
enum err store_judgement_newest(struct store *store, struct store_judgement_walk *walk,
                                size_t limit, struct store_judgement *ret_rows, size_t *ret_count,
                                struct error *error) MUST_CHECK;
