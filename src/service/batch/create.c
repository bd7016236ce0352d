/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/create.h"

#include "base/id.h"
#include "base/mem.h"
#include "batch/validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum err batch_find_existing(struct store *store, const struct batch_parameters *parameters,
                             struct store_batch *ret_batch, struct error *error) {
    struct store_batch batch;
    if (!*parameters->idempotency_key)
        return err_set(error, ERR_NOT_FOUND, "there is no idempotency key");
    enum err err = store_batch_get_by_key(store, parameters->owner, parameters->idempotency_key,
                                          &batch, error);
    if (err != OK) return err;
    if (memcmp(batch.parameters_sha256, parameters->sha256, SHA256_BYTES) != 0) {
        store_batch_release(&batch);
        return err_set(error, ERR_CONFLICT,
                       "Idempotency conflict: the key '%.80s' was used with other parameters.",
                       parameters->idempotency_key);
    }
    *ret_batch = batch;
    return OK;
}

static struct store_batch new_batch(const struct batch_parameters *parameters, int64_t now_unix_s) {
    struct store_batch batch = {
        .metadata = mem_text(parameters->metadata),
        .webhook_url = mem_text(parameters->webhook_url),
        .extras = mem_text(parameters->extras),
        .priority = parameters->priority,
        .inline_requests = parameters->inline_requests,
        .output_expires_after_s = parameters->output_expires_after_s,
        .created_unix_s = now_unix_s,
        .expires_unix_s = now_unix_s + parameters->window_s,
        .status = BATCH_VALIDATING,
        .final_status = BATCH_COMPLETED,
    };
    id_hex(batch.id, sizeof batch.id, "batch_", 32);
    snprintf(batch.endpoint, sizeof batch.endpoint, "%s", endpoint_path(parameters->endpoint));
    memcpy(batch.input_file_id, parameters->input_file_id, sizeof batch.input_file_id);
    memcpy(batch.retry_of, parameters->retry_of, sizeof batch.retry_of);
    memcpy(batch.completion_window, parameters->completion_window, sizeof batch.completion_window);
    memcpy(batch.service_tier, parameters->service_tier, sizeof batch.service_tier);
    memcpy(batch.owner, parameters->owner, sizeof batch.owner);
    memcpy(batch.idempotency_key, parameters->idempotency_key, sizeof batch.idempotency_key);
    memcpy(batch.parameters_sha256, parameters->sha256, SHA256_BYTES);
    return batch;
}

/* Adds the batch, with a new input, within its owner's limits. Queued tokens are estimated, four
 * bytes of input per token, because no tokenizer has read the input yet. */
static enum err insert(struct store *store, struct store_batch *batch,
                       const struct batch_parameters *parameters, struct store_spool *spool,
                       struct store_file *file, struct error *error) {
    char message[200];
    snprintf(
        message, sizeof message,
        "Enqueued token limit reached. Limit: %llu enqueued tokens. Please try again once some "
        "in_progress batches have been completed.",
        (unsigned long long)parameters->queued_tokens_max);
    char *errors = batch_single_error("token_limit_exceeded", NULL, message);
    uint64_t tokens_max = parameters->queued_tokens_max;
    const struct store_batch_limits limits = {
        .batches_max = parameters->batches_max,
        .input_bytes_max = tokens_max < UINT64_MAX / BATCH_BYTES_PER_TOKEN
                               ? tokens_max * BATCH_BYTES_PER_TOKEN
                               : UINT64_MAX,
        .over_bytes = parameters->inline_requests ? NULL : errors,
    };
    enum err err = spool ? store_batch_insert_with_input(store, batch, &limits, spool, file, error)
                         : store_batch_insert_within(store, batch, &limits, error);
    free(errors);
    return err;
}

/* Results take bytes, too: an owner without any left begins nothing. */
static enum err check_stored_bytes(struct store *store, const struct batch_parameters *parameters,
                                   int64_t now_unix_s, struct error *error) {
    uint64_t bytes, most = parameters->stored_bytes_max;
    if (!most) return OK;
    enum err err = store_owner_bytes(store, parameters->owner, now_unix_s, &bytes, error);
    if (err != OK || bytes < most) return err;
    return err_set(error, ERR_LIMIT,
                   "Storage quota exceeded: %llu of %llu bytes are stored. Delete files first.",
                   (unsigned long long)bytes, (unsigned long long)most);
}

enum err batch_create(struct store *store, const struct batch_parameters *parameters,
                      int64_t now_unix_s, struct store_batch *ret_batch, bool *ret_existing,
                      struct error *error) {
    enum err err = batch_find_existing(store, parameters, ret_batch, error);
    *ret_existing = err == OK;
    if (err != ERR_NOT_FOUND) return err;
    return batch_create_with_input(store, parameters, NULL, NULL, now_unix_s, ret_batch,
                                   ret_existing, error);
}

enum err batch_create_with_input(struct store *store, const struct batch_parameters *parameters,
                                 struct store_spool *spool, struct store_file *file,
                                 int64_t now_unix_s, struct store_batch *ret_batch,
                                 bool *ret_existing, struct error *error) {
    struct store_batch batch = new_batch(parameters, now_unix_s);
    *ret_existing = false;
    if (file) memcpy(file->owner, parameters->owner, sizeof file->owner);
    enum err err = check_stored_bytes(store, parameters, now_unix_s, error);
    if (err == OK)
        err = insert(store, &batch, parameters, spool, file, error);
    else
        store_spool_abort(spool);
    if (err == OK) {
        *ret_batch = batch;
        return OK;
    }
    store_batch_release(&batch);
    if (err != ERR_CONFLICT || !*parameters->idempotency_key) return err;
    /* Another call with the same key came first. */
    err = batch_find_existing(store, parameters, ret_batch, error);
    *ret_existing = err == OK;
    return err;
}
