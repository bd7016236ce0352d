/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* latent: what happens to rows of a latent layer (kernels/latent.h) before attention reads them: an
 * entry becomes whole and goes into its page, and q is cut into what turns and what does not.
 *
 * The products of heads are cuBLASLt's (products.h), the attention is attention.h's.
 *
 * Every call only enqueues. Widths and strides are multiples of 8, pointers at multiples of 16.
 *
 * Thread: one per stream.
 * Memory: GPU memory of the caller; nothing is allocated.
 * Invariant: a row's result is bitwise the same for any other rows of the call. */

#ifdef __cplusplus
extern "C" {
#endif

#include "gpu/cuda/rows.h"

/* The angles of positions; elements i and i + half of a part that turns go together. */
struct cuda_turns {
    const float *cosines; /* (positions, turned_dim / 2) */
    const float *sines;
    const uint32_t *positions; /* (rows) */
};

/* entry = RMSNorm(first `rank` columns) · norm | the next turned_dim columns, turned. */
struct cuda_latent_entry {
    struct cuda_product in; /* from the entry's columns on */
    uint32_t rows;
    uint32_t rank;       /* a multiple of 16, at most 512 */
    uint32_t turned_dim; /* a multiple of 16, at most 512 */
    const float *norm;   /* (rank) */
    float epsilon;
    struct cuda_turns turns;
    const uint32_t *slots; /* (rows): page · 16 + offset, all different */
    uint16_t *entries;     /* (pages, 16, rank + turned_dim) bf16 */
};
enum err cuda_latent_entry(const struct cuda_latent_entry *call, struct CUstream_st *stream,
                           struct error *error) MUST_CHECK;

/* still = the first still_dim columns of each head; of q the part behind `rank` = the others,
 * turned. */
struct cuda_latent_q {
    struct cuda_product in;  /* (…, heads · (still_dim + turned_dim)) */
    const uint32_t *in_rows; /* (rows): row i reads that row of `in`; NULL: row i */
    uint32_t rows;
    uint32_t heads;
    uint32_t rank;
    uint32_t still_dim;  /* a multiple of 8 */
    uint32_t turned_dim; /* a multiple of 16 */
    struct cuda_turns turns;
    uint16_t *still; /* (rows, heads, still_dim) bf16 */
    uint16_t *q;     /* (rows, heads, rank + turned_dim) bf16 */
};
enum err cuda_latent_q(const struct cuda_latent_q *call, struct CUstream_st *stream,
                       struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif
