/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* reduce: the norm behind a product whose inputs are spread over several GPUs, each of which has a
 * rank. Every rank left a part of the product; every rank adds all parts to its copy of the
 * residual and leaves the norm for its next product: an all-reduce, an addition and a norm in one
 * kernel, in one shot. Each rank reads the parts of the others from their memory (peer access).
 * Where no such norm reads the product, `cuda_total` writes the parts' sums and nothing else.
 *
 * The ranks meet once per call: a rank says that its part is there, and waits until all others have
 * said so. Nobody waits until its part has been read. So parts of two calls in a row lie in
 * different buffers: a rank's second call ends after every rank has begun it, and so has read the
 * part of the call before. Only then a product may write there again.
 *
 * It knows no program and no step. All ranks make the same calls in the same order.
 *
 * Thread: one per stream, or one for all: a call only enqueues. The calls of all ranks must be
 *     enqueued before the host waits for one of them.
 * Memory: GPU memory of the caller; nothing is allocated.
 * Invariant: parts are summed in the order of the ranks, so all ranks leave the same bits; a row's
 *     result is bitwise the same for any other rows of the call. */

#ifdef __cplusplus
extern "C" {
#endif

#include "gpu/cuda/rows.h"

#define CUDA_RANKS_MAX 8u

/* What the ranks of a call have for each other. */
struct cuda_meeting {
    const uint16_t *parts[CUDA_RANKS_MAX]; /* (ranks): (rows, stride) bf16 of each rank */
    /* (ranks): (CUDA_RANKS_MAX) words of each rank, zeros at first: word i is what rank i said to
     * it last. NULL: nobody says anything, all parts are there. */
    uint32_t *words[CUDA_RANKS_MAX];
    /* Memory of the host, or NULL: a rank waits while it is 0. Then it waits for nobody any more,
     * and what it leaves is not changed. */
    const uint32_t *given_up;
    uint32_t ranks; /* 2..CUDA_RANKS_MAX */
    uint32_t rank;
    uint32_t number; /* the call's, the same in all ranks, ascending from 1; may wrap around */
};

struct cuda_reduce {
    struct cuda_norm norm; /* h: stride and bias of all parts; without sums and scales */
    struct cuda_meeting meeting;
    uint32_t blocks_max; /* 0: a block per row, which was as fast as any number */
};

/* The sums of all parts, for what is no norm of the residual. */
struct cuda_total {
    struct cuda_meeting meeting;
    const float *bias; /* (width), or NULL */
    uint16_t *to;      /* (rows, stride) bf16; no part */
    uint32_t width;    /* a multiple of 8, as the stride */
    uint32_t stride;   /* the parts', too */
    uint32_t rows;
};
/* ERR_INVALID for other widths and strides, and for addresses of no multiple of 16. */
enum err cuda_total(const struct cuda_total *call, struct CUstream_st *stream,
                    struct error *error) MUST_CHECK;

/* Makes a part of a product whose sums have scales, each rank its own, or do not lie where others
 * reach them. */
struct cuda_part {
    struct cuda_product from; /* without a bias */
    uint16_t *to;             /* (rows, from.stride) bf16; not the sums */
    uint32_t width;           /* a multiple of 8, as the stride */
    uint32_t rows;            /* at most 65,535 */
};
enum err cuda_part(const struct cuda_part *call, struct CUstream_st *stream,
                   struct error *error) MUST_CHECK;

/* As cuda_norm with the sum of the parts as h. ERR_INVALID for a width of no multiple of 8 or above
 * 16,384 (12,032 with float32 weights), strides of no multiple of 8, or addresses of no multiple
 * of 16. */
enum err cuda_reduce(const struct cuda_reduce *call, struct CUstream_st *stream,
                     struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif
