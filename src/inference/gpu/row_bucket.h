/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* row_bucket: the numbers of rows for which a GPU computes products.
 *
 * The CUDA plugin rounds the rows of a step up to a bucket, so that few shapes are timed and
 * recorded, and its buffers have as many rows. Whoever predicts its memory needs the same numbers.
 *
 * Thread: any.
 * Memory: none. */

#include <stdint.h>

#define ROW_BUCKET_MAX 8192u

/* The least bucket that holds `rows`; the largest one for more. From 512 on there is one per 128
 * rows, which is a tile of cuBLASLt's kernels, as far as steps usually go. */
static inline uint32_t row_bucket(uint32_t rows) {
    static const uint16_t buckets[] = {
        16,   32,   48,   64,   96,   128,  160,  192,  256,  320,  384,
        448,  512,  640,  768,  896,  1024, 1152, 1280, 1408, 1536, 1664,
        1792, 1920, 2048, 2304, 2560, 3072, 3584, 4096, 5120, 6144, ROW_BUCKET_MAX};
    uint32_t at = 0;
    while (buckets[at] < rows && buckets[at] < ROW_BUCKET_MAX) at++;
    return buckets[at];
}
