/* SPDX-License-Identifier: Apache-2.0 */

/* delta_chunk: rows of several tokens through a Gated DeltaNet layer, 64 at a time.
 *
 * The chunkwise form is that of S. Yang et al., "Parallelizing Linear Transformers with the Delta
 * Rule over Sequence Length" (2024) and "Gated Delta Networks" (2024). In a chunk, with G_i the sum
 * of log decays up to row i, the changes x_i = beta_i (v_i - prediction) solve a triangular system:
 *
 *   (I + A) X = R,  A_ij = beta_i exp(G_i - G_j) k_i k_j for j < i,  R_i = beta_i (v_i - exp(G_i) S
 *                   k_i)
 *   o_i = exp(G_i) S q_i + sum over j <= i of exp(G_i - G_j) (q_i k_j) x_j
 *   S = exp(G_last) S + sum of exp(G_last - G_j) x_j k_j'
 *
 * Two kernels. delta_rows convolves, all rows at once, and leaves q, k and v in bf16 with both
 * gates. delta_chunks has a block per item and value head, which goes through the chunks. A warp
 * has 16 rows of S, elements of v, in registers, as sums of products. A sum's registers become the
 * first operand of the next product as they are, so all that follows A stays in the warp
 * (delta_chunk.cuh). */

#include "gpu/cuda/delta_chunk.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/recurrent_rows.cuh"

#define TAPS 4
#define LOG_MOST 100.0f /* log of a decay, to base 2: 2^-100 of a state is nothing */

/* What delta_rows leaves for delta_chunks. */
struct delta_gates {
    float log; /* log of the decay, to base 2 */
    float beta;
};
struct delta_room {
    uint16_t *qkv;             /* (rows, channels) */
    struct delta_gates *gates; /* (rows, v_heads) */
};

static inline uint32_t channels_of(const struct cuda_delta *call) {
    return 2 * call->k_heads * call->k_dim + call->v_heads * call->v_dim;
}
static inline struct delta_room room_of(const struct cuda_delta *call) {
    const size_t bytes = ((size_t)call->rows * channels_of(call) * 2 + 15) / 16 * 16;
    return {(uint16_t *)call->room, (struct delta_gates *)((char *)call->room + bytes)};
}

/* ---- rows ---- */

template <int D>
__device__ static inline void leave_gates(const struct cuda_delta &call,
                                          const struct delta_room &room, uint32_t first) {
    for (uint32_t i = threadIdx.x; i < TILE_ROWS * call.v_heads; i += TILE_THREADS) {
        const uint32_t row = first + i / call.v_heads, head = i % call.v_heads;
        if (row >= call.rows) return;
        const float log = delta_gate(call, head, sum_at(call.a, row, head)) * 1.44269504f;
        room.gates[(size_t)row * call.v_heads + head] = {fmaxf(log, -LOG_MOST),
                                                         sigmoid(sum_at(call.b, row, head))};
    }
}

/* Block: a slab of channels, or the gates, of some rows. D / 4 lanes have a head. */
template <int D>
__global__ void __launch_bounds__(TILE_THREADS)
    delta_rows(struct cuda_delta call, struct delta_room room) {
    CUDA_SHARED uint32_t owners[TILE_SPAN<TAPS>];
    const uint32_t keys = call.k_heads * D, channels = 2 * keys + call.v_heads * D;
    const uint32_t first = blockIdx.y * TILE_ROWS;
    wait_for_before();
    let_next_start();
    if (blockIdx.x == gridDim.x - 1) {
        leave_gates<D>(call, room, first);
        return;
    }
    find_owners<TAPS>(call.items, call.item_count, first, owners);
    const uint32_t channel = blockIdx.x * TILE_CHANNELS + threadIdx.x * 4;
    const struct row_conv conv = {call.items, call.tails, call.conv, NULL, channels};
    auto input = [&](uint32_t row) {
        return four_bf16(call.qkv, row, channel < channels ? channel : 0);
    };
    auto output = [&](uint32_t row, struct numbers<4> v, bool is_there) {
        float squares = 0, factor = 1.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) v.at[i] = silu(v.at[i]), squares += v.at[i] * v.at[i];
        squares = sum_lanes<D / 4>(squares) + 1e-6f;
        if (channel < 2 * keys)
            factor = 1.0f / sqrtf(channel < keys ? squares * (float)D : squares);
#pragma unroll
        for (int i = 0; i < 4; i++) v.at[i] *= factor;
        if (is_there) write_bf16(v, room.qkv + (size_t)row * channels + channel);
    };
    walk_rows<TAPS>(conv, first, owners, channel, input, output);
}

