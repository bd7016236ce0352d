/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* host_streams: the streams and events of a GPU that is not there. A stream queues what it is asked
 * for, and nothing happens until the host waits, or a draw says so. What a GPU promises holds: a
 * stream's tasks run in their order, and a wait for an event ends behind what was recorded. All
 * else is drawn: a copy may come late, when the kernels that read it have run, or early, before
 * those that still read what it overwrites. So host code that forgets a wait computes something
 * else, and memory that was never written is NaN.
 *
 * Each GPU also has the stream of plain calls (cudaMemset, cudaMemcpy), which others do not wait
 * for. Kernels of several ranks that meet (gpu/cuda/reduce.h) run when all of them are the next of
 * their streams.
 *
 * QUERN_HOST_ORDER: the seed of the draws (default 1).
 *
 * Thread: one.
 * Memory: a task has copies of its arguments, as a launch has.
 * Invariant: nothing is queued on a stream that is captured. */

#include "cuda_runtime_api.h"
#include "host_kernels.h"

#include <stdbool.h>

/* A recorded call. */
#define HOST_ARGUMENT_BYTES 512
struct host_call {
    host_again *again;
    bool has_more;
    _Alignas(16) char call[HOST_ARGUMENT_BYTES];
    _Alignas(16) char more[HOST_ARGUMENT_BYTES];
};
struct host_call host_call_of(host_again *again, const void *call, size_t call_bytes,
                              const void *more, size_t more_bytes);

/* Queues a kernel, or the calls of a graph one after another. */
void host_queue(struct CUstream_st *stream, const struct host_call *calls, size_t count);
/* Queues a plain memset on the GPU's own stream. */
void host_queue_set(void *at, int value, size_t bytes);

/* Each returns false if what is left waits for something that the host has not asked for. */
bool host_run_plain(void); /* the current GPU's plain calls */
bool host_run_card(void);  /* all of the current GPU */
bool host_run_all(void);

/* ---- host_runtime.c ---- */

/* What a call tells that looks at the GPU, or waits for it, when its streams have run so far. */
cudaError_t host_look(bool is_at_end);
cudaError_t host_wait(bool is_at_end);
/* Whether the ends of a copy are what its kind says. */
bool host_can_copy(const void *to, const void *from, enum cudaMemcpyKind kind);
/* Whether the GPU reaches that memory by itself. */
bool host_is_reached(const void *at);
