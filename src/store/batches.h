/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* batches: one row a batch. The store keeps them and compares states; what a state means and which
 * change is legal is batch/state.h.
 *
 * Thread: any.  Memory: a row owns its long texts; store_batch_release frees them.
 * Invariant: a row changes state only by an UPDATE that names the state it was in. */

#include "store/files.h"

enum batch_status {
    BATCH_VALIDATING,
    BATCH_IN_PROGRESS,
    BATCH_FINALIZING,
    BATCH_CANCELLING,
    /* terminal from here on */
    BATCH_COMPLETED,
    BATCH_FAILED,
    BATCH_EXPIRED,
    BATCH_CANCELLED,
    BATCH_STATUS_COUNT
};

/* Its lines wait until somebody lets it go on. */
enum batch_paused {
    BATCH_NOT_PAUSED,
    BATCH_PAUSED_BY_REQUEST,
    BATCH_PAUSED_BY_QUALITY,
    BATCH_FORGIVEN, /* it was, and goes on in spite of it */
};

struct store_batch {
    /* set by the store when the row is added */
    uint64_t sequence;
    /* fixed at creation */
    char id[STORE_ID_BYTES];
    char owner[OWNER_BYTES];
    char endpoint[64];
    char input_file_id[STORE_ID_BYTES];
    char completion_window[16];
    char *metadata;    /* JSON text, or NULL */
    char *webhook_url; /* or NULL */
    char service_tier[16];
    int32_t priority;               /* lower is sooner */
    int64_t output_expires_after_s; /* 0: never */
    int64_t created_unix_s;
    int64_t expires_unix_s;
    char idempotency_key[256]; /* empty: none; unique for the owner */
    unsigned char parameters_sha256[SHA256_BYTES];
    char retry_of[STORE_ID_BYTES]; /* empty: none */
    char *extras;                  /* JSON text of batch/extras.h, or NULL */
    /* what the life of the batch changes; times are 0 until the state is entered */
    enum batch_status status;
    enum batch_status final_status; /* what finalizing leads to */
    int64_t in_progress_unix_s;
    int64_t finalizing_unix_s;
    int64_t completed_unix_s;
    int64_t failed_unix_s;
    int64_t expired_unix_s;
    int64_t cancelling_unix_s;
    int64_t cancelled_unix_s;
    char model[256];                     /* empty: not known, or several */
    char *errors;                        /* JSON text of the array of errors, or NULL */
    char output_file_id[STORE_ID_BYTES]; /* empty: none */
    char error_file_id[STORE_ID_BYTES];
    uint64_t total;
    uint64_t completed;
    uint64_t failed;
    bool has_usage;
    struct usage usage;
    uint32_t epoch; /* grows with every start that runs the batch */
    enum batch_paused paused;
    char *quality; /* JSON text of what its answers look like, or NULL */
    /* not stored: what a live batch waits for, as the runner says; empty: nothing */
    char waiting_for[128];
};

void store_batch_release(struct store_batch *batch);

/* Adds the row. ERR_CONFLICT when the owner has used the idempotency key. */
enum err store_batch_insert(struct store *store, struct store_batch *batch,
                            struct error *error) MUST_CHECK;

/* What an owner may have under way; zero: as much as it likes. */
struct store_batch_limits {
    uint64_t batches_max;     /* that are not terminal */
    uint64_t input_bytes_max; /* of their input files together */
    const char *over_bytes;   /* the `errors` of a batch that would pass the sum */
};

/* As store_batch_insert within limits. ERR_LIMIT, and no row, for one batch too many; a batch whose
 * input is too much is added as failed, with what the outbox has to tell. */
enum err store_batch_insert_within(struct store *store, struct store_batch *batch,
                                   const struct store_batch_limits *limits,
                                   struct error *error) MUST_CHECK;
/* As store_batch_insert_within, with the batch's input: the spool becomes a file (see
 * store_spool_commit) in the same transaction, and its id the row's input_file_id. The spool is
 * gone afterwards. */
enum err store_batch_insert_with_input(struct store *store, struct store_batch *batch,
                                       const struct store_batch_limits *limits,
                                       struct store_spool *spool, struct store_file *file,
                                       struct error *error) MUST_CHECK;
enum err store_batch_get(struct store *store, struct str id, struct store_batch *ret_batch,
                         struct error *error) MUST_CHECK;
enum err store_batch_get_by_key(struct store *store, const char *owner, const char *idempotency_key,
                                struct store_batch *ret_batch, struct error *error) MUST_CHECK;
/* Newest first, at most `limit` rows of `owner` (NULL: everybody's) after the batch `after` (empty:
 * from the newest). ERR_INVALID when `after` is none of them. The caller releases the rows. */
enum err store_batch_list(struct store *store, const char *owner, struct str after, size_t limit,
                          struct store_batch *ret_batches, size_t *ret_count, bool *ret_has_more,
                          struct error *error) MUST_CHECK;
/* The first batch after `after_sequence`, oldest first, whose state is not terminal; ERR_NOT_FOUND
 * when there is none. */
enum err store_batch_next_live(struct store *store, uint64_t after_sequence,
                               struct store_batch *ret_batch, struct error *error) MUST_CHECK;
/* Writes what the life of a batch changes, adds `files` (placed before) and, when this ends the
 * batch, what the outbox has to tell, in one transaction, if the row is in state `from`; else
 * ERR_CONFLICT and nothing is written. */
enum err store_batch_update(struct store *store, const struct store_batch *batch,
                            enum batch_status from, const struct store_file *files,
                            size_t file_count, struct error *error) MUST_CHECK;
/* How many batches are in each state. */
enum err store_batch_counts(struct store *store, uint64_t ret_counts[BATCH_STATUS_COUNT],
                            struct error *error) MUST_CHECK;
/* Removes the segments and the line index of a terminal batch: its results are published. What
 * tells in which order they came stays. */
enum err store_batch_forget_log(struct store *store, const char *batch_id,
                                struct error *error) MUST_CHECK;
