/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* device_sampling: the sampling of a step's rows, in the structs of a device, and its answers.
 *
 * Equal logits give the token that cpu/sampler.h gives: what a request asks for becomes edits of
 * logits, a mask and a draw (kernels/draw.h). Log-probabilities become questions about a row. This
 * file decides the same open cases as the sampler of the CPU: `allowed` wins over min_tokens, a mask that
 * allows no token is ignored, and a row without a token that can be taken gets the lowest allowed
 * id.
 *
 * A step's rows come in one call, or in several: a call has room for a number of edits, which is
 * never less than one row can need. Rows whose edits do not fit wait for the next call. No edit is
 * ever left out.
 *
 * Thread: one at a time.
 * Memory: sized at open. A record keeps the questions of one step until its answers come. */

#include "kernels/device.h"
#include "scheduler/backend.h"

/* Edits of a call per sequence; more when a single row can need more. A call takes penalties over
 * 2,048 different tokens for every sequence: 32 MiB for 1,024 of them. */
#define DEVICE_EDITS_EACH 2048u

struct device_sampling;

struct device_sampling_options {
    uint32_t vocab;
    uint32_t logit_rows_max; /* of a step */
    uint32_t sequences_max;  /* sampled rows of a step */
    uint32_t context_max;    /* positions of a sequence */
};

/* A logit row of a step under way. */
struct device_question {
    int32_t slot;
    bool is_drawn;
    bool is_scored;
    bool has_ask;
    uint32_t ask; /* index of its answer */
    uint32_t named_begin;
    uint32_t named_count;
};

/* The questions about the rows of a step under way. */
struct device_record {
    struct device_question *questions; /* (logit_rows_max) by index of the logit row */
    uint32_t question_count;
    uint32_t ask_count;
    int32_t *named; /* (named_max) */
    uint32_t named_count;
};

uint32_t device_sampling_edits_max(const struct device_sampling_options *options);
uint32_t device_sampling_named_max(const struct device_sampling_options *options);

enum err device_sampling_open(struct device_sampling **ret_sampling,
                              const struct device_sampling_options *options,
                              struct error *error) MUST_CHECK;
void device_sampling_close(struct device_sampling *sampling); /* NULL is allowed */
enum err device_record_open(struct device_record *ret_record,
                            const struct device_sampling_options *options,
                            struct error *error) MUST_CHECK;
void device_record_close(struct device_record *record);

/* Makes the record of a step, and the first samples of its rows that are not late; NULL if it has
 * none. Samples are valid until the next call; device_sampling_more makes those of the other rows.
 */
const struct device_samples *device_sampling_begin(struct device_sampling *sampling,
                                                   struct device_record *record,
                                                   const struct step *step, uint64_t number);
/* Makes the first samples of the step's late rows, which follow device_sampling_begin. */
const struct device_samples *device_sampling_late(struct device_sampling *sampling,
                                                  struct device_record *record,
                                                  const struct logit_row *rows, uint32_t count,
                                                  uint64_t number);
/* Makes the next samples of the rows that device_sampling_begin or device_sampling_late was given,
 * whose rows must still be there; NULL when they have all come. */
const struct device_samples *device_sampling_more(struct device_sampling *sampling);
/* Sets the samples, by index of the logit row, from the results of the step. Late rows that were
 * never sampled are left as they are. */
void device_sampling_answer(const struct device_record *record, const struct device_result *result,
                            struct sample *samples);
