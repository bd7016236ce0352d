/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* survey: reads an input file as the engine would, without running it: the exact tokens of every
 * prompt through the model's template and tokenizer, what is there twice, how much of the prompts
 * is a prefix that others have too, and where shared text stands.
 *
 * Threads share one reader; what they find is added under one lock, and none of it depends on their
 * order, as long as the file has fewer than a million distinct blocks of 16 tokens.
 *
 * Thread: one calls; starts its own.  Memory: about 24 bytes a request, at most 16
 * MiB and 128 bytes a request for prefixes, and one request a thread. */

#include "engine/served_model.h"
#include "preflight/token_layout.h"

#define SURVEY_FAULTS_MAX 5

struct survey_options {
    const char *path;
    const struct served_model *model; /* NULL: lengths are guessed from bytes */
    uint32_t threads;                 /* 0: one a core */
};

/* A line that would be refused. */
struct survey_fault {
    uint64_t number; /* of the line, from 1 */
    char message[200];
};

struct survey {
    uint32_t *prompt_tokens; /* (requests), by request */
    uint32_t *answer_tokens; /* (requests): max_tokens of the request times n; 0: not given */
    uint64_t requests;
    uint64_t faulty; /* of them, that are no request: 0 tokens */
    struct survey_fault faults[SURVEY_FAULTS_MAX];
    uint64_t bytes;
    uint64_t prompt_tokens_sum;
    uint64_t duplicates;    /* requests that get the answer of an equal one: they need no run */
    uint64_t shared_tokens; /* of the prompts, that a prefix cache without end has already */
    struct layout_advice advice;
    double seconds;
};

/* ERR_NOT_FOUND and the like when the file cannot be read. */
enum err survey_file(const struct survey_options *options, struct survey *ret_survey,
                     struct error *error) MUST_CHECK;
void survey_release(struct survey *survey);