/* ---- a chunk's way into shared memory ---- */

/* A chunk: rows from `begin` of the item on. */
struct delta_chunk {
    uint32_t begin, rows;
};
__device__ static inline struct delta_chunk chunk_at(const struct cuda_state_item &item,
                                                     uint32_t begin) {
    uint32_t end = min(begin + CHUNK, item.rows);
    if (item.save != CUDA_STATE_NONE && begin < item.save_rows) end = min(end, item.save_rows);
    return {begin, end - min(begin, end)};
}

/* What a block works on. */
struct delta_block {
    struct cuda_state_item item;
    uint32_t head, key_head, channels;
    uint32_t place; /* number of the state in a slot */
};

/* Starts the copies of a chunk. Rows that it has not are zeros. */
template <int D, int TURNS>
__device__ static inline void
fetch(const struct cuda_delta &call, const struct delta_room &room, const struct delta_block &block,
      const struct delta_chunk &chunk, const delta_places<D, TURNS> &places, uint32_t turn) {
    constexpr uint32_t PIECES = D / 8;
    const uint32_t keys = call.k_heads * D;
    const uint16_t *rows = room.qkv + (size_t)(block.item.row + chunk.begin) * block.channels;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < CHUNK * PIECES && chunk.rows > 0; i += blockDim.x) {
        const uint32_t row = i / PIECES, piece = i % PIECES;
        const bool is_there = row < chunk.rows;
        const uint16_t *from = rows + (is_there ? (size_t)row * block.channels : 0) + piece * 8;
        cuda_copy16_if(places.q(turn).piece(row, piece), from + block.key_head * D, is_there);
        cuda_copy16_if(places.k(turn).piece(row, piece), from + keys + block.key_head * D,
                       is_there);
        cuda_copy16_if(places.v(turn).piece(row, piece), from + 2 * keys + block.head * D,
                       is_there);
    }
    cuda_copy_commit();
}

/* A lane's two rows of a chunk: their gates. */
struct two_gates {
    struct delta_gates row[2];
};
__device__ static inline struct two_gates read_gates(const struct cuda_delta &call,
                                                     const struct delta_room &room,
                                                     const struct delta_block &block,
                                                     const struct delta_chunk &chunk) {
    struct two_gates gates = {};
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t row = threadIdx.x % 32 * 2 + i;
        if (row < chunk.rows)
            gates.row[i] = room.gates[(size_t)(block.item.row + chunk.begin + row) * call.v_heads +
                                      block.head];
    }
    return gates;
}

/* Sums the logs of a chunk; a warp. */
__device__ static inline void leave_rates(const struct two_gates &gates,
                                          struct delta_rates *rates) {
    const uint32_t lane = threadIdx.x % 32;
    float sum = gates.row[0].log + gates.row[1].log;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
        const float before = __shfl_up_sync(CUDA_ALL_LANES, sum, apart);
        if (lane >= (uint32_t)apart) sum += before;
    }
    rates->log[2 * lane] = sum - gates.row[1].log, rates->log[2 * lane + 1] = sum;
    rates->beta[2 * lane] = gates.row[0].beta, rates->beta[2 * lane + 1] = gates.row[1].beta;
}

/* ---- in and out ---- */

/* Where this lane's first pair of a head's state lies; pair n is 8n further, and the rows 8 further
 * down have a pair each, too. */
template <int D> __device__ static inline size_t state_place(uint32_t head) {
    const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    return ((size_t)head * D + row) * D + threadIdx.x % 4 * 2;
}

template <int D>
__device__ static inline void read_state(const struct cuda_states &states, uint32_t slot,
                                         uint32_t head, float (*state)[4]) {
    const size_t at = state_place<D>(head);
#pragma unroll
    for (int i = 0; i < D / 2; i++) state[i / 4][i % 4] = 0;
    if (slot == CUDA_STATE_NONE) return;
    if (states.is_bf16) {
        const uint16_t *from = (const uint16_t *)slot_at(states, slot) + at;
#pragma unroll
        for (int i = 0; i < D / 2; i += 2) {
            const uint32_t raw = *(const uint32_t *)(from + i % 4 / 2 * 8 * D + i / 4 * 8);
            state[i / 4][i % 4] = cuda_low_bf16(raw), state[i / 4][i % 4 + 1] = cuda_high_bf16(raw);
        }
    } else {
        const float *from = (const float *)slot_at(states, slot) + at;
#pragma unroll
        for (int i = 0; i < D / 2; i += 2) {
            const float2 pair = *(const float2 *)(from + i % 4 / 2 * 8 * D + i / 4 * 8);
            state[i / 4][i % 4] = pair.x, state[i / 4][i % 4 + 1] = pair.y;
        }
    }
}

