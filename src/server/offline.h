/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* offline: one file in, one file out, without HTTP: what `quern run` does.
 *
 * The same store, runner and workers as the server's, in a folder of its own beside the output
 * (OUT.quern). Whatever ends it, the same call goes on from what is there. OUT appears whole, by
 * rename, and then the folder goes.
 *
 * Thread: main.  Memory: none kept. */

#include "node/node.h"

struct offline_progress {
    const struct store_batch *batch;          /* with live counters */
    const char *engine;                       /* "loading" and the like, or NULL */
    double seconds;                           /* since the requests began to run */
    uint64_t done_before;                     /* results that an earlier call left */
    uint64_t running;                         /* sequences being computed */
    uint64_t prompt_tokens, generated_tokens; /* of this call, unfinished lines included */
};

struct offline_options {
    const char *input_path;
    const char *output_path;
    struct node_options node;  /* its store.dir is set here */
    const volatile bool *stop; /* becomes true on a signal: end soon, keep everything */
    void *context;
    void (*progress)(void *context,
                     const struct offline_progress *progress); /* a few times a second */
    /* A line that is no request: the file is refused. `number` 0: the file as a whole. */
    void (*bad_line)(void *context, uint64_t number, const char *code, const char *message);
};

struct offline_summary {
    uint64_t requests, completed, failed;
    double seconds;      /* from the first request to the last result, in this call */
    double load_seconds; /* until the model was ready */
    struct usage usage;
};

/* ERR_INVALID: the file is refused; ERR_NOT_FOUND: no such input; ERR_CONFLICT: OUT.quern belongs
 * to another input or is in use; ERR_CANCELLED: stopped. Whatever is returned, nothing that was
 * done is lost. */
enum err offline_run(const struct offline_options *options, struct offline_summary *ret_summary,
                     struct error *error) MUST_CHECK;
