/* SPDX-License-Identifier: Apache-2.0 */

/* mamba_prompts: rows of several tokens through the states of a Mamba-2 layer, one after the other.
 *
 * A block has some elements of x of a head of an item, and keeps their rows of the state in
 * registers: 16 numbers per lane and row. B, C and x of some rows are fetched into shared memory
 * while the rows before them are computed. Per row, head and number of the state these are two
 * multiplications with an addition, one for the state and one for the output, and one of the decay:
 * for a head of 64 and a state of 128, 24,576 operations of a lane, which is 192 cycles of a
 * multiprocessor. Products of chunks of 64 rows would need 28,672 multiplications, on tensor cores,
 * with bf16's rounding of each operand. */

#include "gpu/cuda/mamba.cuh"
#include "gpu/cuda/ptx.cuh"

#define WARPS 4
#define THREADS (WARPS * 32)
#define SHARED_BYTES_MOST 49152 /* more must be asked for */
#define FEW_BLOCKS 264 /* two per multiprocessor of an H100 or H200: below, blocks have less of x */

/* Rows of the state that the lanes have at a time, elements of x in a block, and rows in a tile. */
template <int N, int TURNS> struct prompt_sizes {
    static constexpr uint32_t LANES = N / LANE_NUMBERS, ROWS = 32 / LANES * WARPS,
                              PART = ROWS * TURNS, TILE = N == 256 ? 8 : 16;
};

/* Rows of a tile in shared memory, of two tiles by turns. What a row leaves takes the place of x.
 */
template <int N, int TURNS> struct prompt_tile {
    using S = prompt_sizes<N, TURNS>;
    float b[S::TILE][N];
    float c[S::TILE][N];
    float x[S::TILE][S::PART];
    struct mamba_rate rates[S::TILE];
};

/* What a block works on. */
struct prompt_block {
    struct cuda_state_item item;
    uint32_t head, group;
    uint32_t first, count; /* elements of x of the head */
    uint32_t channels;
};

template <int WIDTH>
__device__ static inline void fetch_rows(float (*to)[WIDTH], const float *from, size_t stride,
                                         uint32_t rows, uint32_t count) {
    constexpr uint32_t PIECES = WIDTH / 4;
    for (uint32_t i = threadIdx.x; i < rows * PIECES; i += THREADS) {
        const uint32_t row = i / PIECES, at = i % PIECES * 4;
        const bool is_there = at < count;
        cuda_copy16_if(cuda_shared_address(&to[row][at]), from + row * stride + (is_there ? at : 0),
                       is_there);
    }
}

/* Starts the copies of the tile that begins with row `begin` of the item; perhaps none. */
template <int N, int TURNS>
__device__ static inline void fetch(const struct cuda_mamba &call, const struct prompt_block &block,
                                    uint32_t begin, prompt_tile<N, TURNS> *tile) {
    constexpr uint32_t TILE = prompt_sizes<N, TURNS>::TILE;
    if (begin < block.item.rows) {
        const uint32_t rows = min(TILE, block.item.rows - begin),
                       width = call.heads * call.head_dim;
        const float *from = call.room + (size_t)(block.item.row + begin) * block.channels;
        const float *b = from + width + block.group * N;
        fetch_rows<N>(tile->b, b, block.channels, rows, N);
        fetch_rows<N>(tile->c, b + call.groups * N, block.channels, rows, N);
        fetch_rows<prompt_sizes<N, TURNS>::PART>(tile->x,
                                                 from + block.head * call.head_dim + block.first,
                                                 block.channels, rows, block.count);
    }
    cuda_copy_commit();
}

/* A thread's row of a tile: its step, before softplus. */
template <int TILE>
__device__ static inline float read_step(const struct cuda_mamba &call,
                                         const struct prompt_block &block, uint32_t begin) {
    const uint32_t row = begin + threadIdx.x;
    if (threadIdx.x >= TILE || row >= block.item.rows) return 0;
    return sum_at(call.dt, block.item.row + row, block.head);
}

