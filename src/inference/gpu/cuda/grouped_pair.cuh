/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grouped_pair: two neighbouring groups of codes by at most sixteen rows, for grouped_pieces.cu,
 * whose shapes S have the weights' KIND, a warp's BLOCKS of lines and EIGHTS of rows, the PARTS of a
 * group with scales of their own, and BLOCK_BYTES, a block's of a pair: codes of both groups, then
 * their scales.
 *
 * Weights are the long side of mma.sync, whose sums of a group are multiplied by its scale. What is
 * to be added, the minimum and what takes off the 128 of grouped_wide, is a product too, of the
 * minima of both groups with the sums of the rows' numbers in them: one mma in tf32 per sixteen
 * lines and eight rows. tf32 has 11 bits, as float16 has, so scales and minima are exact there, and
 * a row's sum is two numbers. No weight is rounded.
 *
 * Memory: none of its own. */

#include "gpu/cuda/grouped.cuh"

/* Four bits of a word, the first or the second of each byte, are bf16 numbers as they are: 2^-133
 * or 2^-129 times the code, the smaller ones subnormal. So rows are 2^96 and 2^92 times as large,
 * and sums 2^-37 times. */
#define ROWS_OF_FIRST 0x6f806f80u
#define ROWS_OF_SECOND 0x6d806d80u
#define LEAST 0x00010001u /* 2^-133 */
#define ONES 0x3f803f80u

template <int KIND> struct pair_kind {
    static constexpr bool IS_SMALL = KIND == GROUPED_MINIMA || KIND == GROUPED_ZEROS;
    static constexpr float SUM_SCALE = IS_SMALL ? 0x1p37f : 1.0f; /* what sums are multiplied by */
};

/* A lane's rows of a pair. */
template <class S> struct pair_rows { uint4 of[2][S::EIGHTS]; };

/* Where a lane's rows of the next pair are; beyond the last row: the last, whose results are not
 * left. */
template <class S> struct pair_source { const uint16_t *at[S::EIGHTS]; };

template <class S>
__device__ static inline void bring_group(uint4 (&ret)[S::EIGHTS],
                                          const struct pair_source<S> &from, int group) {
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) {
        const uint16_t *at = from.at[e] + group * (int)GROUPED_INPUTS;
        if (S::PARTS == 1) {
            ret[e] = *(const uint4 *)at;
            continue;
        }
        const uint2 low = *(const uint2 *)at, high = *(const uint2 *)(at + 16);
        ret[e] = make_uint4(low.x, low.y, high.x, high.y);
    }
}

/* Rows as codes want them. */
template <class S> __device__ static inline void enlarge(uint4 (&rows)[S::EIGHTS]) {
    if (!pair_kind<S::KIND>::IS_SMALL) return;
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) {
        rows[e].x = cuda_times_bf16(rows[e].x, ROWS_OF_FIRST);
        rows[e].y = cuda_times_bf16(rows[e].y, ROWS_OF_SECOND);
        rows[e].z = cuda_times_bf16(rows[e].z, ROWS_OF_FIRST);
        rows[e].w = cuda_times_bf16(rows[e].w, ROWS_OF_SECOND);
    }
}

template <class S> struct pair_sums {
    float at[S::BLOCKS * 2][S::EIGHTS][4]; /* by sixteen lines */
};

/* ---- sums of rows ---- */

/* Sums of the numbers of row g of a group or, of a group with parts, of a part, in two halves, 0
 * and 2: lanes of even t have those of the first, lanes of odd t of the second. */
template <class S> struct row_sums { float of[S::EIGHTS][S::PARTS][4]; };

/* Ones in the columns of a product that lanes with t % 2 = `which` have. */
__device__ static inline uint32_t ones_for(uint32_t which, uint32_t one) {
    return threadIdx.x % 32 / 8 % 2 == which ? one : 0;
}

/* A row's words as they are, as lines of an mma: words 0 and 2 are those of a line, 1 and 3 of
 * another. */
template <class S>
__device__ static inline void add_row_sums(struct row_sums<S> *to, const uint4 (&rows)[S::EIGHTS],
                                           int group) {
    if (S::KIND == GROUPED_E2M1) return; /* nothing to take off */
    const uint32_t one =
        ones_for(S::PARTS == 2 ? 0 : group, pair_kind<S::KIND>::IS_SMALL ? LEAST : ONES);
    const uint32_t other = S::PARTS == 2 ? ones_for(1, ONES) : one;
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) {
        const uint32_t words[4] = {rows[e].x, rows[e].y, rows[e].z, rows[e].w};
        cuda_mma(to->of[e][S::PARTS == 2 ? group : 0], words, one, other);
    }
}

/* ---- what is added to the sums of codes ---- */

/* A line's two factors of an mma, by which the sums of rows are multiplied: `word` is that of the
 * lane's group, or of the first group and `next` of the second. */
template <int KIND>
__device__ static inline void factors_of(float &first, float &second, uint32_t word,
                                         uint32_t next) {
    if (KIND == GROUPED_MINIMA) {
        first = cuda_high_f16(word), second = 0;
    } else if (KIND == GROUPED_ZEROS) { /* -zero · scale, in two numbers */
        const float by = cuda_low_f16(word) * cuda_high_f16(word);
        first = cuda_tf32(by), second = by - first;
    } else {
        const uint32_t shift = threadIdx.x % 2 * 16;
        first = cuda_low_f16(word >> shift), second = cuda_low_f16(next >> shift);
    }
}

