/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* delta_chunk: what a block of delta_chunks (delta_chunk.cu has the formulas) does with a chunk of
 * 64 rows in shared memory.
 *
 * First four warps make the system and four the asks, 16 rows each. Then every warp goes on alone
 * with its 16 rows of the state. The system is solved by blocks of 16 rows: the changes of earlier
 * blocks, times their part of A, are taken from a block, then a product with the inverse of its own
 * part gives its changes. That inverse is found in float32. */

#include "gpu/cuda/recurrent.cuh"

#define CHUNK 64 /* rows */
#define BLOCKS 4 /* blocks of 16 rows, of a chunk */

/* ---- shared memory of a block of delta_chunks ---- */

/* Rows of D numbers of bf16, whose 16-byte pieces are at `piece ^ (row & 7)`: eight rows of a piece
 * are in different banks. */
template <int D> struct delta_tile {
    static constexpr uint32_t BYTES = CHUNK * D * 2;
    uint32_t at;
    __device__ uint32_t piece(uint32_t row, uint32_t piece) const {
        return at + row * (D * 2) + ((piece ^ (row & 7)) << 4);
    }
    /* The place of a lane's row in a tile 16 wide, `row` a multiple of 16, `deep` an even piece. */
    __device__ uint32_t of_lane(uint32_t lane_row, uint32_t lane_piece, uint32_t row,
                                uint32_t deep) const {
        return (piece(lane_row, lane_piece) ^ deep << 4) + row * (D * 2);
    }
    /* The operand b of two products: 16 columns from row `row` on, 16 deep from piece `deep`. */
    __device__ void rows(uint32_t ret[4], uint32_t row, uint32_t deep) const {
        const uint32_t lane = threadIdx.x % 32;
        cuda_load_matrices(ret, of_lane(lane / 16 * 8 + lane % 8, lane / 8 % 2, row, deep));
    }
    /* The same where the depth is along the rows. */
    __device__ void columns(uint32_t ret[4], uint32_t row, uint32_t wide) const {
        const uint32_t lane = threadIdx.x % 32;
        cuda_load_transposed(ret, of_lane(lane % 16, lane / 16, row, wide));
    }
    /* The operand a: rows from `row` on. */
    __device__ void first(uint32_t ret[4], uint32_t row, uint32_t deep) const {
        const uint32_t lane = threadIdx.x % 32;
        cuda_load_matrices(ret, of_lane(lane % 16, lane / 16, row, deep));
    }
    /* 16 rows and columns as sums of the transposed product have them. */
    __device__ void sums(uint32_t ret[4], uint32_t row, uint32_t wide) const {
        const uint32_t lane = threadIdx.x % 32;
        cuda_load_transposed(ret, of_lane(lane / 16 * 8 + lane % 8, lane / 8 % 2, row, wide));
    }
};

/* Sums and rates of the rows of a chunk. */
struct delta_rates {
    float log[CHUNK]; /* G, to base 2 */
    float beta[CHUNK];
};

/* Shared memory: q, k and v, which becomes the output, of TURNS chunks by turns; the system, which
 * is -A with inverses on its diagonal; the asks, exp(G_i - G_j) q_i k_j; the rates of both
 * turns. */
template <int D, int TURNS> struct delta_places {
    static constexpr uint32_t TILE = delta_tile<D>::BYTES, SYSTEM = 3 * TURNS * TILE,
                              ASKS = SYSTEM + delta_tile<CHUNK>::BYTES,
                              RATES = ASKS + delta_tile<CHUNK>::BYTES,
                              BYTES = RATES + 2 * sizeof(struct delta_rates);
    uint32_t base;
    __device__ delta_tile<D> q(uint32_t turn) const {
        return {base + turn * 3 * TILE};
    }
    __device__ delta_tile<D> k(uint32_t turn) const {
        return {base + turn * 3 * TILE + TILE};
    }
    __device__ delta_tile<D> v(uint32_t turn) const {
        return {base + turn * 3 * TILE + 2 * TILE};
    }
    __device__ delta_tile<CHUNK> solver() const {
        return {base + SYSTEM};
    }
    __device__ delta_tile<CHUNK> asks() const {
        return {base + ASKS};
    }
    __device__ struct delta_rates *rates(uint32_t turn) const {
        extern __shared__ __align__(1024) char cuda_memory[];
        return (struct delta_rates *)(cuda_memory + RATES) + turn;
    }
};