/* ---- the state: TURNS rows of it per lane ---- */

template <bool IS_BF16, int N, int TURNS> struct prompt_state {
    using S = prompt_sizes<N, TURNS>;
    struct numbers<LANE_NUMBERS> rows[TURNS];

    __device__ static char *place(const struct cuda_mamba &call, const struct prompt_block &block,
                                  uint32_t slot, uint32_t turn) {
        const size_t row = (size_t)block.head * call.head_dim + block.first + turn * S::ROWS +
                           threadIdx.x / S::LANES;
        return slot_at(call.states, slot) + row * N * (IS_BF16 ? 2 : 4);
    }
    __device__ static bool has(const struct prompt_block &block, uint32_t turn) {
        return turn * S::ROWS + threadIdx.x / S::LANES < block.count;
    }
    __device__ void read(const struct cuda_mamba &call, const struct prompt_block &block) {
        const bool is_old = block.item.from != CUDA_STATE_NONE;
        const uint32_t slot = is_old ? block.item.from : block.item.to;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            lane_words<IS_BF16> words;
            read_lane<IS_BF16, N>(&words, place(call, block, slot, t), is_old && has(block, t));
            rows[t] = lane_numbers<IS_BF16>(words);
        }
    }
    __device__ void write(const struct cuda_mamba &call, const struct prompt_block &block,
                          uint32_t slot) const {
#pragma unroll
        for (int t = 0; t < TURNS; t++)
            if (has(block, t)) write_lane<IS_BF16, N>(rows[t], place(call, block, slot, t));
    }
    /* Takes a row of a tile in, and leaves its outputs. */
    __device__ void pass(prompt_tile<N, TURNS> *tile, uint32_t row, float skip) {
        const struct numbers<LANE_NUMBERS> b = lane_vector<IS_BF16, N>(tile->b[row]);
        const struct numbers<LANE_NUMBERS> c = lane_vector<IS_BF16, N>(tile->c[row]);
        const struct mamba_rate rate = tile->rates[row];
        float x[TURNS], sums[TURNS];
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            x[t] = tile->x[row][t * S::ROWS + threadIdx.x / S::LANES];
            sums[t] = mamba_advance(&rows[t], rate.decay, rate.step * x[t], b, c);
        }
#pragma unroll
        for (int t = 0; t < TURNS; t++) sums[t] = sum_lanes<(int)S::LANES>(sums[t]);
        __syncwarp(); /* every lane has read x */
#pragma unroll
        for (int t = 0; t < TURNS; t++)
            if (threadIdx.x % S::LANES == 0)
                tile->x[row][t * S::ROWS + threadIdx.x / S::LANES] = fmaf(skip, x[t], sums[t]);
    }
};

template <int N, int TURNS>
__device__ static inline void leave_outputs(const struct cuda_mamba &call,
                                            const struct prompt_block &block, uint32_t begin,
                                            uint32_t rows, const prompt_tile<N, TURNS> &tile) {
    const uint32_t pieces = block.count / 4;
    float *to = call.room + (size_t)(block.item.row + begin) * block.channels +
                block.head * call.head_dim + block.first;
    for (uint32_t i = threadIdx.x; i < rows * pieces; i += THREADS) {
        const uint32_t row = i / pieces, at = i % pieces * 4;
        *(float4 *)(to + (size_t)row * block.channels + at) = *(const float4 *)&tile.x[row][at];
    }
}

/* ---- the kernel: block per item, head and part of its x ---- */

template <int N, int TURNS>
__device__ static inline struct prompt_block block_of(const struct cuda_mamba &call,
                                                      uint32_t channels) {
    constexpr uint32_t PART = prompt_sizes<N, TURNS>::PART;
    const uint32_t parts = (call.head_dim + PART - 1) / PART, part = blockIdx.x % parts;
    struct prompt_block block;
    block.head = blockIdx.x / parts % call.heads;
    block.group = block.head / (call.heads / call.groups);
    block.first = part * PART;
    block.count = min(PART, call.head_dim - block.first);
    block.channels = channels;
    block.item = call.items[call.decoded_count + blockIdx.x / parts / call.heads];
    return block;
}

