/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* batches: one row per batch.
 *
 * The store keeps the rows and compares states; batch/state.h says what a state means and which
 * change is legal.
 *
 * Thread: any.
 * Memory: a row owns its long texts; store_batch_release frees them.
 * Invariant: a row changes state only by an UPDATE that names the state it was in. */

#include "store/proofs.h"

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

/* Why the lines of a batch wait. */
enum batch_paused {
    BATCH_NOT_PAUSED,
    BATCH_PAUSED_BY_REQUEST,
    BATCH_PAUSED_BY_QUALITY, /* its answers look wrong (batch/quality.h) */
    BATCH_FORGIVEN,          /* a client resumed it after that: quality pauses it no more */
};

#define STORE_WAITING_BYTES 384

struct store_batch {
    /* set by the store when the row is added */
    uint64_t sequence;
    /* fixed when the batch is created */
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
    char idempotency_key[256]; /* unique per owner; empty: none */
    unsigned char parameters_sha256[SHA256_BYTES];
    char retry_of[STORE_ID_BYTES]; /* empty: none */
    char *extras;                  /* JSON text of batch/extras.h, or NULL */
    uint64_t inline_requests;      /* requests that came with the call; 0: they came as a file */
    /* changed by store_batch_update; times are 0 until the state is entered */
    enum batch_status status;
    enum batch_status final_status; /* the state that follows finalizing */
    int64_t in_progress_unix_s;
    int64_t finalizing_unix_s;
    int64_t completed_unix_s;
    int64_t failed_unix_s;
    int64_t expired_unix_s;
    int64_t cancelling_unix_s;
    int64_t cancelled_unix_s;
    char model[256];                     /* empty: unknown, or several */
    char *errors;                        /* JSON text of the array of errors, or NULL */
    char output_file_id[STORE_ID_BYTES]; /* empty: none */
    char error_file_id[STORE_ID_BYTES];
    uint64_t total;
    uint64_t completed;
    uint64_t failed;
    bool has_usage;
    struct usage usage;
    uint32_t epoch; /* one more at every start of a server that runs the batch */
    enum batch_paused paused;
    char *quality; /* JSON text of quality_write in batch/quality.h, or NULL */
    /* not stored: the runner's words for what an unfinished batch waits for; empty: nothing */
    char waiting_for[STORE_WAITING_BYTES];
    /* not stored: when the runner deletes the batch (runner_options.keep_days); 0: never */
    int64_t delete_unix_s;
};

void store_batch_release(struct store_batch *batch);

/* Adds the row. ERR_CONFLICT when the owner has used the idempotency key. */
enum err store_batch_insert(struct store *store, struct store_batch *batch,
                            struct error *error) MUST_CHECK;

/* Limits of an owner's unfinished batches; 0: no limit. */
struct store_batch_limits {
    uint64_t batches_max;     /* unfinished batches */
    uint64_t input_bytes_max; /* bytes of their input files together */
    /* The `errors` of a batch that would exceed input_bytes_max; NULL: it is no batch. */
    const char *over_bytes;
};

/* store_batch_insert within limits. ERR_LIMIT, and no row, for one batch too many. A batch whose
 * input has too many bytes is added as failed, with the outbox rows of its end; without `over_bytes`
 * it is ERR_LIMIT. */
enum err store_batch_insert_within(struct store *store, struct store_batch *batch,
                                   const struct store_batch_limits *limits,
                                   struct error *error) MUST_CHECK;
/* store_batch_insert_within that also makes the spool a file (as store_spool_commit), the batch's
 * input, in the same transaction. The row's input_file_id becomes the file's id. The spool is
 * freed, also after an error. */
enum err store_batch_insert_with_input(struct store *store, struct store_batch *batch,
                                       const struct store_batch_limits *limits,
                                       struct store_spool *spool, struct store_file *file,
                                       struct error *error) MUST_CHECK;
/* Counts an owner's unfinished batches, and the bytes of their input files. */
enum err store_owner_load(struct store *store, const char *owner, uint64_t *ret_batches,
                          uint64_t *ret_input_bytes, struct error *error) MUST_CHECK;
enum err store_batch_get(struct store *store, struct str id, struct store_batch *ret_batch,
                         struct error *error) MUST_CHECK;
enum err store_batch_get_by_key(struct store *store, const char *owner, const char *idempotency_key,
                                struct store_batch *ret_batch, struct error *error) MUST_CHECK;
