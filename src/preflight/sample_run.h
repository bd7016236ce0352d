/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pilot: runs a sample of a file on the real engine, in a few groups one after another, each with
 * lengths as the whole file has them, and says how long each took. The state directory is a
 * temporary one.
 *
 * Thread: main.  Memory: the sampled lines. */

#include "node/node.h"

#define PILOT_GROUPS 4
#define PILOT_LINES_MAX 1000

struct pilot_options {
    struct node_options node; /* its store.dir is set here */
    const char *path;
    const uint32_t *prompt_tokens; /* (requests), in the order of the file; 0 is not sampled */
    uint64_t requests;
    uint32_t prompt_tokens_max; /* longer ones would be refused */
    uint32_t lines;             /* how many to run; at most PILOT_LINES_MAX */
    const volatile bool *stop;
};

struct pilot {
    uint32_t lines, failed;
    size_t groups;
    double seconds_per_line[PILOT_GROUPS];
    double output_tokens_per_line[PILOT_GROUPS];
    uint64_t prompt_tokens, cached_tokens;
    double load_seconds;
};

/* ERR_INVALID when no line can be sampled or the sample is refused; ERR_CANCELLED when stopped. */
enum err pilot_run(const struct pilot_options *options, struct pilot *ret_pilot,
                   struct error *error) MUST_CHECK;
