/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* parameters: what a client may ask for in a create call, and what the operator allows.
 *
 * Parameters are checked one by one; the refusal names the first wrong one. Times are arguments in
 * the whole folder, which knows no thread, no socket and no clock.
 *
 * Thread: any; a struct belongs to one thread.
 * Memory: batch_parameters_release frees the members that are owned. */

#include "base/buf.h"
#include "json/envelope.h"
#include "protocol/request.h"
#include "store/batches.h"

/* What the operator allows; batch_rules_default has the values of the profile `quern`. */
struct batch_rules {
    uint64_t lines_max;       /* at most BATCH_LINES_MAX */
    uint64_t line_bytes_max;  /* at most BATCH_LINE_BYTES_MAX */
    size_t errors_max;        /* reported for one file */
    bool strict_url;          /* a line's url must be the batch's endpoint */
    bool strict_single_model; /* all lines name one model */
    bool webhook_http;        /* a batch's webhook may be a plain http URL */
    bool no_decisions;        /* OpenAI's Batch API has no such endpoints */
    bool needs_model;         /* else lines may leave out the model if only one is served */
    bool extended_windows;    /* "1m" to "30d"; else only "24h" */
};
#define BATCH_LINES_MAX 1000000u
/* Estimate for queued tokens, because no tokenizer has read the input yet. */
#define BATCH_BYTES_PER_TOKEN 4
#define BATCH_LINE_BYTES_MAX ((uint64_t)16 << 20)
#define BATCH_ERRORS_MAX 1000u
struct batch_rules batch_rules_default(void);
/* The rules of the profile "quern" or "openai"; false for another name. */
bool batch_rules_of_profile(const char *profile, struct batch_rules *ret_rules);

/* The checked parameters of a create call. */
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
    char *extras;                  /* JSON text of batch/extras.h, or NULL; owned */
    char retry_of[STORE_ID_BYTES]; /* empty: not a retry */
    uint64_t inline_requests;      /* requests of an input that came with the call; 0: of a file */
    char idempotency_key[256];     /* the body's; the caller puts a header's here */
    char owner[OWNER_BYTES];       /* filled in by the caller, as the next three; 0: no limit */
    uint64_t batches_max;          /* most batches of this owner that are not terminal */
    uint64_t queued_tokens_max;    /* most tokens in their inputs, estimated */
    uint64_t stored_bytes_max;     /* most bytes of this owner's files */
    unsigned char sha256[SHA256_BYTES]; /* sum of the canonical form, without the key */
};

/* Reads the body of POST /v1/batches. False and *ret_refusal if a parameter is wrong; then nothing
 * is owned. */
bool batch_parameters_read(struct batch_parameters *ret_parameters, const json_t *body,
                           const struct batch_rules *rules, struct refusal *ret_refusal);
/* Appends the JSON Schema of such a body, with the ranges that batch_parameters_read checks. */
void batch_parameters_write_schema(struct buf *buf);
void batch_parameters_release(struct batch_parameters *parameters);