/* The sums as an mma needs them: the upper bits in lanes of t < 2, the rest in the others. */
template <class S>
__device__ static inline void factors_of_rows(float (&ret)[2], const struct row_sums<S> &rows,
                                              int eight) {
    const bool is_upper = threadIdx.x % 4 < 2;
#pragma unroll
    for (int p = 0; p < S::PARTS; p++) {
        float sum = pair_kind<S::KIND>::IS_SMALL
                        ? __fmaf_rn(16.0f, rows.of[eight][p][2], rows.of[eight][p][0])
                        : rows.of[eight][p][0] + rows.of[eight][p][2];
        if (S::PARTS == 2) sum *= -160.0f; /* what takes off that of grouped_wide */
        const float upper = cuda_tf32(sum);
        ret[p] = is_upper ? upper : sum - upper;
    }
    if (S::PARTS == 1) ret[1] = ret[0];
}

/* `codes`: where the pair begins. */
template <class S>
__device__ static inline void add_minima(struct pair_sums<S> *sums, const struct row_sums<S> &rows,
                                         const char *codes) {
    if (S::KIND == GROUPED_E2M1) return;
    const uint32_t g = threadIdx.x % 32 / 4, own = S::PARTS == 2 ? 0 : threadIdx.x % 2;
    float by[S::EIGHTS][2];
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) factors_of_rows<S>(by[e], rows, e);
#pragma unroll
    for (int b = 0; b < S::BLOCKS; b++) {
        const uint4 *at =
            (const uint4 *)(codes + b * S::BLOCK_BYTES + S::PARTS * 1024 + own * 128) + g;
        const uint4 one = *at, next = S::PARTS == 2 ? at[8] : one;
        const uint32_t words[4] = {one.x, one.y, one.z, one.w};
        const uint32_t others[4] = {next.x, next.y, next.z, next.w};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float a[4];
            factors_of<S::KIND>(a[0], a[2], words[2 * half], others[2 * half]);
            factors_of<S::KIND>(a[1], a[3], words[2 * half + 1], others[2 * half + 1]);
#pragma unroll
            for (int e = 0; e < S::EIGHTS; e++)
                if (S::KIND == GROUPED_MINIMA)
                    cuda_mma_tf32_short(sums->at[b * 2 + half][e], a[0], a[1], by[e][0]);
                else
                    cuda_mma_tf32(sums->at[b * 2 + half][e], a, by[e][0], by[e][1]);
        }
    }
}

/* ---- codes ---- */

template <int KIND>
__device__ static inline void add_scaled(float (&sums)[4], const float (&c)[4],
                                         const float (&scales)[2]) {
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] = __fmaf_rn(scales[i / 2], c[i], sums[i]);
}

template <int KIND> __device__ static inline float scale_of(uint32_t word, int part) {
    if (KIND == GROUPED_E2M1) return __uint_as_float(word << 16);
    return part ? cuda_high_f16(word) : cuda_low_f16(word);
}

/* Eight codes of a line as bf16, neighbours in a word. */
template <int KIND>
__device__ static inline void unpack(uint32_t (&ret)[4], const uint4 *codes, int component) {
    if constexpr (!pair_kind<KIND>::IS_SMALL) {
        grouped_wide<KIND>(ret, codes, component);
    } else {
        const uint32_t words[4] = {codes->x, codes->y, codes->z, codes->w};
        const uint32_t low = words[component], high = low >> 8;
        ret[0] = low & 0x000f000fu, ret[1] = low & 0x00f000f0u;
        ret[2] = high & 0x000f000fu, ret[3] = high & 0x00f000f0u;
    }
}

/* Sixteen lines, the first or second half of a block. */
template <class S>
__device__ static inline void use_half(float (&sums)[S::EIGHTS][4], const uint4 *codes,
                                       const uint32_t (&words)[2], const uint4 (&rows)[S::EIGHTS],
                                       int half) {
    uint32_t one[4], other[4];
    float scales[S::PARTS][2];
    unpack<S::KIND>(one, codes, 2 * half);
    unpack<S::KIND>(other, codes, 2 * half + 1);
#pragma unroll
    for (int p = 0; p < S::PARTS; p++)
#pragma unroll
        for (int i = 0; i < 2; i++) scales[p][i] = scale_of<S::KIND>(words[i], p);
    const uint32_t low[4] = {one[0], other[0], one[1], other[1]};
    const uint32_t high[4] = {one[2], other[2], one[3], other[3]};
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) {
        float c[4];
        cuda_mma_anew(c, low, rows[e].x, rows[e].y);
        if constexpr (S::PARTS == 2) {
            add_scaled<S::KIND>(sums[e], c, scales[0]);
            cuda_mma_anew(c, high, rows[e].z, rows[e].w);
        } else {
            cuda_mma(c, high, rows[e].z, rows[e].w);
        }
        add_scaled<S::KIND>(sums[e], c, scales[S::PARTS - 1]);
    }
}

/* A group of the pair that begins at `pair`. */
template <class S>
__device__ static inline void use_group(struct pair_sums<S> *sums, const char *pair,
                                        const uint4 (&rows)[S::EIGHTS], int group) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int b = 0; b < S::BLOCKS; b++) {
        const char *block = pair + b * S::BLOCK_BYTES;
        uint4 codes[S::PARTS];
#pragma unroll
        for (int p = 0; p < S::PARTS; p++)
            codes[p] = *(const uint4 *)(block + (group * S::PARTS + p) * 512 + lane * 16);
        const uint4 four = *(const uint4 *)(block + S::PARTS * 1024 + group * 128 + lane / 4 * 16);
        const uint32_t first[2] = {four.x, four.y}, second[2] = {four.z, four.w};
        use_half<S>(sums->at[b * 2], codes, first, rows, 0);
        use_half<S>(sums->at[b * 2 + 1], codes, second, rows, 1);
    }
}
