/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* preflight: what running a file will take, before it is run: survey.h counts, pilot.h measures a
 * sample, estimate.h does the arithmetic; this puts the figures together.
 *
 * Thread: main.  Memory: the lengths of all requests while it works. */

#include "preflight/count.h"
#include "preflight/estimate.h"
#include "preflight/sample_run.h"

struct preflight_options {
    const char *path;
    struct node_options node; /* one model, or one upstream, for which lengths are guesses and
                                   there is no pilot; so for echo */
    uint32_t pilot_lines;     /* 0: none */
    double watts;             /* 0: not known */
    double price_per_kwh;
    double input_price, output_price; /* per million tokens of a managed API; 0: not known */
    double batch_discount;            /* 0..1, of that price */
    const volatile bool *stop;
    void *context;
    void (*say)(void *context, const char *what); /* what is being done; NULL allowed */
};

struct lengths {
    uint32_t p50, p95, p99, max;
    uint64_t bins[ESTIMATE_BINS];
};

struct preflight {
    bool is_guess; /* bytes over four, for want of a tokenizer */
    bool only_embeds;
    char model[MODEL_NAME_BYTES];
    /* of the survey */
    uint64_t requests, faulty, bytes;
    struct survey_fault faults[SURVEY_FAULTS_MAX];
    double survey_seconds;
    uint64_t prompt_tokens;
    struct lengths prompts;
    uint64_t answers_asked; /* sum of max_tokens over requests that say one */
    uint64_t answers_open;  /* requests that say none */
    uint64_t duplicates, shared_tokens;
    double late_share;       /* of the requests: shared text behind private text */
    double late_tokens_mean; /* about, over all requests */
    /* of the context; 0 when the model is not known */
    uint32_t context_tokens;     /* as opened; 0 when it only embeds */
    uint64_t over_context;       /* requests that would be refused */
    uint32_t recommended_length; /* for --max-model-len */
    uint32_t whole_length;       /* that refuses nobody */
    /* of the KV cache */
    uint64_t kv_tokens;
    uint64_t fit_mean, fit_p95; /* sequences of such a length at a time */
    /* of the pilot */
    bool has_pilot;
    struct pilot pilot;
    struct interval seconds;       /* of the whole file, loading included */
    struct interval output_tokens; /* of the whole file; without a pilot, at most what is asked */
    /* of money; 0 when a price was not given */
    struct interval kwh, energy_cost, api_cost;
};

/* ERR_INVALID and others as its parts; a file with faulty lines is no error. */
enum err preflight_run(const struct preflight_options *options, struct preflight *ret_preflight,
                       struct error *error) MUST_CHECK;
/* Appends the figures as one JSON object; keys are stable, and null what is not known. */
void preflight_write_json(struct buf *buf, const struct preflight *is);
