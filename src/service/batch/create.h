/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* create: a new batch of checked parameters, or the earlier one of the same idempotency key.
 *
 * Thread: any.
 * Memory: the caller releases the row that it gets. */

#include "batch/parameters.h"
#include "store/files.h"

/* Adds the batch in the state validating, or in the state failed with token_limit_exceeded if its
 * owner has too many queued tokens. ERR_LIMIT: the owner has too many batches, or too many tokens
 * for one whose requests came with the call.
 *
 * If the owner used the idempotency key before: the earlier batch (*ret_existing true) for the same
 * parameters, ERR_CONFLICT for others, with a message that has the word "conflict". The caller
 * releases *ret_batch, and tells the runner of a new batch (runner_kick). */
enum err batch_create(struct store *store, const struct batch_parameters *parameters,
                      int64_t now_unix_s, struct store_batch *ret_batch, bool *ret_existing,
                      struct error *error) MUST_CHECK;

/* The batch that the parameters' idempotency key stands for. ERR_NOT_FOUND if no such batch exists
 * or the key is empty, ERR_CONFLICT if the batch was made with other parameters. */
enum err batch_find_existing(struct store *store, const struct batch_parameters *parameters,
                             struct store_batch *ret_batch, struct error *error) MUST_CHECK;
/* As batch_create, with an input that becomes a file in the same transaction; `file` has its name,
 * purpose and time. Takes the spool over, also on failure. */
enum err batch_create_with_input(struct store *store, const struct batch_parameters *parameters,
                                 struct store_spool *spool, struct store_file *file,
                                 int64_t now_unix_s, struct store_batch *ret_batch,
                                 bool *ret_existing, struct error *error) MUST_CHECK;
