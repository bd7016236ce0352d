/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* judgements: one row per judgement, the opinion of a curator on the answer of one line.
 *
 * A row is never changed: a change of mind adds a row. The newest row of a (line, curator) counts,
 * and the older ones are the audit trail. Rows stay as long as the row of their batch, which
 * outlives the batch's files, unless their line is erased (erased.h): then all rows of the line go.
 * The store knows no meaning of a field or a verdict.
 *
 * Thread: any.
 * Memory: a row owns its texts; store_judgement_release frees them.
 * Invariant: the versions of a (line, curator) are 1..n, and `seq` grows with them.
 * Invariant: an id names one judgement of its batch, so that a repeated call adds no second row.
 * Invariant: per batch and per owner, the sums of the rows are known without a walk over them
 *     (judgement_sums.c), so that a bound costs the same for the first and for the millionth row.
 */

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

/* What a row takes beyond its texts, in the table and its four indexes. */
#define JUDGEMENT_ROW_BYTES 400

/* Bounds of what clients may add. A curator's name is the client's text, so that without bounds a
 * line or a batch holds any number of rows. All versions count. */
struct store_judgement_limits {
    uint64_t line_rows, line_bytes; /* totals of one line */
    uint64_t batch_rows, batch_bytes, batch_curators;
    uint64_t owner_bytes; /* total of the batch's owner, files and uploads included; 0: no bound */
};
/* 1,000 rows of 4 MiB per line, 1,000,000 rows of 1 GiB and 1,000 curators per batch. */
extern const struct store_judgement_limits store_judgement_limits_usual;

/* Adds a judgement as the version that it names, in one transaction that is durable on return.
 * ERR_INVALID if a line or batch has as many as the limits allow, ERR_LIMIT if its owner has no
 * room left. `limits` NULL: the usual ones.
 * *ret_row is the row of the judgement; with JUDGEMENT_ID_TAKEN the row that has the id; with
 * JUDGEMENT_OUTDATED the newest row of the line and curator, all zero if they have none. The caller
 * releases it after OK. */
enum err store_judgement_add(struct store *store, const struct store_judgement *judgement,
                             const struct store_judgement_limits *limits,
                             enum judgement_added *ret_added, struct store_judgement *ret_row,
                             struct error *error) MUST_CHECK;

/* Texts that a reading call copies at most, and one row more. */
#define JUDGEMENT_PIECE_BYTES ((size_t)1 << 20)
/* Rows that one call looks at, because it holds the lock of the database. */
#define JUDGEMENT_PIECE_ROWS 4096

/* Chooses rows of one batch. */
struct store_judgement_query {
    const char *batch_id;
    uint64_t after;       /* seq; a call moves it behind the rows that it has looked at */
    struct str custom_id; /* `at` NULL: all */
    struct str curator;   /* `at` NULL: all */
};

/* Fills at most `limit` rows in the order of seq, also fewer or none while *ret_has_more. The
 * caller releases them. */
enum err store_judgement_list(struct store *store, struct store_judgement_query *query,
                              size_t limit, struct store_judgement *ret_rows, size_t *ret_count,
                              bool *ret_has_more, struct error *error) MUST_CHECK;

/* Sets marks[line - 1] to 1 for each line up to `count` that the curator has judged. */
enum err store_judgement_mark(struct store *store, const char *batch_id, const char *curator,
                              unsigned char *marks, size_t count, struct error *error) MUST_CHECK;

/* A walk over the newest row of each (line, curator) of a batch, in the order of lines, then of
 * curators. */
struct store_judgement_walk {
    const char *batch_id;
    uint64_t line;                         /* the latest row's; starts at the first line wanted */
    char curator[JUDGEMENT_CURATOR_BYTES]; /* the latest row's; starts empty */
    uint64_t line_last;                    /* the last line wanted */
};

/* Fills at most `limit` further rows and moves the walk behind them; also fewer while
 * *ret_has_more. The caller releases them. Each call sees all rows durable at its time. */
enum err store_judgement_newest(struct store *store, struct store_judgement_walk *walk,
                                size_t limit, struct store_judgement *ret_rows, size_t *ret_count,
                                bool *ret_has_more, struct error *error) MUST_CHECK;
