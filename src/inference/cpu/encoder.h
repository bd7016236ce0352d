/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* encoder: the BERT forward program over one step of whole texts: rows of many texts in, their
 * final hidden states out.
 *
 * Texts follow one another without padding; each row sees all rows of its own text. The layers take
 * turns in one KV cache, which holds the step's keys and values of one layer. It knows no pooling.
 *
 * Algorithm: Devlin et al. 2018, as transformers' BertModel computes it; with rotary positions and
 * a gate, as NomicBertModel does; with a bias of scores by distance, as MPNetModel does.
 *
 * Thread: one caller at a time, which spreads the work over a pool.
 * Memory: sized in encoder_open by a formula over rows_max; a step allocates nothing.
 * Invariant: a text's rows are bitwise the same for any other texts in the step and for any number
 *     of threads. */

#include "scheduler/backend.h"
#include "weights/weights.h"

struct encoder;

struct encoder_options {
    const struct model_config *config; /* its architecture is an encoder */
    const struct weights *weights;
    const struct kernels *kernels;
    struct pool *pool;
    uint32_t rows_max;    /* most rows of a step */
    uint32_t block_count; /* blocks of KV_BLOCK_TOKENS positions; block numbers are below it */
};

/* ERR_LIMIT without memory. Everything that the options point to must outlive the encoder. */
enum err encoder_open(struct encoder **ret_encoder, const struct encoder_options *options,
                      struct error *error) MUST_CHECK;
void encoder_close(struct encoder *encoder); /* NULL is allowed */
uint64_t encoder_workspace_bytes(const struct encoder *encoder);

/* Runs all layers over the rows of a step, whose sequences are whole texts (kv_tokens 0);
 * is_second, (row_count), marks rows of the second text of a pair. Returns (row_count, width)
 * floats, valid until the next call. */
const float *encoder_run(struct encoder *encoder, const struct step *step, const bool *is_second);
