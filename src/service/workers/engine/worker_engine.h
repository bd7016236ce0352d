/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* worker_engine: a worker that is an engine process of our own. It is started, fed and watched, and
 * replaced if it dies or hangs.
 *
 *     LOADING ──READY──▶ READY ──drain──▶ gone
 *        │ ▲               │
 *        │ └──back-off── DOWN ◀── death, garbage on the socket, or no progress with work inside
 *        ▼
 *     FAILED
 *
 * It fails for good by a FATAL before the first READY, by three deaths before it, or, later, by
 * five loads in a row that end with the same sentence. The reason is kept. A GPU that is lost, or
 * whose memory others hold, is no such failure once a model has been ready on it: the worker stays
 * DOWN, its lines wait, and it looks for the GPU again after each pause.
 *
 * On a shared device (turns.h) it begins PARKED, without a child, and loads in its turn. To make
 * room it takes no more jobs, gives its lines back to the runner, finishes the requests of single
 * clients, and is PARKED again.
 *
 * A model leaves after a time without a job, if a job or the options say so: it is PARKED, and
 * loads again when a job waits for it. It never leaves with jobs inside. After a line it stays at
 * least WORKER_ENGINE_LINES_MS, since more lines of the batch may come.
 *
 * A child that replaces one on a GPU gets that GPU or none: with `auto` a lost GPU would send
 * the rest of a batch to the CPU, silently.
 *
 * After a child that ended by an error of its GPU the next one is careful: it is told so, and its
 * first steps name the operation at which the GPU fails (gpu_options.careful_steps).
 *
 * A child that is killed and does not end, because a driver holds one of its calls, is told in the
 * log and in the status. Its jobs are lost at once. Its device is left alone until it has ended: no
 * other child starts there, and no other engine gets its turn.
 *
 * The child gets one socket, its standard error, and an environment without secrets. It dies with
 * this process, by PR_SET_PDEATHSIG, which the engine sets itself, and by the end of the socket.
 *
 * Thread: one of its own, which starts the child, reads, writes, watches, and calls the events. It
 *     lives as long as the worker, because the death signal of a child depends on the thread that
 *     started it.
 * Memory: owned by the worker. Jobs are copied into one buffer of at most
 *     WORKER_ENGINE_OUT_BYTES_MAX until they are sent. */

#include "protocol/wire_messages.h"
#include "protocol/worker.h"
#include "workers/engine/turns.h"

#define WORKER_ENGINE_OUT_BYTES_MAX ((size_t)256 * 1024 * 1024)

/* Zero means the default, except for hello.model_path, which is needed. */
struct worker_engine_options {
    struct wire_hello hello;      /* the model and its settings; copied. The version is filled in */
    const char *program;          /* path of the binary (default /proc/self/exe) */
    const char *const *arguments; /* before "--fd N", ending in NULL (default {"engine", NULL}) */
    uint32_t jobs_max;            /* submitted and not done (default 8192) */
    /* Time without a step while there are jobs, until the engine is killed. The default is twenty
     * times the longest step seen; at least 60 s, and at least 300 s in its first 1,000 steps. */
    int64_t hang_ms;
    int64_t load_ms;          /* until READY (default 900 s) */
    int64_t restart_delay_ms; /* before the first restart, doubled by each death (default 200 ms) */
    int64_t close_ms;         /* for draining in close (default 2 s) */
    int64_t kill_ms;      /* between SIGKILL and the end of a child (default 10 s: the driver takes
                      * seconds to give back a GPU's memory) */
    const char *dump_dir; /* keeps the stacks of engines that hung or crashed; copied; NULL: none */
    struct turns *turns;  /* shared with other engines; borrowed; NULL: not shared */
    int64_t keep_ms;      /* the model leaves after this time without a job (default: it stays) */
    bool stays;           /* no client's wish makes it leave */
    /* What is known of the model before its first READY; copied. Without a name: nothing is. */
    struct wire_ready foretold;
    uint64_t memory_bytes; /* that the engine will take, as predicted, for its turns */
    const char *refusal;   /* why the model must not be loaded; it has failed then; NULL: it may */
};

#define WORKER_ENGINE_JOBS_MAX 8192
#define WORKER_ENGINE_LINES_MS 5000
#define WORKER_ENGINE_RESTART_DELAY_MS_MAX 30000
#define WORKER_ENGINE_LOADS_MAX 3
#define WORKER_ENGINE_RELOADS_MAX 5 /* in a row, after it was ready once */

/* Starts the worker; the model loads afterwards. Events may come before this returns. */
enum err worker_engine_open(struct worker **ret_worker, const struct worker_engine_options *options,
                            const struct worker_events *events, struct error *error) MUST_CHECK;

/* Waits until the worker takes jobs. ERR_INVALID with the engine's own sentence if it never will;
 * ERR_UNAVAILABLE after `timeout_ms` (negative: no limit). */
enum err worker_engine_wait_ready(struct worker *worker, int64_t timeout_ms,
                                  struct error *error) MUST_CHECK;
