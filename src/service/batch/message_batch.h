/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* message_batch: a batch and its results in the form of Anthropic's Message Batches.
 *
 * A batch for /v1/messages is one of these under another name: msgbatch_X is batch_X. It has no
 * state `failed` there, and its counts stand still until the end.
 *
 * Thread: any; pure.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"
#include "store/batches.h"

#define MESSAGE_BATCH_PREFIX "msgbatch_"

/* Writes the id of the batch that `id` names. False if it names none. */
bool message_batch_read_id(struct str id, char ret_batch_id[STORE_ID_BYTES]);
/* Appends a batch's id as this API has it, without quotes. */
void message_batch_add_id(struct buf *buf, const char *batch_id);
/* True if the batch has ended, and so has results. */
bool message_batch_has_ended(const struct store_batch *batch);
/* The requests of the batch, also before they are validated. */
uint64_t message_batch_total(const struct store_batch *batch);
/* Appends the object. `base` stands before the path of its results: a scheme and a host, or
 * nothing. */
void message_batch_write(struct buf *buf, const struct store_batch *batch, const char *base);
/* Appends the result of a record, which is a line of an output or error file, with its LF. False if
 * the record is none. */
bool message_batch_add_result(struct buf *buf, struct str record);
/* Appends the result of a request that has no record, because the batch ended before it was
 * validated. `custom_id` is the raw string. */
void message_batch_add_unrun(struct buf *buf, struct str custom_id,
                             const struct store_batch *batch);
