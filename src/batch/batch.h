/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* batch: the domain: what a client may ask for, what a batch looks like, and its creation. States
 * are in state.h, checking of the input file in validate.h, result lines in result.h, the output
 * files in publish.h.
 *
 * No threads, no sockets, no clock: times are arguments.
 *
 * Thread: any; a struct belongs to one.  Memory: as each function says. */

#include "base/buf.h"
#include "json/envelope.h"
#include "json/json.h"
#include "protocol/request.h"
#include "store/batches.h"

/* What the operator allows; batch_rules_default gives quern's own. */
struct batch_rules {
    uint64_t lines_max;       /* at most BATCH_LINES_MAX */
    uint64_t line_bytes_max;  /* at most BATCH_LINE_BYTES_MAX */
    size_t errors_max;        /* reported for one file */
    bool strict_url;          /* a line's url must be the batch's endpoint */
    bool strict_single_model; /* all lines name one model */
    bool webhook_http;        /* a batch's webhook may be a plain http URL */
    bool needs_model;         /* else lines may leave the model out when only one is served */
    bool extended_windows;    /* 1m … 30d instead of 24h only */
};
#define BATCH_LINES_MAX 1000000u
#define BATCH_LINE_BYTES_MAX ((uint64_t)16 << 20)
#define BATCH_ERRORS_MAX 1000u
struct batch_rules batch_rules_default(void);

/* Checked parameters of a create call. */
struct batch_parameters {
    char input_file_id[STORE_ID_BYTES];
    enum endpoint endpoint;
    char completion_window[16];
    int64_t window_s;
    char *metadata;    /* JSON text, or NULL; owned */
    char *webhook_url; /* owned, or NULL */
    char service_tier[16];
    int32_t priority;
    int64_t output_expires_after_s;
    char *extras;                       /* JSON text of batch/extras.h, or NULL; owned */
    char retry_of[STORE_ID_BYTES];      /* empty: not a retry */
    char idempotency_key[256];          /* from the body; a header's is put here by the caller */
    char owner[OWNER_BYTES];            /* put here by the caller, as the next two; 0: no limit */
    uint64_t batches_max;               /* of this owner that are not terminal */
    uint64_t queued_tokens_max;         /* in their inputs, estimated */
    unsigned char sha256[SHA256_BYTES]; /* of the parameters' canonical form, without the key */
};

/* Reads the body of POST /v1/batches. False and *ret_refusal when a parameter is wrong; then
 * nothing is owned. */
bool batch_parameters_read(struct batch_parameters *ret_parameters, const json_t *body,
                           const struct batch_rules *rules, struct refusal *ret_refusal);
/* Appends the JSON Schema of such a body, with the ranges batch_parameters_read checks. */
void batch_parameters_write_schema(struct buf *buf);
void batch_parameters_release(struct batch_parameters *parameters);

/* Adds the batch in state validating; as failed with token_limit_exceeded when its owner has too
 * much queued. ERR_LIMIT: too many batches. The same idempotency key of the same owner with the
 * same parameters gives the batch that is there already (*ret_existing true), with others
 * ERR_CONFLICT and a message that has the word conflict. The caller releases *ret_batch and tells
 * the runner of a new one (runner_kick). */
enum err batch_create(struct store *store, const struct batch_parameters *parameters,
                      int64_t now_unix_s, struct store_batch *ret_batch, bool *ret_existing,
                      struct error *error) MUST_CHECK;

/* The batch that the parameters' idempotency key stands for. ERR_NOT_FOUND when there is none or no
 * key, ERR_CONFLICT when it was made with other parameters. */
enum err batch_find_existing(struct store *store, const struct batch_parameters *parameters,
                             struct store_batch *ret_batch, struct error *error) MUST_CHECK;
/* As batch_create with an input that becomes a file (`file` says its name, purpose and time) in the
 * same transaction. The spool is gone afterwards, whatever is returned. */
enum err batch_create_with_input(struct store *store, const struct batch_parameters *parameters,
                                 struct store_spool *spool, struct store_file *file,
                                 int64_t now_unix_s, struct store_batch *ret_batch,
                                 bool *ret_existing, struct error *error) MUST_CHECK;

/* Appends the batch object with every key. Counters are the row's: see runner_batch_get. */
void batch_write_json(struct buf *buf, const struct store_batch *batch);

/* Looks at the start of an upload with purpose batch: zero bytes, or a first line that is not JSON,
 * are ERR_INVALID with the sentence for the client. */
enum err batch_input_look(int fd, uint64_t bytes, struct error *error) MUST_CHECK;
/* As batch_input_look, before the spool is committed. */
enum err batch_spool_look(struct store_spool *spool, struct error *error) MUST_CHECK;