template <int D>
__device__ static inline void write_state(const struct cuda_states &states, uint32_t slot,
                                          uint32_t head, const float (*state)[4]) {
    const size_t at = state_place<D>(head);
    if (states.is_bf16) {
        uint16_t *to = (uint16_t *)slot_at(states, slot) + at;
#pragma unroll
        for (int i = 0; i < D / 2; i += 2)
            *(uint32_t *)(to + i % 4 / 2 * 8 * D + i / 4 * 8) =
                cuda_pack_bf16(state[i / 4][i % 4], state[i / 4][i % 4 + 1]);
    } else {
        float *to = (float *)slot_at(states, slot) + at;
#pragma unroll
        for (int i = 0; i < D / 2; i += 2)
            *(float2 *)(to + i % 4 / 2 * 8 * D + i / 4 * 8) =
                make_float2(state[i / 4][i % 4], state[i / 4][i % 4 + 1]);
    }
}

/* The norm of a chunk's outputs, D / 4 lanes per row. */
template <int D, int IN>
__device__ static inline void
leave_rows_of(const struct cuda_delta &call, const struct delta_block &block,
              const struct delta_chunk &chunk, const delta_tile<D> &o) {
    constexpr uint32_t LANES = D / 4, STEP = D / 16 * 32 / LANES;
    extern __shared__ __align__(1024) char cuda_memory[];
    const char *base = cuda_memory - cuda_shared_address(cuda_memory);
    const uint32_t lane = threadIdx.x % LANES, at = block.head * D + lane * 4;
#pragma unroll 2
    for (uint32_t i = threadIdx.x / LANES; i < CHUNK; i += STEP) {
        const uint32_t row = block.item.row + chunk.begin + min(i, chunk.rows - 1);
        const struct raw_sums<IN, 4> raw = read_sums<IN, 4>(call.z, row, at);
        struct numbers<4> v = read_bf16<4>(base + o.piece(i, lane / 2) + lane % 2 * 8);
        float squares = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) squares += v.at[j] * v.at[j];
        squares = sum_lanes<LANES>(squares);
        const float factor = 1.0f / sqrtf(squares / (float)D + call.epsilon);
        const float row_scale = IN == IN_BF16 ? 1.0f : call.z.row_scale[row];
        const struct numbers<4> z = sums_of<IN, 4>(call.z, row_scale, at, raw);
        const struct numbers<4> norm = read_f32<4>(call.norm + lane * 4);
#pragma unroll
        for (int j = 0; j < 4; j++) v.at[j] *= factor * norm.at[j] * silu(z.at[j]);
        if (i < chunk.rows) write_bf16(v, call.y + row * call.y_stride + at);
    }
}

template <int D>
__device__ static inline void leave_rows(const struct cuda_delta &call,
                                         const struct delta_block &block,
                                         const struct delta_chunk &chunk, const delta_tile<D> &o) {
    const int in = call.z.type == CUDA_SUMS_INT32 ? IN_INT32
                   : call.z.row_scale             ? IN_BF16_SCALED
                                                  : IN_BF16;
    switch (in) {
    case IN_INT32: leave_rows_of<D, IN_INT32>(call, block, chunk, o); return;
    case IN_BF16_SCALED: leave_rows_of<D, IN_BF16_SCALED>(call, block, chunk, o); return;
    default: leave_rows_of<D, IN_BF16>(call, block, chunk, o); return;
    }
}

/* ---- the kernel: block per item and value head ---- */

