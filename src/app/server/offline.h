/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* offline: one file in, one file out, without HTTP: the work of `quern run`.
 *
 * It uses the store, runner and workers of the server, in a folder next to the output (OUT.quern).
 * Whatever ends a call, the same call continues from that folder. OUT appears whole, by rename;
 * then the folder is removed.
 *
 * Thread: main.
 * Memory: borrows the options. */

#include "node/node.h"
#include "server/offline_input.h"
#include "server/offline_proof.h"

struct offline_progress {
    const struct store_batch *batch;          /* with live counters */
    const char *engine;                       /* "loading", or NULL once requests run */
    double seconds;                           /* since the requests began to run */
    uint64_t done_before;                     /* results of earlier calls */
    uint64_t running;                         /* requests with the workers */
    uint64_t prompt_tokens, generated_tokens; /* in this call, unfinished lines included */
};

struct offline_options {
    struct offline_input input;
    const char *output_path;
    bool overwrite; /* replace an output that exists */
    struct offline_proof proof;
    struct node_options node;  /* without store.dir, which offline_run sets */
    const volatile bool *stop; /* becomes true on a signal: end soon and keep all results */
    void *context;
    void (*progress)(void *context,
                     const struct offline_progress *progress); /* called ten times per second */
    /* Called for each line that is no request, which refuses the file. Number 0 is the whole
     * file. */
    void (*bad_line)(void *context, uint64_t number, const char *code, const char *message);
};

struct offline_summary {
    uint64_t requests, completed, failed;
    double seconds;             /* from the first request to the last result, in this call */
    double seconds_before;      /* earlier calls took; NAN: not known */
    double load_seconds;        /* from the start until the model was ready */
    struct usage usage;         /* usage of all calls together */
    uint64_t done_before;       /* requests that earlier calls finished */
    uint64_t output_tokens_now; /* in the results of this call */
    double watts; /* mean power of this machine while requests ran; NAN: it does not tell */
    uint64_t shapes[SHAPE_END_COUNT]; /* lines of all calls that asked for a shape, by their end */
    uint64_t rest_lines;     /* results that a table does not show in whole: TABLE_REST has them */
    uint32_t context_tokens; /* the smallest window of the models; 0: not known */
    bool was_finished;       /* an earlier call did all: only `failed` is known of it */
};

/* Checks the two names before a model is looked for or fetched. *ret_summary is set and its
 * was_finished is true when nothing is left to do. Errors as of offline_output.h. */
enum err offline_check(const struct offline_options *options, struct offline_summary *ret_summary,
                       struct error *error) MUST_CHECK;
/* After offline_check. ERR_INVALID: the file is refused, or a model cannot be loaded;
 * ERR_NOT_FOUND: no such input; ERR_CONFLICT: OUT.quern belongs to another input or is in use;
 * ERR_CANCELLED: *stop became true. No error loses a finished result. */
enum err offline_run(const struct offline_options *options, struct offline_summary *ret_summary,
                     struct error *error) MUST_CHECK;
