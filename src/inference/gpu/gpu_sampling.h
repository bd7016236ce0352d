/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_sampling: the sampling of a step's rows, in the structs of a GPU, and its answers.
 *
 * Equal logits give the token that cpu/sampler.h gives: what a request asks for becomes edits of
 * logits, a mask and a draw (kernels/draw.h). Log-probabilities become questions about a row. This
 * file decides the same open cases as the sampler of the CPU: `allowed` wins over min_tokens, a
 * mask that allows no token is ignored, and a row without a token that can be taken gets the lowest
 * allowed id.
 *
 * A step's rows come in one call, or in several: a call has room for a number of edits, which is
 * never less than one row can need. Rows whose edits do not fit wait for the next call. No edit is
 * ever left out.
 *
 * Thread: one at a time.
 * Memory: sized at open. A record keeps the questions of one step until its answers come. */

#include "gpu/table.h"
#include "scheduler/backend.h"

/* Edits of a call per sequence; more when a single row can need more. A call takes penalties over
 * 2,048 different tokens for every sequence: 32 MiB for 1,024 of them. */
#define GPU_EDITS_EACH 2048u

struct gpu_sampling;

struct gpu_sampling_options {
    uint32_t vocab;
    uint32_t logit_rows_max; /* most rows in a step */
    uint32_t sequences_max;  /* sampled rows of a step */
    uint32_t context_max;    /* positions of a sequence */
};

/* A logit row of a step under way. */
struct gpu_question {
    int32_t slot;
    bool is_drawn;
    bool is_scored;
    bool has_ask;
    uint32_t ask; /* index of its answer */
    uint32_t named_begin;
    uint32_t named_count;
};

/* The questions about the rows of a step under way. */
struct gpu_record {
    struct gpu_question *questions; /* (logit_rows_max) by index of the logit row */
    uint32_t question_count;
    uint32_t ask_count;
    int32_t *named; /* (named_max) */
    uint32_t named_count;
};

uint32_t gpu_sampling_edits_max(const struct gpu_sampling_options *options);
uint32_t gpu_sampling_named_max(const struct gpu_sampling_options *options);

enum err gpu_sampling_open(struct gpu_sampling **ret_sampling,
                           const struct gpu_sampling_options *options,
                           struct error *error) MUST_CHECK;
void gpu_sampling_close(struct gpu_sampling *sampling); /* NULL is allowed */
enum err gpu_record_open(struct gpu_record *ret_record, const struct gpu_sampling_options *options,
                         struct error *error) MUST_CHECK;
void gpu_record_close(struct gpu_record *record);

/* Makes the record of a step, and the first samples of its rows that are not late; NULL if it has
 * none. Samples are valid until the next call; gpu_sampling_more makes those of the other rows.
 */
const struct gpu_samples *gpu_sampling_begin(struct gpu_sampling *sampling,
                                             struct gpu_record *record, const struct step *step,
                                             uint64_t number);
/* Makes the first samples of the step's late rows, which follow gpu_sampling_begin. */
const struct gpu_samples *gpu_sampling_late(struct gpu_sampling *sampling,
                                            struct gpu_record *record, const struct logit_row *rows,
                                            uint32_t count, uint64_t number);
/* Makes the next samples of the rows that gpu_sampling_begin or gpu_sampling_late was given,
 * whose rows must still be there; NULL when they have all come. */
const struct gpu_samples *gpu_sampling_more(struct gpu_sampling *sampling);
/* Sets the samples, by index of the logit row, from the results of the step. Late rows that were
 * never sampled are left as they are. */
void gpu_sampling_answer(const struct gpu_record *record, const struct gpu_result *result,
                         struct sample *samples);
