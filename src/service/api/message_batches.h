/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* message_batches: the routes of Anthropic's Message Batches. Each is a batch as any other, whose
 * input is written from the requests of the call while these arrive.
 *
 * Thread: handlers run on http's worker threads, the calls of the upload on a connection's thread.
 * Memory: a body takes one request of it, a MiB of lines and 100 bytes per custom_id. */

#include "http/http.h"
#include "store/batches.h"

struct api;

#define MESSAGE_BATCH_BYTES_MAX ((uint64_t)256 << 20) /* one call, as in Anthropic's service */
#define MESSAGE_BATCHES_LIST_MAX 1000

extern const struct http_upload message_batches_upload;
void message_batches_create(void *context, struct http_request *request);
void message_batches_list(void *context, struct http_request *request);
void message_batches_get(void *context, struct http_request *request);
void message_batches_cancel(void *context, struct http_request *request);
void message_batches_delete(void *context, struct http_request *request);
/* message_results.c */
void message_batches_results(void *context, struct http_request *request);

/* Reads the batch that the path names, which the caller releases. False, and answered with 404, if
 * it does not exist, is for another API or belongs to another owner. */
bool message_batches_find(struct api *api, struct http_request *request,
                          struct store_batch *ret_batch);
