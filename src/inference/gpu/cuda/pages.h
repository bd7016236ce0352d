/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pages: copies of pages of the KV cache.
 *
 * A page has keys, values and, in 8 bits, scales at each of its places (gpu/table.h). This
 * module knows neither their layout (attention.h) nor whose they are.
 *
 * Thread: one per stream.
 * Memory: GPU memory of the caller; every call only enqueues.
 * Invariant: a call waits for the kernel before it on the stream, so calls happen in their order.
 */

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

/* The cache: `places` places at equal distances. All sizes and distances are multiples of 16
 * bytes. */
struct cuda_pages {
    void *k;             /* keys of the first place: (pages, bytes) */
    void *v;             /* (pages, bytes); NULL: there are no values */
    void *scales;        /* (pages, scale_bytes); NULL: none */
    size_t place_stride; /* from an array of a place to that of the next, in bytes */
    uint32_t places;
    uint32_t bytes;       /* bytes of the keys of a page at a place, and of its values */
    uint32_t scale_bytes; /* 0 without scales */
};

/* Page `to` becomes a copy of page `from`, which is another one. ERR_INVALID for sizes and
 * distances that are not multiples of 16. */
enum err cuda_copy_page(const struct cuda_pages *pages, uint32_t from, uint32_t to,
                        struct CUstream_st *stream, struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif
