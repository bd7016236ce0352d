/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* remote_batches: the calls about batches, none of which makes a batch twice.
 *
 * A create call has an Idempotency-Key, which quern honours, and carries the same key in the
 * batch's metadata (OBJECT_SUBMISSION). When the answer to it is lost, the newest batches are
 * searched for that pair before it is sent again, so that servers without idempotency keys do not
 * make a second batch either.
 *
 * Thread: one.
 * Memory: the caller owns the JSON objects that it gets: the batches as the server wrote them. */

#include "client/objects.h"
#include "client/remote.h"

struct batch_wish {
    const char *input_file_id;
    const char *endpoint, *window;
    const char *submission; /* an id (object_id_is_sane) that no other batch has */
    json_t *metadata;       /* further pairs; NULL: none */
    json_t *extras;         /* further members of the body; NULL: none */
};

enum err remote_batches_create(struct remote *remote, const struct batch_wish *wish,
                               json_t **ret_batch, struct error *error) MUST_CHECK;
/* Searches the newest batches for a submission. OK with *ret_batch NULL if none of them has it. */
enum err remote_batches_find(struct remote *remote, const char *submission, json_t **ret_batch,
                             struct error *error) MUST_CHECK;
enum err remote_batches_get(struct remote *remote, const char *id, json_t **ret_batch,
                            struct error *error) MUST_CHECK;
enum err remote_batches_cancel(struct remote *remote, const char *id, json_t **ret_batch,
                               struct error *error) MUST_CHECK;
/* Deletes an ended batch of a quern server with its files. *ret_deleted is the server's answer, or
 * NULL if an attempt whose answer was lost had deleted it. ERR_CONFLICT before its end. */
enum err remote_batches_delete(struct remote *remote, const char *id, json_t **ret_deleted,
                               struct error *error) MUST_CHECK;
/* Erases lines of an ended batch of a quern server; `body` says which. *ret_erasure is the server's
 * answer, or NULL if an attempt whose answer was lost had erased them. ERR_NOT_FOUND: no such
 * batch, or a custom_id without a line. */
enum err remote_batches_erase(struct remote *remote, const char *id, struct str body,
                              json_t **ret_erasure, struct error *error) MUST_CHECK;
/* Makes a batch of the failed lines of an ended one on a quern server. ERR_NOT_FOUND also from a
 * server that does not have the route. */
enum err remote_batches_retry(struct remote *remote, const char *id, const char *submission,
                              json_t **ret_batch, struct error *error) MUST_CHECK;

/* Takes one batch of a list; false ends the list. */
typedef bool (*remote_batches_fn)(void *context, const json_t *batch);
/* Calls `take` for up to `count` batches, the newest first. */
enum err remote_batches_list(struct remote *remote, uint64_t count, remote_batches_fn take,
                             void *context, struct error *error) MUST_CHECK;