/* The same number, of which the compiler does not know that: what follows from it is computed where
 * it is used, instead of once for all chunks in registers that the state needs. */
__device__ static inline uint32_t unknown(uint32_t number) {
    asm volatile("" : "+r"(number));
    return number;
}

/* ---- the system and the asks ---- */

/* Products of 16 rows of `a` with 16 of `k`, each times its decay; none where the row of `k` comes
 * later. Lane 4g + t has rows g, g + 8 and columns 8n + 2t, 8n + 2t + 1. Two sums of half the depth
 * each: the products of one sum wait for each other. */
template <int D>
__device__ static inline void compare_rows(const delta_tile<D> &a, const delta_tile<D> &k,
                                           const struct delta_rates &rates, uint32_t row,
                                           uint32_t column, float (*sum)[4]) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float half[2][2][4] = {};
#pragma unroll
    for (uint32_t deep = 0; deep < D / 8; deep += 2) {
        uint32_t x[4], y[4];
        a.first(x, row, deep);
        k.rows(y, column, deep);
        cuda_mma(half[deep / 2 % 2][0], x, y[0], y[1]);
        cuda_mma(half[deep / 2 % 2][1], x, y[2], y[3]);
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t own = row + g + i % 4 / 2 * 8, at = column + i / 4 * 8 + 2 * t + i % 2;
        const float both = half[0][i / 4][i % 4] + half[1][i / 4][i % 4];
        sum[i / 4][i % 4] = at <= own ? both * cuda_exp2(rates.log[own] - rates.log[at]) : 0.0f;
    }
}

/* Writes two tiles of sums, 16 rows and columns, as bf16. */
__device__ static inline void leave_sums(const delta_tile<CHUNK> &to, uint32_t row, uint32_t n,
                                         const float (*sum)[4]) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    extern __shared__ __align__(1024) char cuda_memory[];
    char *base = cuda_memory - cuda_shared_address(cuda_memory);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = to.piece(row + g + i % 2 * 8, n + i / 2) + 4 * t;
        const float *pair = sum[i / 2] + i % 2 * 2;
        *(uint32_t *)(base + at) = cuda_pack_bf16(pair[0], pair[1]);
    }
}

/* The inverse of I + A of 16 rows, column by column: lane c has column c % 16. A, below its
 * diagonal, is in two tiles of sums. */
__device__ static inline void invert(const float (*sum)[4], float column[16]) {
    const uint32_t own = threadIdx.x % 16;
#pragma unroll
    for (uint32_t i = 0; i < 16; i++) {
        float value = i == own ? 1.0f : 0.0f;
#pragma unroll
        for (uint32_t m = 0; m < i; m++) {
            const float a =
                __shfl_sync(CUDA_ALL_LANES, sum[m / 8][i / 8 * 2 + m % 2], i % 8 * 4 + m % 8 / 2);
            value = fmaf(-a, column[m], value);
        }
        column[i] = value;
    }
}

/* 16 rows of -A, with the inverse of the block on its diagonal. */
template <int D>
__device__ static inline void make_solve(const delta_tile<D> &k, const struct delta_rates &rates,
                                         uint32_t block, const delta_tile<CHUNK> &to) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, half = threadIdx.x % 32 / 16;
    extern __shared__ __align__(1024) char cuda_memory[];
    char *base = cuda_memory - cuda_shared_address(cuda_memory);
    const float beta[2] = {rates.beta[16 * block + g], rates.beta[16 * block + g + 8]};
    float sum[2][4], column[16];
