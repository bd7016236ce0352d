/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_count: an input file, read as the engine would read it, without running it.
 *
 * It finds the exact tokens of every prompt through the model's template and tokenizer, the
 * duplicates, the share of the prompts that repeats the beginning of another prompt, in whole
 * blocks of 16 tokens (the engine shares up to 15 tokens more), and where shared text stands
 * (token_layout.h). Without a model, lengths are guesses from bytes. The figures
 * do not depend on the order of the threads while the file has fewer than a million distinct blocks
 * of 16 tokens.
 *
 * Thread: one calls; it starts its own, which share one reader and add under one lock.
 * Memory: about 28 bytes per request; for prefixes 16 MiB and 128 bytes per request at most; one
 *         request per thread. */

#include "engine/served_model.h"
#include "preflight/line_check.h"
#include "preflight/token_layout.h"

struct request_count_options {
    const char *path;
    const struct line_check *check;   /* lines that the batch refuses are not counted */
    const struct served_model *model; /* NULL: lengths are guessed from bytes */
    uint32_t context_tokens_max;      /* prompt and answer together, with a model that generates */
    uint32_t text_tokens_max;         /* most tokens in a text, with a model that embeds */
    bool trusts_templates;            /* a request may bring its own */
    uint32_t threads;                 /* 0: one per core */
};

struct request_count {
    uint32_t *prompt_tokens; /* (requests); 0 for a faulty one */
    uint32_t *answer_tokens; /* (requests) max_tokens times n; 0: the request sets no max_tokens */
    uint32_t *sequence_tokens; /* (requests) the longest prompt and its max_tokens; 0 for a faulty
                                  one, unless it is only too long */
    uint64_t requests;
    uint64_t faulty;   /* lines that end with an error, included in `requests` */
    uint64_t too_long; /* faulty lines that do not fit into the context */
    struct line_fault faults[LINE_CHECK_FAULTS_MAX]; /* the first of the file */
    uint64_t bytes;
    uint64_t prompt_tokens_sum;
    uint64_t duplicates; /* requests that get the answer of an equal one and need no run */
    uint64_t duplicate_prompt_tokens, duplicate_answer_tokens; /* sums over all duplicates */
    uint64_t duplicate_shared_tokens;                          /* part of shared_tokens */
    uint64_t shared_tokens; /* prompt tokens that an unbounded prefix cache would already hold */
    struct token_layout_advice advice;
    double seconds;
};

/* ERR_NOT_FOUND, ERR_UNAVAILABLE or ERR_IO if the file cannot be read. */
enum err request_count_file(const struct request_count_options *options,
                            struct request_count *ret_counted, struct error *error) MUST_CHECK;
void request_count_release(struct request_count *counted);
