/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* inputs: the input files that dispatch reads lines from, a few of them open at a time.
 *
 * A batch that waits holds no descriptor: there may be more batches than a process may have files
 * open. The file of a batch is opened for its next line, the one used longest ago is closed for it,
 * and all are closed when they are not used. It does not know what a line is.
 *
 * Thread: dispatch's.
 * Memory: INPUTS_MAX descriptors; inputs_close frees them. */

#include "store/batches.h"

#define INPUTS_MAX 16

struct inputs {
    struct {
        uint64_t batch_sequence; /* 0: none */
        int fd;
        int64_t used_ns;
    } at[INPUTS_MAX];
};

/* *ret_fd is borrowed until the next call. ERR_EXHAUSTED may pass. */
enum err inputs_find(struct inputs *inputs, struct store *store, const struct store_batch *batch,
                     int *ret_fd, struct error *error) MUST_CHECK;
/* Closes the files that were used last before `since_ns`. */
void inputs_rest(struct inputs *inputs, int64_t since_ns);
void inputs_close(struct inputs *inputs);