#pragma unroll 1
    for (uint32_t p = 0; p < block; p++) {
        compare_rows(k, k, rates, 16 * block, 16 * p, sum);
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i / 4][i % 4] *= -beta[i % 4 / 2];
        leave_sums(to, 16 * block, 2 * p, sum);
    }
    compare_rows(k, k, rates, 16 * block, 16 * block, sum);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        const bool is_below = i / 4 * 8 + 2 * t + i % 2 < g + i % 4 / 2 * 8;
        sum[i / 4][i % 4] = is_below ? sum[i / 4][i % 4] * beta[i % 4 / 2] : 0.0f;
    }
    invert(sum, column);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t row = 16 * block + 8 * half + i, at = threadIdx.x % 16;
        *(uint16_t *)(base + to.piece(row, 2 * block + at / 8) + at % 8 * 2) =
            bf16_bits(half ? column[8 + i] : column[i]);
    }
}

template <int D>
__device__ static inline void make_asks(const delta_tile<D> &q, const delta_tile<D> &k,
                                        const struct delta_rates &rates, uint32_t block,
                                        const delta_tile<CHUNK> &to) {
    float sum[2][4];
#pragma unroll 1
    for (uint32_t p = 0; p <= block; p++) {
        compare_rows(q, k, rates, 16 * block, 16 * p, sum);
        leave_sums(to, 16 * block, 2 * p, sum);
    }
}

/* ---- a warp's 16 rows of the state ---- */

/* Sums of 16 columns as the first operand of a product 16 deep. */
__device__ static inline void operand_of(uint32_t ret[4], const float (*sum)[4]) {
    ret[0] = cuda_pack_bf16(sum[0][0], sum[0][1]), ret[1] = cuda_pack_bf16(sum[0][2], sum[0][3]);
    ret[2] = cuda_pack_bf16(sum[1][0], sum[1][1]), ret[3] = cuda_pack_bf16(sum[1][2], sum[1][3]);
}

/* sum (16, 32) = state · rows', of 32 rows of the chunk: a lane's sums are rows of the state g, g +
 * 8 and rows of the chunk 8n + 2t, 8n + 2t + 1. All 64 at once would not fit the registers. */
template <int D>
__device__ static inline void ask_state(const float (*state)[4], const delta_tile<D> &rows,
                                        uint32_t first, float (*sum)[4]) {
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sum[n][i] = 0;
#pragma unroll
    for (uint32_t deep = 0; deep < D / 8; deep += 2) {
        uint32_t x[4], y[4];
        operand_of(x, state + deep);
#pragma unroll
        for (uint32_t p = 0; p < 2; p++) {
            rows.rows(y, first + 16 * p, deep);
            cuda_mma(sum[2 * p], x, y[0], y[1]);
            cuda_mma(sum[2 * p + 1], x, y[2], y[3]);
        }
    }
}

/* Adds the changes of earlier blocks, times their part of the system, to the sums of block `b`. */
template <int COUNT>
__device__ static inline void add_blocks(const delta_tile<CHUNK> &system,
                                         const uint32_t (*changes)[4], uint32_t b,
                                         float (*sum)[4]) {
#pragma unroll
    for (int m = 0; m < COUNT; m++) {
        uint32_t y[4];
        system.rows(y, 16 * b, 2 * (uint32_t)m);
        cuda_mma(sum[0], changes[m], y[0], y[1]);
        cuda_mma(sum[1], changes[m], y[2], y[3]);
    }
}

/* Turns what the state tells of 16 keys into their changes, as an operand. */
template <int D, int B>
__device__ static inline void solve(const delta_tile<D> &v, const delta_tile<CHUNK> &system,
                                    const struct delta_rates &rates, float (*sum)[4],
                                    uint32_t (*changes)[4]) {
    const uint32_t t = threadIdx.x % 4;
    uint32_t x[4], y[4];
    float change[2][4] = {};
    v.sums(y, 16 * B, threadIdx.x / 32 * 2);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t row = 16 * B + i / 4 * 8 + 2 * t + i % 2, pair = y[i / 2];
        float *one = &sum[i / 4][i % 4];
        const float own = i % 2 ? cuda_high_bf16(pair) : cuda_low_bf16(pair);
        *one = rates.beta[row] * (own - cuda_exp2(rates.log[row]) * *one);
    }
    add_blocks<B>(system, changes, B, sum);
    operand_of(x, sum);
    system.rows(y, 16 * B, 2 * B);
    cuda_mma(change[0], x, y[0], y[1]);
    cuda_mma(change[1], x, y[2], y[3]);
    operand_of(changes[B], change);
}

