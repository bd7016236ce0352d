/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* publish: writes the output and error files of a batch in the order of its input, and ends the
 * batch in the same transaction that makes the files visible.
 *
 * The files' ids follow from the batch's id, so that publishing again after a crash gives the same
 * files. A request without a record gets the code of batch/result.h that belongs to the state in
 * which the batch ends.
 *
 * The same transaction has the sums over lines of input and result files (proofs.h), with new salts
 * each time, unless the input cannot be read any more.
 *
 * Thread: one.
 * Memory: two buffers of 1 MiB, and one more while the input is read. */

#include "batch/index.h"
#include "batch/result.h"

struct batch_publish {
    struct store *store;
    const struct store_batch *batch; /* finalizing or cancelling, with the final state in it */
    struct seglog *log;
    const struct line_index *index;
    int input_fd;
    const struct store_file *input; /* its row; NULL: it cannot be read any more */
    int64_t now_unix_s;
    void *context;
    bool (*stopped)(void *context); /* asked between lines; NULL allowed */
};

struct batch_published {
    uint64_t output_lines;
    uint64_t error_lines;
    /* With ERR_CONFLICT: requests that have no readable record and must run first. */
    uint64_t missing;
};

/* The state that publishing leads to. */
enum batch_status batch_publish_target(const struct store_batch *batch);
/* Publishes and moves the batch; *batch becomes the row after the move. ERR_CONFLICT if requests of
 * a batch that is to be completed have no record, or if the row has changed its state meanwhile;
 * ERR_UNAVAILABLE if the disk is full; ERR_CANCELLED if `stopped` said so. */
enum err batch_publish(const struct batch_publish *publish, struct store_batch *batch,
                       struct batch_published *ret_published, struct error *error) MUST_CHECK;
