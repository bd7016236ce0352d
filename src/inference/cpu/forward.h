/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* forward: a decoder's program (program/program.h) on the CPU, over one mixed step: rows of many
 * sequences in, final hidden states and the logits of some rows out.
 *
 * It runs the operations in their order, each over all rows, with one function per kind of
 * operation. It knows no architecture and no sampling.
 *
 * A step can be run slice by slice. Between two slices another step may run in a second workspace,
 * on the same weights and the same KV cache, if neither step touches a slot that the other writes.
 *
 * Thread: one caller at a time, which spreads the work over a pool.
 * Memory: the workspace is sized in forward_open by a formula over rows_max; a step allocates
 *     nothing. The KV cache is mapped there too, and takes memory as blocks are first written.
 * Invariant: a row's results are bitwise the same for any other rows in the step, for any cut of
 *     its prompt into steps and for any number of threads. */

#include "program/kv_layout.h"
#include "scheduler/backend.h"
#include "weights/weights.h"

struct forward;

struct forward_options {
    const struct model_config *config;
    const struct weights *weights;
    const struct kernels *kernels;
    struct pool *pool;
    uint32_t rows_max;              /* most rows of a step */
    uint32_t logit_rows_max;        /* most rows of one forward_logits */
    const struct kv_layout *layout; /* layers of the pages; NULL: a page has all layers */
    uint32_t page_count;            /* pages of KV_BLOCK_TOKENS positions */
    uint32_t state_count;           /* places for states, of a model with recurrent layers */
    bool kv_is_int8; /* keys and values of 8 bits, but no latent entries; else as the kernels do */
    /* for embeddings */
    bool is_one_pass;      /* each step holds whole texts: the layers take turns in one layer's KV
                              blocks, and nothing is kept for later steps */
    bool is_bidirectional; /* every row sees all rows of its sequence; only with is_one_pass */
};

/* Bytes of the state of a sequence in all recurrent layers; 0: there is none. */
uint64_t forward_state_bytes(const struct model_config *config);
/* Bytes of one page: keys and values of a group's layers. */
uint64_t forward_page_bytes(const struct kv_layout *layout, const struct kernels *kernels,
                            bool kv_is_int8);

/* ERR_LIMIT without memory. Everything that the options point to must outlive it. */
enum err forward_open(struct forward **ret_forward, const struct forward_options *options,
                      struct error *error) MUST_CHECK;
/* Opens a second workspace on the weights and the KV cache of `of`, which must outlive it.
 * ERR_LIMIT without memory. */
enum err forward_open_beside(struct forward **ret_forward, const struct forward *of,
                             uint32_t rows_max, uint32_t logit_rows_max,
                             struct error *error) MUST_CHECK;
void forward_close(struct forward *forward);                     /* NULL is allowed */
uint64_t forward_workspace_bytes(const struct forward *forward); /* without the KV cache */

/* Runs all layers over the rows of a step, within the bounds of the options. Only the rows in
 * `wanted`, (wanted_count) ascending, can have logits: the last layer only stores keys and values
 * of all others. */
void forward_run(struct forward *forward, const struct step *step, const uint32_t *wanted,
                 uint32_t wanted_count);
/* forward_run in slices, as the program marks them, three per layer: begin, then advance until it
 * returns true. The step and `wanted` must not change until then. */
void forward_begin(struct forward *forward, const struct step *step, const uint32_t *wanted,
                   uint32_t wanted_count);
bool forward_advance(struct forward *forward);
/* Hidden states after the last norm of wanted[first..first+count). Returns (count, width) floats,
 * valid until the next step. */
const float *forward_hidden(struct forward *forward, uint32_t first, uint32_t count);
/* Logits of wanted[first..first+count) of the step last run, count <= logit_rows_max. Returns
 * (count, vocab_rows) floats, valid until the next call. */
const float *forward_logits(struct forward *forward, uint32_t first, uint32_t count);
