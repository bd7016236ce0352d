/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* decision: one decision request inside an engine: its questions as prompts, the reads of their
 * next tokens, then the body of the answer.
 *
 * A read is a prompt with the labels whose log probabilities are wanted for its next token. A
 * question has one read. It has several if its labels are more than a read can name, or if its
 * labels have two tokens: then one read for the first letters and one behind each first letter. All
 * prompts begin with the same text, which the scheduler computes once, so that only their ends are
 * kept apart. The texts of prompts are prompt format 1 (decisions/wording.h).
 *
 * Thread: the stage that owns the job; the stages change as with a job.
 * Memory: owns all it points to; decision_release frees.
 * Invariant: done_count <= next_read <= read_count. */

#include "decisions/question.h"
#include "engine/prep.h"

#include <stdatomic.h>

#define DECISION_READS_UNDER_WAY_MAX 64u /* reads of a request that the scheduler has at a time */
#define DECISION_READ_LABELS_MAX SAMPLING_LOGPROB_TOKENS_MAX

struct decision_labels;

struct decision_prompt {
    size_t common; /* tokens that it shares with the first prompt, from the beginning on */
    size_t at;     /* start of its other tokens in `ends` */
    size_t count;  /* number of its other tokens */
};

struct decision_read {
    uint32_t question;
    int32_t letter;        /* the token behind the prompt; TOKEN_NONE: none */
    const int32_t *labels; /* (label_count) part of decision.labels */
    uint32_t label_count;
    size_t results_at; /* start of its log probabilities in decision.results */
};

/* Zero is a valid start. */
struct decision {
    json_t *body;               /* owned; the questions borrow from it */
    struct questions questions; /* (questions.count) */
    struct decision_labels *labels;
    struct ids first;                /* the first prompt */
    struct ids ends;                 /* the ends of the others */
    struct decision_prompt *prompts; /* (questions.count) */
    struct decision_read *reads;     /* (read_count) questions in order, each with its reads */
    uint32_t read_count;
    float *results; /* (result_count) log probabilities of all labels of all reads */
    size_t result_count;

    /* Only the loop changes these until the last read is done. */
    uint32_t next_read, done_count;
    uint32_t under_way[DECISION_READS_UNDER_WAY_MAX]; /* the read of a place, plus 1; 0: free */
    uint64_t input_tokens, cached_tokens;
};

/* Reads the body, of /v1/decisions or /v1/systemone, and makes the prompts and reads. Stops early
 * once *is_cancelled is set (NULL: never), with any refusal. False and *ret_refusal if the request
 * cannot be served; the caller releases in either case. */
bool decision_prepare(struct decision *decision, enum endpoint endpoint, struct str body,
                      const struct served_model *model, const struct prep_options *options,
                      const atomic_bool *is_cancelled, struct refusal *ret_refusal) MUST_CHECK;
/* The member of a body that has the text: "input" or "state". */
const char *decision_text_member(enum endpoint endpoint);
void decision_release(struct decision *decision);

/* Fills `ids`, which may have room already, with the tokens of a read's prompt. */
void decision_read_tokens(const struct decision *decision, const struct decision_read *read,
                          struct ids *ids);
/* Keeps the log probabilities of a read's labels. */
void decision_take(struct decision *decision, const struct decision_read *read,
                   const struct sample *sample);
/* True if every question has a label with a probability that a number can hold; else *ret_refusal
 * (status 500). All reads are done. */
bool decision_check_results(const struct decision *decision,
                            struct refusal *ret_refusal) MUST_CHECK;

/* Appends the body of a request whose reads are all done: pure ASCII JSON on one line. */
void decision_write_body(struct buf *out, struct str model_name, const struct decision *decision);
