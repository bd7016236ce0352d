/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request: the body of a chat or text completion, checked and turned into numbers.
 *
 * Knows the API's fields, types and ranges; knows no template and no tokenizer. Every number that
 * a client can write is checked here, in one table. A field that would constrain the answer and is
 * not supported is refused, never ignored; a field nobody knows is ignored.
 *
 * Thread: any; one request belongs to one thread.  Memory: owns the parsed body and the arrays;
 * request_release frees. All json_t and str members are borrowed from the body.
 * Invariant: after request_parse the fields keep the ranges stated beside them. */

#include "engine/refusal.h"
#include "scheduler/sampling.h"
#include "wire/wire_messages.h"

#define REQUEST_STOPS_MAX 4
#define REQUEST_STOP_BYTES_MAX 1024
#define REQUEST_CHOICES_MAX 128
#define REQUEST_SEQUENCES_MAX 1024 /* prompts times n */
#define REQUEST_TOP_LOGPROBS_MAX 20

/* Zero is a valid start. */
struct request {
    enum wire_endpoint endpoint; /* CHAT or COMPLETIONS */
    json_t *body;                /* owned */
    struct str model;

    /* CHAT */
    json_t *messages;           /* a non-empty array of checked messages; prep may change them */
    json_t *tools;              /* a non-empty array, or NULL */
    json_t *template_variables; /* an object, or NULL */
    struct str reasoning_effort;
    bool add_generation_prompt;
    bool continue_final_message;
    /* COMPLETIONS */
    json_t *prompt;      /* string, [string], [integer] or [[integer]], none of the arrays empty */
    size_t prompt_count; /* 1..REQUEST_SEQUENCES_MAX; 1 for a chat */

    int64_t choices; /* n: 1..REQUEST_CHOICES_MAX */
    bool add_special_tokens;
    bool echo;
    bool stream;        /* what the body says; the job decides */
    bool include_usage; /* in the stream */
    bool truncate_prompt;
    int64_t truncate_prompt_tokens; /* -1, or at least 1 */

    double temperature;                         /* 0..2; */
    double top_p;                               /* 0..1 */
    int64_t top_k;                              /* -1, 0: off */
    double min_p;                               /* 0..1 */
    double presence_penalty, frequency_penalty; /* -2..2 */
    double repetition_penalty;                  /* above 0, to 100 */
    bool has_seed;
    int64_t seed;
    int64_t max_tokens; /* 0: not given */
    int64_t min_tokens;
    bool ignore_eos;
    bool include_stop; /* the text that stopped it is part of the answer */
    bool skip_special_tokens;
    bool logprobs;
    int64_t top_logprobs; /* 0..REQUEST_TOP_LOGPROBS_MAX */
    struct str stops[REQUEST_STOPS_MAX];
    size_t stop_count;
    struct logit_bias *biases; /* (bias_count), owned */
    uint32_t bias_count;
    int32_t *stop_tokens; /* (stop_token_count), owned */
    uint32_t stop_token_count;
};

/* Parses and checks. False and *ret_refusal (status 400) when something is wrong; nothing is to be
 * released then. `vocabulary_count` bounds token ids. */
bool request_parse(struct request *ret_request, enum wire_endpoint endpoint, struct str body,
                   uint32_t vocabulary_count, struct refusal *ret_refusal) MUST_CHECK;
void request_release(struct request *request);
