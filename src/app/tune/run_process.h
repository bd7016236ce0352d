/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* run_process: `quern run` in a process of its own, so that each model and each setting begins with
 * a fresh engine, and takes the way that the owner's files take.
 *
 * Thread: one. With --end-with-parent among the arguments the run ends with that thread.
 * Memory: none. */

#include "base/err.h"

#include <stdbool.h>

#define RUN_PROCESS_WHY_BYTES 300

struct run_process {
    const char *const *arguments; /* "quern", "run", …, "--json", …, ending in NULL */
    const char *said, *errors;    /* files for what it prints; they are replaced */
    const volatile bool *stop;
    /* Hears each warning and error of its log, once as long as it says the same; NULL: nobody
     * does. */
    void (*warned)(const void *context, const char *warning);
    const void *context;
    bool *ret_is_refused; /* set: the run refused its options before it began; NULL allowed */
};

/* Runs it to its end; some of its requests may have failed. If it ends without results, the error
 * is the run's own, with its own sentence: ERR_UNAVAILABLE for a full disk or a server that does
 * not answer, ERR_INVALID for a run that a signal ended. ERR_CANCELLED if *stop became true, after
 * the run has ended. */
enum err run_process(const struct run_process *process, struct error *error) MUST_CHECK;
