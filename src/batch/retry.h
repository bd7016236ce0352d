/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* retry: a new batch of the lines of an ended one that have no good answer.
 *
 * The error file says which those are; their lines are taken from the input file as they stand
 * there. Both files are in the order of the input, so that one walk finds them. The new input and
 * the new batch become visible in one transaction: after a crash there are both or neither.
 *
 * Thread: any.  Memory: one line of each file. */

#include "batch/batch.h"

#define RETRY_CHOICES_MAX 64

/* Checked body of a retry call. */
struct batch_retry {
    struct batch_parameters parameters; /* of the new batch, but for its input */
    uint16_t statuses[RETRY_CHOICES_MAX];
    size_t status_count;
    char codes[RETRY_CHOICES_MAX][64];
    size_t code_count; /* neither: every line of the error file */
};

/* Reads the body of the call; NULL for none: `statuses`, `codes`, and any parameter of a create
 * call but input_file_id and endpoint; what is not there is as the original has it. False and
 * *ret_refusal when one is wrong; then nothing is owned. */
bool batch_retry_read(struct batch_retry *ret_retry, const struct store_batch *original,
                      const json_t *body, const struct batch_rules *rules,
                      struct refusal *ret_refusal);
void batch_retry_release(struct batch_retry *retry);

/* Adds the new batch, as batch_create does. ERR_CONFLICT when the original has not ended, or the
 * key was used otherwise; ERR_INVALID when there is nothing to try again; ERR_NOT_FOUND when one
 * of its files is gone. */
enum err batch_retry_create(struct store *store, const struct store_batch *original,
                            const struct batch_retry *retry, int64_t now_unix_s,
                            struct store_batch *ret_batch, bool *ret_existing,
                            struct error *error) MUST_CHECK;
