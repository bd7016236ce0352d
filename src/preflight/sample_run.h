/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sample_run: a sample of a file, run on the real engine to measure time and tokens.
 *
 * The sample is spread evenly over the lengths of the file and dealt to a few groups, which run one
 * after another; several measurements give an interval. The state directory is a temporary one in
 * ${TMPDIR:-/tmp}. Users call the sample "pilot" (`--pilot`, the JSON key).
 *
 * Thread: main.
 * Memory: the sampled lines. */

#include "node/node.h"

#define SAMPLE_RUN_GROUPS 4
#define SAMPLE_RUN_LINES_MAX 1000

struct sample_run_options {
    struct node_options node; /* without store.dir, which sample_run sets */
    const char *path;
    const uint32_t *prompt_tokens; /* (requests) in file order; requests with 0 are not sampled */
    uint64_t requests;
    uint32_t prompt_tokens_max; /* longer prompts would be refused and are not sampled */
    uint32_t lines;             /* requests to run, at most SAMPLE_RUN_LINES_MAX */
    const volatile bool *stop;
};

struct sample_run {
    uint32_t lines, failed;
    size_t groups;
    double seconds_per_line[SAMPLE_RUN_GROUPS];
    double output_tokens_per_line[SAMPLE_RUN_GROUPS];
    uint64_t prompt_tokens, cached_tokens;
    double load_seconds;
};

/* ERR_INVALID if no line can be sampled or the sample is refused; ERR_CANCELLED if *stop became
 * true; ERR_CONFLICT if the file changed; ERR_IO if the engine does not load the model. */
enum err sample_run(const struct sample_run_options *options, struct sample_run *ret_sample,
                    struct error *error) MUST_CHECK;
