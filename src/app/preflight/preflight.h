/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* preflight: what running a file will take, before it is run.
 *
 * line_check.h finds the lines that a batch refuses, request_count.h counts tokens, sample_run.h
 * measures a sample, time_fit.h and estimate.h do the arithmetic, costs/costs.h counts the money;
 * this module puts the figures together, as a struct and as JSON.
 *
 * Thread: main.
 * Memory: the lengths of all requests while preflight_run works. */

#include "costs/costs.h"
#include "preflight/estimate.h"
#include "preflight/line_check.h"
#include "preflight/request_count.h"
#include "preflight/sample_run.h"
#include "preflight/time_fit.h"

struct preflight_options {
    const char *path;
    /* One model, or one upstream. For an upstream and for the echo worker lengths are guesses and
     * no sample runs. */
    struct node_options node;
    struct batch_rules rules; /* rules for the batch that would run the file */
    enum endpoint endpoint;   /* its endpoint; ENDPOINT_COUNT: that of the first line */
    bool any_model;           /* take lines whatever model they name */
    bool needs_model;         /* no line may leave out its model */
    uint32_t sample_lines;    /* requests to run; 0: none */
    struct prices prices;
    const volatile bool *stop;
    void *context;
    void (*say)(void *context,
                const char *phase); /* "counting tokens" and the like; NULL allowed */
};

struct lengths {
    uint32_t p50, p95, p99, max;
    size_t bin_count;
    struct estimate_bin bins[ESTIMATE_BINS];
};

struct preflight {
    bool is_guess; /* lengths are bytes over four: the model's tokenizer is not here */
    bool only_embeds;
    char model[MODEL_NAME_BYTES];
    /* from the count */
    uint64_t requests, bytes;
    uint64_t faulty;                 /* lines that get an error instead of an answer */
    uint64_t refused;                /* faulty lines for which the batch refuses the whole file */
    struct shape_check_stats shapes; /* for lines that ask for a shape; asked 0: not checked */
    struct line_fault faults[LINE_CHECK_FAULTS_MAX]; /* the first faulty lines */
    struct line_fault file_fault; /* a fault of the file as a whole; code empty: none */
    double count_seconds;
    uint64_t prompt_tokens;
    struct lengths prompts;
    uint64_t answers_asked; /* sum of max_tokens over the requests that set it */
    uint64_t answers_open;  /* requests that set no max_tokens */
    uint64_t duplicates, shared_tokens;
    uint64_t duplicate_prompt_tokens, duplicate_answer_tokens; /* sums over the duplicates */
    uint64_t duplicate_shared_tokens;                          /* part of shared_tokens */
    double late_share;       /* 0..1: requests with shared text behind private text */
    double late_tokens_mean; /* about so many tokens of it per request, over all requests */
    /* about the context; 0 if the model is not known */
    uint32_t context_tokens;               /* context of the model as opened; 0 if it only embeds */
    uint64_t over_context;                 /* requests that would be refused for their length */
    uint32_t recommended_length;           /* a --max-model-len for 19 of 20 requests or more */
    uint32_t whole_length;                 /* a --max-model-len for all requests */
    uint64_t recommended_serves, measured; /* requests that it serves, and with a known length */
    /* about the KV cache */
    uint64_t kv_tokens;
    uint64_t fit_mean, fit_p95; /* sequences of mean and of P95 length that fit at a time */
    /* from the sample */
    bool has_sample;
    struct sample_run sample;
    bool is_on_card;
    struct interval seconds;          /* for the whole file, loading included */
    struct interval seconds_unshared; /* the same without cached prefixes and reused answers */
    struct interval output_tokens; /* in the whole file; without a sample, the sum of max_tokens */
    /* energy and money; 0 if a price is not known */
    struct interval kwh, energy_cost, api_cost;
    struct cost_job job;
    struct costs costs;
};

/* Any error of request_count_file, sample_run or the opening of the model. A file with faulty lines
 * is no error. */
enum err preflight_run(const struct preflight_options *options, struct preflight *ret_preflight,
                       struct error *error) MUST_CHECK;
/* Appends the figures as one JSON object with stable keys; an unknown figure is null. */
void preflight_write_json(struct buf *buf, const struct preflight *is, const struct prices *prices);
