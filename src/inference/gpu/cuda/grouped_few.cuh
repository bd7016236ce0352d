/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grouped_few: a group of codes by few rows, for the kernel of grouped_few.cu, whose shapes S have
 * the weights' KIND, a warp's BLOCKS of lines and EIGHTS of rows, the PARTS of a group with scales
 * of their own, and BLOCK_BYTES, a block's of a group.
 *
 * Weights are the long side of mma.sync. A product of ones beside the codes' gives the sum of a
 * row's numbers, by which the 128 (in grouped.cuh) and the minima are taken off. So a group of 32
 * inputs costs two multiplications per sum, and no weight is rounded. */

#include "gpu/cuda/grouped.cuh"

#define ONES 0x3f803f80u

/* Codes, scales and rows of a group, as a lane has them. */
template <class S> struct few_group {
    uint4 codes[S::BLOCKS][S::PARTS], scales[S::BLOCKS], rows[S::EIGHTS];
};

/* From where the lane's codes and scales begin. */
template <class S>
__device__ static inline void read_codes(struct few_group<S> *to, const char *codes,
                                         const char *scales) {
#pragma unroll
    for (int b = 0; b < S::BLOCKS; b++) {
#pragma unroll
        for (int p = 0; p < S::PARTS; p++)
            to->codes[b][p] = *(const uint4 *)(codes + b * S::BLOCK_BYTES + p * 512);
        to->scales[b] = *(const uint4 *)(scales + b * S::BLOCK_BYTES + S::PARTS * 512);
    }
}

/* Where a lane's rows begin; beyond the last: the last, whose results are not left. */
template <class S> struct few_rows { const uint16_t *at[S::EIGHTS]; };

template <class S>
__device__ static inline void bring_rows(uint4 (&ret)[S::EIGHTS], const struct few_rows<S> &from,
                                         uint32_t group) {
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) {
        const uint16_t *at = from.at[e] + group * GROUPED_INPUTS;
        if (S::PARTS == 1) {
            ret[e] = *(const uint4 *)at;
            continue;
        }
        const uint2 low = *(const uint2 *)at, high = *(const uint2 *)(at + 16);
        ret[e] = make_uint4(low.x, low.y, high.x, high.y);
    }
}

template <class S> struct few_sums {
    float at[S::BLOCKS * 2][S::EIGHTS][4]; /* by sixteen lines */
};

/* The sums of each row's numbers, of a part of the group each. */
template <class S>
__device__ static inline void sum_rows(float (&ret)[S::PARTS][S::EIGHTS][2],
                                       const struct few_group<S> &group) {
    const uint32_t ones[4] = {ONES, ONES, ONES, ONES};
    if (S::KIND == GROUPED_E2M1) return; /* nothing to take off */
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) {
        float c[4];
        cuda_mma_anew(c, ones, group.rows[e].x, group.rows[e].y);
        if constexpr (S::PARTS == 2) {
            ret[0][e][0] = c[0], ret[0][e][1] = c[1];
            cuda_mma_anew(c, ones, group.rows[e].z, group.rows[e].w);
        } else {
            cuda_mma(c, ones, group.rows[e].z, group.rows[e].w);
        }
        ret[S::PARTS - 1][e][0] = c[0], ret[S::PARTS - 1][e][1] = c[1];
    }
}

template <int KIND>
__device__ static inline void add_scaled(float (&sums)[4], const float (&c)[4],
                                         const struct grouped_factors (&by)[2],
                                         const float (&row)[2]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (KIND == GROUPED_E2M1)
            sums[i] = __fmaf_rn(by[i / 2].scale, c[i], sums[i]);
        else
            sums[i] =
                __fmaf_rn(by[i / 2].scale, c[i], __fmaf_rn(by[i / 2].minimum, row[i % 2], sums[i]));
}

/* Sixteen lines, the first or second half of a block. */
template <class S>
__device__ static inline void
use_half(float (&sums)[S::EIGHTS][4], const struct few_group<S> &group,
         const float (&rows)[S::PARTS][S::EIGHTS][2], int b, int half) {
    const uint32_t words[4] = {group.scales[b].x, group.scales[b].y, group.scales[b].z,
                               group.scales[b].w};
    uint32_t one[4], other[4];
    struct grouped_factors by[S::PARTS][2];
    grouped_wide<S::KIND>(one, group.codes[b], 2 * half);
    grouped_wide<S::KIND>(other, group.codes[b], 2 * half + 1);
#pragma unroll
    for (int p = 0; p < S::PARTS; p++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            by[p][i] = grouped_wide_factors<S::KIND>(words[2 * half + i], p);
    const uint32_t low[4] = {one[0], other[0], one[1], other[1]};
    const uint32_t high[4] = {one[2], other[2], one[3], other[3]};
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) {
        float c[4];
        cuda_mma_anew(c, low, group.rows[e].x, group.rows[e].y);
        if constexpr (S::PARTS == 2) {
            add_scaled<S::KIND>(sums[e], c, by[0], rows[0][e]);
            cuda_mma_anew(c, high, group.rows[e].z, group.rows[e].w);
        } else {
            cuda_mma(c, high, group.rows[e].z, group.rows[e].w);
        }
        add_scaled<S::KIND>(sums[e], c, by[S::PARTS - 1], rows[S::PARTS - 1][e]);
    }
}

template <class S>
__device__ static inline void use_group(struct few_sums<S> *sums,
                                        const struct few_group<S> &group) {
    float rows[S::PARTS][S::EIGHTS][2] = {};
    sum_rows<S>(rows, group);
#pragma unroll
    for (int i = 0; i < S::BLOCKS * 2; i++) use_half<S>(sums->at[i], group, rows, i / 2, i % 2);
}