template <bool IS_BF16, int N, int TURNS>
__global__ void __launch_bounds__(THREADS, 4)
    mamba_prompts(struct cuda_mamba call, uint32_t channels) {
    constexpr uint32_t TILE = prompt_sizes<N, TURNS>::TILE;
    extern __shared__ __align__(1024) char cuda_memory[];
    prompt_tile<N, TURNS> *tiles = (prompt_tile<N, TURNS> *)cuda_memory;
    wait_for_before();
    const struct prompt_block block = block_of<N, TURNS>(call, channels);
    const float skip = call.d[block.head];
    struct prompt_state<IS_BF16, N, TURNS> state;
    fetch<N, TURNS>(call, block, 0, &tiles[0]);
    float step = read_step<TILE>(call, block, 0);
    state.read(call, block);
    let_next_start();
    for (uint32_t begin = 0; begin < block.item.rows; begin += TILE) {
        prompt_tile<N, TURNS> *tile = &tiles[begin / TILE % 2];
        const uint32_t rows = min(TILE, block.item.rows - begin);
        if (threadIdx.x < TILE) tile->rates[threadIdx.x] = mamba_rate_of(call, block.head, step);
        cuda_copy_wait<0>();
        __syncthreads();
        fetch<N, TURNS>(call, block, begin + TILE, &tiles[(begin / TILE + 1) % 2]);
        step = read_step<TILE>(call, block, begin + TILE);
#pragma unroll 1
        for (uint32_t row = 0; row < rows; row++) {
            state.pass(tile, row, skip);
            if (block.item.save != CUDA_STATE_NONE && begin + row + 1 == block.item.save_rows)
                state.write(call, block, block.item.save);
        }
        __syncthreads();
        leave_outputs<N, TURNS>(call, block, begin, rows, *tile);
    }
    cuda_copy_wait<0>();
    state.write(call, block, block.item.to);
}

/* ---- the choice ---- */

template <int N, int TURNS>
static enum err launch_of(const struct cuda_mamba *call, cudaStream_t stream, struct error *error) {
    constexpr uint32_t PART = prompt_sizes<N, TURNS>::PART;
    const uint32_t parts = (call->head_dim + PART - 1) / PART;
    const uint32_t blocks = (call->item_count - call->decoded_count) * call->heads * parts;
    static_assert(2 * sizeof(prompt_tile<N, TURNS>) <= SHARED_BYTES_MOST, "without asking");
    return launch_dependent(
        "mamba_prompts", error, stream, blocks, THREADS, 2 * sizeof(prompt_tile<N, TURNS>),
        call->states.is_bf16 ? mamba_prompts<true, N, TURNS> : mamba_prompts<false, N, TURNS>,
        *call, mamba_channels(call));
}

template <int N, int TURNS>
static enum err launch(const struct cuda_mamba *call, cudaStream_t stream, struct error *error) {
    constexpr uint32_t PART = prompt_sizes<N, TURNS>::PART;
    const uint32_t blocks = (call->item_count - call->decoded_count) * call->heads *
                            ((call->head_dim + PART - 1) / PART);
    return blocks > FEW_BLOCKS ? launch_of<N, TURNS>(call, stream, error)
                               : launch_of<N, 1>(call, stream, error);
}

enum err mamba_launch_prompts(const struct cuda_mamba *call, cudaStream_t stream,
                              struct error *error) {
    switch (call->state_dim) {
    case 16: return launch<16, 1>(call, stream, error);
    case 32: return launch<32, 1>(call, stream, error);
    case 64: return launch<64, 2>(call, stream, error);
    case 128: return launch<128, 4>(call, stream, error);
    default: return launch<256, 4>(call, stream, error);
    }
}

CUDA_MODULE(mamba_prompts, mamba_prompts<false, 128, 4>)
