/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* worker_engine: a worker that is an engine process of our own: started, fed, watched and, when it
 * dies or hangs, replaced.
 *
 *     LOADING ──READY──▶ READY ──drain──▶ gone
 *        │ ▲               │
 *        │ └──back-off── DOWN ◀── death, garbage on the socket, or no progress with work inside
 *        ▼
 *     FAILED: a FATAL before the first READY, three deaths before it, or, later, five loads in a
 * row that end with the same sentence; the reason is kept
 *
 * With a device that it shares (device.h) it begins PARKED, without a child, and loads when the
 * device says so. To make room it takes nothing more, gives lines that nobody waits for back to the
 * runner, finishes the requests of single clients, and is PARKED again.
 *
 * The child gets one socket, its standard error, and an environment without secrets; it dies with
 * this process (PR_SET_PDEATHSIG, which the engine sets itself, and the end of the socket). The
 * words of the wire are wire_messages.h.
 *
 * Threads: one of its own, which starts the child, reads, writes, watches, and calls the events. It
 * lives as long as the worker, for a child's death signal hangs on the thread that started it.
 * Memory: owned by the worker; jobs are copied into one buffer of at most
 * WORKER_ENGINE_OUT_BYTES_MAX until they are sent. */

#include "protocol/wire_messages.h"
#include "protocol/worker.h"
#include "workers/engine/device.h"

#define WORKER_ENGINE_OUT_BYTES_MAX ((size_t)256 * 1024 * 1024)

/* Zero is a valid start, but for hello.model_path: every zero means the default behind it. */
struct worker_engine_options {
    struct wire_hello hello; /* what the engine is asked to be; copied. The version is filled in */
    const char *program;     /* path of the binary; /proc/self/exe */
    const char *const *arguments; /* before "--fd N", ending in NULL; {"engine", NULL} */
    uint32_t jobs_max;            /* submitted and not done; 8192 */
    int64_t hang_ms;              /* without a step while jobs are inside, until it is killed.
                                     0: twenty times the longest step seen, at least a minute; five
                                     minutes at least before it has done 1000 steps */
    int64_t load_ms;              /* until READY; 900000 */
    int64_t restart_delay_ms; /* before the first restart, doubled for each further death; 200 */
    int64_t close_ms;         /* for draining in close; 2000 */
    const char *dump_dir;  /* where stacks of an engine that hung or crashed are kept, copied; NULL:
                              nowhere */
    struct device *device; /* shared with other engines; borrowed; NULL: all its own */
};

#define WORKER_ENGINE_JOBS_MAX 8192
#define WORKER_ENGINE_RESTART_DELAY_MS_MAX 30000
#define WORKER_ENGINE_LOADS_MAX 3
#define WORKER_ENGINE_RELOADS_MAX 5 /* once it was ready, with the same sentence */

/* Starts the worker; the model loads behind it. Events may come before this returns. */
enum err worker_engine_open(struct worker **ret_worker, const struct worker_engine_options *options,
                            const struct worker_events *events, struct error *error) MUST_CHECK;

/* Waits until the worker takes jobs. ERR_INVALID with the engine's own sentence when it never will;
 * ERR_UNAVAILABLE after `timeout_ms` (negative: for ever). */
enum err worker_engine_wait_ready(struct worker *worker, int64_t timeout_ms,
                                  struct error *error) MUST_CHECK;