template <int D, int TURNS>
__global__ void __launch_bounds__(D / 16 * 32, 256 / D)
    delta_chunks(struct cuda_delta call, struct delta_room room) {
    constexpr uint32_t WARPS = D / 16;
    extern __shared__ __align__(1024) char cuda_memory[];
    struct delta_places<D, TURNS> places = {
        cuda_shared_address(cuda_memory)
    };
    const uint32_t warp = threadIdx.x / 32;
    struct delta_block block;
    float state[D / 8][4];
    wait_for_before();
    block.head = blockIdx.x % call.v_heads;
    const uint32_t group = call.v_heads / call.k_heads;
    block.key_head = block.head / group;
    block.place = block.head;
    if (call.heads_are_tiled) {
        block.key_head = block.head % call.k_heads;
        block.place = block.key_head * group + block.head / call.k_heads;
    }
    block.channels = 2 * call.k_heads * D + call.v_heads * D;
    block.item = call.items[blockIdx.x / call.v_heads];
    struct delta_chunk chunk = chunk_at(block.item, 0);
    fetch<D, TURNS>(call, room, block, chunk, places, 0);
    struct two_gates gates = read_gates(call, room, block, chunk);
    read_state<D>(call.states, block.item.from, block.place, state);
    let_next_start();
    for (uint32_t turn = 0; chunk.rows > 0; turn ^= TURNS - 1) {
        places.base = unknown(places.base);
        const struct delta_chunk next = chunk_at(block.item, chunk.begin + chunk.rows);
        if (warp == 0) leave_rates(gates, places.rates(turn));
        cuda_copy_wait<0>();
        __syncthreads();
        if (TURNS == 2) fetch<D, TURNS>(call, room, block, next, places, turn ^ 1);
        if (warp == 0) gates = read_gates(call, room, block, next);
        const struct delta_rates &rates = *places.rates(turn);
#pragma unroll 1
        for (uint32_t task = warp; task < 2 * BLOCKS; task += WARPS) {
            if (task < BLOCKS)
                make_solve<D>(places.k(turn), rates, task, places.solver());
            else
                make_asks<D>(places.q(turn), places.k(turn), rates, task - BLOCKS, places.asks());
        }
        __syncthreads();
        pass_chunk<D, TURNS>(places, turn, state);
        __syncthreads();
        leave_rows<D>(call, block, chunk, places.v(turn));
        chunk = next;
        if (TURNS == 1) {
            __syncthreads();
            fetch<D, TURNS>(call, room, block, chunk, places, 0);
        }
        if (block.item.save != CUDA_STATE_NONE && chunk.begin == block.item.save_rows)
            write_state<D>(call.states, block.item.save, block.place, state);
    }
    cuda_copy_wait<0>();
    write_state<D>(call.states, block.item.to, block.place, state);
}

/* ---- the choice ---- */

template <int D, int TURNS>
static enum err launch_both(const struct cuda_delta *call, cudaStream_t stream,
                            struct error *error) {
    const struct delta_room room = room_of(call);
    const uint32_t rows = call->item_count > 0 ? call->rows : 0;
    const enum err code =
        launch_dependent("delta_rows", error, stream, tile_blocks(channels_of(call), 1, rows),
                         TILE_THREADS, 0, delta_rows<D>, *call, room);
    if (code != OK) return code;
    return cuda_launch<delta_chunks<D, TURNS>>("delta_chunks", call->item_count * call->v_heads,
                                               D / 16 * 32, delta_places<D, TURNS>::BYTES, stream,
                                               error, *call, room);
}

size_t cuda_delta_room(uint32_t rows, uint32_t k_heads, uint32_t v_heads, uint32_t dim) {
    const size_t channels = ((size_t)2 * k_heads + v_heads) * dim;
    return (rows * channels * 2 + 15) / 16 * 16 +
           (size_t)rows * v_heads * sizeof(struct delta_gates);
}

enum err cuda_delta_supports(uint32_t k_heads, uint32_t v_heads, uint32_t k_dim, uint32_t v_dim,
                             struct error *error) {
    const enum err code = cuda_delta_check_heads(k_heads, v_heads, k_dim, v_dim, error);
    const size_t bytes = k_dim == 128 ? delta_places<128, 1>::BYTES : delta_places<64, 1>::BYTES;
    if (code != OK || cuda_has_shared(bytes)) return code;
    return err_set(error, ERR_INVALID, "delta: heads of %u need %zu KiB of shared memory", k_dim,
                   bytes >> 10);
}

enum err cuda_delta_chunk(const struct cuda_delta *call, struct CUstream_st *stream,
                          struct error *error) {
    const enum err code = cuda_delta_check(call, error);
    if (code != OK) return code;
    if (!call->room || !is_at_16(call->room))
        return err_set(error, ERR_INVALID, "delta: no room, or at no multiple of 16");
    const bool has_two =
        call->chunks_max != 1 && cuda_has_shared(call->k_dim == 128 ? delta_places<128, 2>::BYTES
                                                                    : delta_places<64, 2>::BYTES);
    if (call->k_dim == 128)
        return has_two ? launch_both<128, 2>(call, stream, error)
                       : launch_both<128, 1>(call, stream, error);
    return has_two ? launch_both<64, 2>(call, stream, error)
                   : launch_both<64, 1>(call, stream, error);
}

CUDA_MODULE(delta_chunk, delta_rows<128>)
