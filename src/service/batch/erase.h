/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erase: one person's lines taken out of an ended batch, which is published anew
 * (docs/adr/0033-erasure-of-a-batch.md).
 *
 * Input, output and error file are written again under new ids, with empty lines in the place of
 * those of the custom_ids, and the order of results that fits them. store_erase makes all of it
 * count in one transaction; before it nothing has changed, and after it a sweep removes the old
 * files. Batches with one input are erased together, because the input of one is that of all.
 *
 * The record of an erasure and the rows that stay name no custom_id.
 *
 * Thread: any; the caller lets one erasure run at a time, so that no two remove each other's order.
 * Memory: see erased_copy.h; 16 bytes per result of the batch while the order is written. */

#include "store/erased.h"

#define BATCH_ERASE_IDS_MAX 500
#define BATCH_ERASE_ID_BYTES_MAX 4096
#define BATCH_ERASE_BATCHES_MAX 16
#define BATCH_ERASE_REASON_BYTES_MAX 2000

struct batch_erase {
    struct store *store;
    const char *const *batch_ids; /* (batch_count) each once */
    size_t batch_count;
    const struct str *custom_ids; /* (id_count) texts */
    size_t id_count;
    const char *reason;
    int64_t now_unix_s;
};

/* What was erased of one batch; the ids of its files from now on. */
struct batch_erased {
    char id[STORE_ID_BYTES];
    char input_file_id[STORE_ID_BYTES];
    char output_file_id[STORE_ID_BYTES];
    char error_file_id[STORE_ID_BYTES];
    uint64_t lines; /* in all its files */
    uint64_t judgements;
};

struct batch_erasure {
    uint64_t requests; /* custom_ids */
    struct batch_erased batches[BATCH_ERASE_BATCHES_MAX];
    size_t batch_count;
};

/* Nothing has changed after an error. ERR_NOT_FOUND: a batch, or a custom_id, of which the sentence
 * tells the place in the list, with *ret_is_custom_id. ERR_CONFLICT: a batch runs, is being
 * deleted, or shares a file with one that is not named. ERR_INVALID: a batch has no sums that
 * survive an erasure, two have different inputs, or the salts would have too many bytes.
 * ERR_CORRUPT: a file is damaged. After OK the caller sweeps (batch_erase_sweep). */
enum err batch_erase(const struct batch_erase *erase, struct batch_erasure *ret_erasure,
                     bool *ret_is_custom_id, struct error *error) MUST_CHECK;
/* Removes the old files, their orders, and what the database has of the lines. What it cannot
 * remove, a later sweep or the next start does. */
enum err batch_erase_sweep(struct store *store, const struct batch_erasure *erasure,
                           int64_t now_unix_s, struct error *error) MUST_CHECK;
