/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* retry: a new batch of the lines of an ended batch that have no good answer.
 *
 * The error file names the failed lines, and the input file has their text. Both files are in the
 * order of the input, so that one walk finds all of them. The new input and the new batch become
 * visible in one transaction: after a crash both exist or neither.
 *
 * Thread: any.
 * Memory: one line of each file. */

#include "batch/parameters.h"

#define RETRY_CHOICES_MAX 64

/* The checked body of a retry call. */
struct batch_retry {
    struct batch_parameters parameters; /* parameters of the new batch, without its input file */
    uint16_t statuses[RETRY_CHOICES_MAX];
    size_t status_count;
    char codes[RETRY_CHOICES_MAX][64];
    size_t code_count; /* no status and no code: every line of the error file */
};

/* Reads the body of the call (NULL: the call has none). It may have `statuses`, `codes`, and any
 * parameter of a create call except input_file_id and endpoint; the original batch gives the rest.
 * False and *ret_refusal if a member is wrong; then nothing is owned. */
bool batch_retry_read(struct batch_retry *ret_retry, const struct store_batch *original,
                      const json_t *body, const struct batch_rules *rules,
                      struct refusal *ret_refusal);
void batch_retry_release(struct batch_retry *retry);

/* Adds the new batch, as batch_create does. ERR_CONFLICT if the original has not ended, or if the
 * idempotency key stands for other parameters; ERR_INVALID if no line is to be tried again;
 * ERR_NOT_FOUND if the input or error file no longer exists. */
enum err batch_retry_create(struct store *store, const struct store_batch *original,
                            const struct batch_retry *retry, int64_t now_unix_s,
                            struct store_batch *ret_batch, bool *ret_existing,
                            struct error *error) MUST_CHECK;