/* Fills at most `limit` rows of `owner` (NULL: all owners), newest first, after the batch `after`
 * (empty: from the newest on). ERR_INVALID when `after` is none of them. The caller releases the
 * rows. */
enum err store_batch_list(struct store *store, const char *owner, struct str after, size_t limit,
                          struct store_batch *ret_batches, size_t *ret_count, bool *ret_has_more,
                          struct error *error) MUST_CHECK;
/* A page of the batches for /v1/messages, newest first. */
struct store_message_page {
    const char *owner; /* NULL: all owners */
    struct str after;  /* id of a batch: the page of older ones; empty: from the newest on */
    struct str before; /* id of a batch: the page of newer ones that ends at it; empty: `after` */
    size_t limit;
};

/* Fills at most `limit` rows, which the caller releases; *ret_has_more tells of more rows in the
 * direction of the page. ERR_INVALID when `after` or `before` is none of these batches. */
enum err store_message_batch_list(struct store *store, const struct store_message_page *page,
                                  struct store_batch *ret_batches, size_t *ret_count,
                                  bool *ret_has_more, struct error *error) MUST_CHECK;
/* Which batches store_batch_find finds; zero is all of them. */
struct store_batch_wish {
    const char *owner; /* NULL: all owners */
    uint32_t statuses; /* a bit per enum batch_status; 0: all */
    struct str text;   /* in the id, the metadata or the name of the input file, ASCII letters in
                          any case; empty: all */
};
#define STORE_BATCH_FIND_ROWS 2000 /* rows that one call looks at */

/* As store_batch_list, for batches that a reader looks for. It looks at STORE_BATCH_FIND_ROWS rows
 * at most: fewer batches than `limit` are no end while *ret_has_more is true, and the next call goes
 * on after the batch ret_last, the last one that was looked at (empty: none). */
enum err store_batch_find(struct store *store, const struct store_batch_wish *wish,
                          struct str after, size_t limit, struct store_batch *ret_batches,
                          size_t *ret_count, bool *ret_has_more, char ret_last[STORE_ID_BYTES],
                          struct error *error) MUST_CHECK;
/* The first unfinished batch after `after_sequence`, oldest first; ERR_NOT_FOUND without one. */
enum err store_batch_next_live(struct store *store, uint64_t after_sequence,
                               struct store_batch *ret_batch, struct error *error) MUST_CHECK;
/* What a batch gets at its end. */
struct store_published {
    struct store_file files[2]; /* (file_count) that were placed by store_spool_place */
    size_t file_count;
    struct store_proof proofs[STORE_PROOFS_MAX]; /* (proof_count) */
    size_t proof_count;
};

/* Writes the changeable fields, adds the rows of `published` (NULL: none) and, if the batch ends,
 * the outbox rows of its end. All of it is one transaction, for a row in state `from`; for any
 * other state it is ERR_CONFLICT and writes nothing. */
enum err store_batch_update(struct store *store, const struct store_batch *batch,
                            enum batch_status from, const struct store_published *published,
                            struct error *error) MUST_CHECK;
/* When a batch ended; 0 before. */
int64_t store_batch_end_unix_s(const struct store_batch *batch);
/* Counts the batches in each state. */
enum err store_batch_counts(struct store *store, uint64_t ret_counts[BATCH_STATUS_COUNT],
                            struct error *error) MUST_CHECK;
/* Removes the segments and the line index of an ended batch, whose results are published. The order
 * of the results (STORE_ORDER_NAME) stays. */
enum err store_batch_forget_log(struct store *store, const char *batch_id,
                                struct error *error) MUST_CHECK;
/* The name of the order of results of a batch whose lines were erased: it is made of the ids of its
 * files. */
#define STORE_ORDER_NAME_BYTES 32
void store_order_name(char ret_name[STORE_ORDER_NAME_BYTES], const struct store_batch *batch);
/* True for STORE_ORDER_NAME and for such a name. */
bool store_order_is_name(struct str name);
/* Finds the order that belongs to the files of the row: by that name, else STORE_ORDER_NAME. False
 * if there is none. */
bool store_order_find(const struct store *store, const struct store_batch *batch,
                      char ret_name[STORE_ORDER_NAME_BYTES]);
/* Removes the orders of files that the batch has no more. */
enum err store_order_keep_one(struct store *store, const char *batch_id,
                              struct error *error) MUST_CHECK;
