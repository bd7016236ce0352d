/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sample_run: a sample of a file, run on the real engine to measure time and tokens.
 *
 * The sample is dealt to groups of several sizes, each spread evenly over the lengths of the file.
 * They run one after another, the largest first, because the first one computes what the
 * others share; sizes that differ tell the time of a row from that of a step (time_fit.h). The
 * state directory is a temporary one in ${TMPDIR:-/tmp}. Users call the sample "pilot" (`--pilot`,
 * the JSON key).
 *
 * Thread: main.
 * Memory: the sampled lines. */

#include "node/node.h"

#define SAMPLE_RUN_GROUPS 6
#define SAMPLE_RUN_LINES_MAX 1000

struct sample_run_options {
    struct node_options node; /* without store.dir, which sample_run sets */
    const char *path;
    const uint32_t *prompt_tokens; /* (requests) in file order; requests with 0 are not sampled */
    const uint32_t *answer_tokens; /* (requests) max_tokens times n; 0: the request sets none */
    uint64_t requests;
    uint32_t prompt_tokens_max; /* longer prompts would be refused and are not sampled */
    uint32_t lines;             /* requests to run, at most SAMPLE_RUN_LINES_MAX */
    const volatile bool *stop;
};

/* One group that ran. */
struct sample_group {
    uint32_t lines;
    double seconds;
    double computed_prompt_tokens, computed_output_tokens; /* not cached, of no reused answer */
    uint64_t output_tokens;                                /* tokens in all answers */
    uint64_t answer_tokens;  /* sum of max_tokens; 0: not all set it */
    uint64_t longest_output; /* tokens of the longest answer of a line */
};

struct sample_run {
    uint32_t lines, failed;
    size_t groups;
    struct sample_group group[SAMPLE_RUN_GROUPS];
    uint64_t prompt_tokens, cached_tokens;
    double load_seconds;
    /* Share of the time since the start of the engine in which its thread that waited longest was
     * ready to run and other work had the processors. 0: no other work, or not known. */
    double wait_share;
    double watts; /* mean power of the machine while the groups ran; NAN: not known */
};

/* ERR_INVALID if no line can be sampled or the sample is refused; ERR_CANCELLED if *stop became
 * true; ERR_CONFLICT if the file changed; ERR_IO if the engine does not load the model. */
enum err sample_run(const struct sample_run_options *options, struct sample_run *ret_sample,
                    struct error *error) MUST_CHECK;