/* The outputs of 16 rows, over the part of v that this warp has read. */
template <int D, int B>
__device__ static inline void answer(const delta_tile<CHUNK> &asks, const struct delta_rates &rates,
                                     const uint32_t (*changes)[4], float (*sum)[4],
                                     const delta_tile<D> &to) {
    const uint32_t wide = threadIdx.x / 32 * 2, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    extern __shared__ __align__(1024) char cuda_memory[];
    char *base = cuda_memory - cuda_shared_address(cuda_memory);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        sum[i / 4][i % 4] *= cuda_exp2(rates.log[16 * B + i / 4 * 8 + 2 * t + i % 2]);
    add_blocks<B + 1>(asks, changes, B, sum);
    __syncwarp(); /* the warp has read the part of v that its answers take the place of */
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const float *pair = sum[i / 2] + i % 2 * 2;
        const uint32_t turned = cuda_transpose(cuda_pack_bf16(pair[0], pair[1]));
        *(uint32_t *)(base + to.piece(16 * B + i / 2 * 8 + g, wide + i % 2) + 4 * t) = turned;
    }
}

/* Takes the changes of the chunk into the state. */
template <int D>
__device__ static inline void advance(const delta_tile<D> &k, const struct delta_rates &rates,
                                      const uint32_t changes[BLOCKS][4], float (*state)[4]) {
    const uint32_t t = threadIdx.x % 4;
    const float last = rates.log[CHUNK - 1], decay = cuda_exp2(last);
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) state[n][i] *= decay;
#pragma unroll
    for (uint32_t b = 0; b < BLOCKS; b++) {
        uint32_t x[4], y[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) { /* in columns 2t and 2t + 1, or 8 more */
            const uint32_t row = 16 * b + i / 2 * 8 + 2 * t;
            x[i] = cuda_pack_bf16(cuda_low_bf16(changes[b][i]) * cuda_exp2(last - rates.log[row]),
                                  cuda_high_bf16(changes[b][i]) *
                                      cuda_exp2(last - rates.log[row + 1]));
        }
#pragma unroll
        for (uint32_t wide = 0; wide < D / 8; wide += 2) {
            k.columns(y, 16 * b, wide);
            cuda_mma(state[wide], x, y[0], y[1]);
            cuda_mma(state[wide + 1], x, y[2], y[3]);
        }
    }
}

/* A chunk through this warp's rows of the state: first its changes, then its outputs, by 32 rows.
 */
template <int D, int TURNS>
__device__ static inline void pass_chunk(const delta_places<D, TURNS> &places, uint32_t turn,
                                         float (*state)[4]) {
    const struct delta_rates &rates = *places.rates(turn);
    const delta_tile<D> v = places.v(turn);
    uint32_t changes[BLOCKS][4];
    float sum[4][4];
    ask_state<D>(state, places.k(turn), 0, sum);
    solve<D, 0>(v, places.solver(), rates, sum, changes);
    solve<D, 1>(v, places.solver(), rates, sum + 2, changes);
    ask_state<D>(state, places.k(turn), 32, sum);
    solve<D, 2>(v, places.solver(), rates, sum, changes);
    solve<D, 3>(v, places.solver(), rates, sum + 2, changes);
    ask_state<D>(state, places.q(turn), 0, sum);
    answer<D, 0>(places.asks(), rates, changes, sum, v);
    answer<D, 1>(places.asks(), rates, changes, sum + 2, v);
    ask_state<D>(state, places.q(turn), 32, sum);
    answer<D, 2>(places.asks(), rates, changes, sum, v);
    answer<D, 3>(places.asks(), rates, changes, sum + 2, v);
    advance<D>(places.k(turn), rates, changes, state);
}
