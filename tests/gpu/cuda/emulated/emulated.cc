/* SPDX-License-Identifier: Apache-2.0 */

/* Blocks, warps and the instructions that a warp does together. See cuda_runtime.h beside this. */

#include "cuda_runtime.h"

#include "gpu/cuda/peer.cuh"
#include "gpu/cuda/ptx.cuh"
#include "gpu/cuda/tma.cuh"
#include "gpu/cuda/wgmma.cuh"

#include <time.h>

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#define SHARED_BYTES (228 << 10)
#define STACK_BYTES (64 << 10)
#define MEETING_BYTES 64 /* what one lane can bring */
#define ROUNDS_MAX 1000  /* over all threads of a block, without a meeting that is over */

__thread dim3 threadIdx, blockIdx, blockDim, gridDim;
int emulated_major = 8;
alignas(1024) thread_local char cuda_memory[SHARED_BYTES];

struct copy {
    uint32_t to;
    const void *from; /* NULL: zeros */
    uint32_t bytes;
};

struct thread {
    std::unique_ptr<char[]> stack; /* kept, with its context, for later blocks */
    void *context;                 /* its stack pointer while others run */
    const uint32_t *waits_at;      /* it need not run while this is waits_while; or NULL */
    uint32_t waits_while;
    bool is_over;
    std::vector<std::vector<copy>> groups;
    std::vector<std::vector<std::function<void(void)>>>
        products;   /* groups that nobody has waited for */
    uint32_t order; /* a hash of the instructions of products that it came to, in their order */
};

/* Lanes that meet. Those of one warp may part, so there is one for each first lane. */
struct meeting {
    uint32_t arrived;
    uint32_t count; /* of the meetings that are over */
    uint32_t lanes;
    int what;
    alignas(16) char brought[2][32 * MEETING_BYTES]; /* of even and of odd meetings */
};

struct warp {
    meeting of_all;
    meeting of_some[32];
};

static thread_local std::vector<thread> threads;
static thread_local std::vector<warp> warps;
static thread_local uint32_t block_arrived, block_meeting;
struct group { /* of four warps */
    uint32_t arrived;
    uint32_t meeting;
};

struct barrier {
    uint32_t count, arrivals; /* of the phase that is under way */
    int64_t bytes;            /* expected and not come */
    uint32_t phase;
    std::vector<std::function<void(void)>> late; /* tiles on their way */
};

static thread_local std::vector<group> groups;
static thread_local group meetings[16];                   /* of some warps, by number */
static thread_local std::map<uint32_t, barrier> barriers; /* by address */
static thread_local void *home;
static thread_local bool is_late;           /* copies happen when they are waited for */
static thread_local uint64_t meetings_over; /* of all kinds: nobody goes on without one more */

/* Leaves the registers that a function keeps, and the stack, for those that `to` left. Jumps and
 * contexts of the C library took half of the time: they also save the mask of signals. */
extern "C" void emulated_switch(void **ret_from, void *to);
asm(R"(
.pushsection .text
.type emulated_switch, @function
emulated_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size emulated_switch, . - emulated_switch
.popsection
)");

static void die(const char *why) {
    (void)printf("Bail out! emulated: %s (block %u, thread %u)\n", why, blockIdx.x, threadIdx.x);
    exit(1);
}

static void pause_thread(void) {
    emulated_switch(&threads[threadIdx.x].context, home);
}

/* Lets others run as long as *at is `value`. */
static void pause_while(const uint32_t *at, uint32_t value) {
    thread &self = threads[threadIdx.x];
    self.waits_at = at, self.waits_while = value;
    while (*at == value) pause_thread();
    self.waits_at = NULL;
}

void __syncthreads(void) {
    uint32_t meeting = block_meeting;
    if (++block_arrived == blockDim.x) {
        block_arrived = 0;
        block_meeting++;
        meetings_over++;
    }
    pause_while(&block_meeting, meeting);
}

int __syncthreads_or(int is_so) {
    static thread_local int any;
    __syncthreads(); /* nobody reads the last answer any more */
    if (threadIdx.x == 0) any = 0;
    __syncthreads();
    any |= is_so;
    __syncthreads();
    return any;
}

const void *emulated_meet_in(uint32_t lanes, int what, const void *mine, size_t bytes) {
    warp &warp = warps[threadIdx.x / 32];
    meeting &meeting = lanes == ~0u ? warp.of_all : warp.of_some[__builtin_ctz(lanes)];
    const uint32_t count = meeting.count;
    char *brought = meeting.brought[count % 2];
    if (bytes > MEETING_BYTES) die("too much to bring");
    if (!(lanes >> threadIdx.x % 32 & 1)) die("a lane is not in its own mask");
    if (meeting.arrived > 0 && (meeting.what != what || meeting.lanes != lanes))
        die("lanes do different things");
    meeting.what = what, meeting.lanes = lanes;
    if (bytes > 0) memcpy(brought + threadIdx.x % 32 * bytes, mine, bytes);
    if (++meeting.arrived == (uint32_t)__builtin_popcount(lanes)) {
        meeting.arrived = 0;
        meeting.count++;
        meetings_over++;
    }
    pause_while(&meeting.count, count);
    return brought;
}

static thread_local void (*block_body)(void *);
static thread_local void *block_context;

/* One block after another. */
static void run_thread(void) {
    for (;;) {
        block_body(block_context);
        threads[threadIdx.x].is_over = true;
        pause_thread();
    }
}

static void start_thread(uint32_t index) {
    thread &self = threads[index];
    if (!self.stack) {
        self.stack = std::make_unique<char[]>(STACK_BYTES);
        uintptr_t *top =
            (uintptr_t *)(((uintptr_t)self.stack.get() + STACK_BYTES) & ~(uintptr_t)15);
        top[-2] = (uintptr_t)run_thread; /* behind the registers */
        self.context = top - 2 - 6;
    }
    self.is_over = false;
    self.waits_at = NULL;
    if (self.groups.size() != 1 || !self.groups[0].empty()) self.groups.assign(1, {});
    if (self.products.size() != 1 || !self.products[0].empty()) self.products.assign(1, {});
    self.order = 0;
}

static void start_warp(warp *warp) {
    warp->of_all.arrived = warp->of_all.count = 0;
    for (meeting &meeting : warp->of_some) meeting.arrived = meeting.count = 0;
}

void emulated_block(uint32_t index, uint32_t count, void (*body)(void *), void *context) {
    static thread_local uint64_t turn;
    blockIdx.x = index, blockDim.x = count;
    block_body = body, block_context = context;
    if (threads.size() < count) threads.resize(count);
    if (warps.size() < (count + 31) / 32) warps.resize((count + 31) / 32);
    for (warp &warp : warps) start_warp(&warp);
    groups.assign((count + 127) / 128, {});
    barriers.clear();
    for (group &meeting : meetings) meeting = {};
    block_arrived = 0, is_late = turn++ % 2;
    memset(cuda_memory, 0xff, SHARED_BYTES);
    for (uint32_t i = 0; i < count; i++) start_thread(i);
    uint64_t over = meetings_over;
    uint32_t rounds = 0; /* since a meeting was over or a thread ended */
    /* Warps run forwards or backwards, each until it waits for others. */
    for (bool is_over = false; !is_over;) {
        is_over = true;
        for (uint32_t i = 0; i < count; i++) {
            threadIdx.x = turn % 4 < 2 ? i : (count / 32 - 1 - i / 32) * 32 + i % 32;
            thread &thread = threads[threadIdx.x];
            if (thread.is_over) continue;
            is_over = false;
            if (thread.waits_at && *thread.waits_at == thread.waits_while) continue;
            emulated_switch(&home, thread.context);
            if (thread.is_over) rounds = 0;
        }
        if (over != meetings_over) rounds = 0;
        over = meetings_over;
        if (++rounds == ROUNDS_MAX) die("the threads wait for what never comes");
    }
    if (block_arrived > 0) die("some threads wait for others that ended");
    for (uint32_t i = 0; i < count; i++)
        if (threads[i].order != threads[i / 128 * 128].order)
            die("a group's warps came to different products, or to different waits for them");
}

/* ---- copies ---- */

static void do_copy(const copy *one) {
    if (one->to % one->bytes || one->to + one->bytes > SHARED_BYTES)
        die("a copy leaves shared memory");
    if (one->from)
        memcpy(cuda_memory + one->to, one->from, one->bytes);
    else
        memset(cuda_memory + one->to, 0, one->bytes);
}

void emulated_copy(uint32_t to, const void *from, uint32_t bytes, bool is_wanted) {
    copy one = {to, is_wanted ? from : NULL, bytes};
    if ((uintptr_t)from % bytes) die("a copy begins at no multiple of its bytes");
    if (is_late)
        threads[threadIdx.x].groups.back().push_back(one);
    else
        do_copy(&one);
}

void emulated_commit(void) {
    threads[threadIdx.x].groups.emplace_back();
}

void emulated_wait(int count) {
    std::vector<std::vector<copy>> &groups = threads[threadIdx.x].groups;
    while ((int)groups.size() - 1 > count) {
        for (const copy &one : groups[0]) do_copy(&one);
        groups.erase(groups.begin());
    }
}

/* ---- matrices ---- */

void emulated_load(uint32_t ret[4], uint32_t row, bool is_transposed) {
    const uint32_t *rows = (const uint32_t *)emulated_meet(50 + is_transposed, &row, sizeof row);
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (uint32_t i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t from = rows[8 * i + (is_transposed ? 2 * t + j : g)];
            if (from % 16 || from + 16 > SHARED_BYTES) die("a row outside shared memory");
            memcpy(&pair[j], cuda_memory + from + (is_transposed ? g : 2 * t + j) * 2, 2);
        }
        ret[i] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

uint32_t cuda_transpose(uint32_t pair) {
    const uint16_t *all = (const uint16_t *)emulated_meet(52, &pair, sizeof pair);
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    return all[(2 * t) * 8 + g] | (uint32_t)all[(2 * t + 1) * 8 + g] << 16;
}

void cuda_mma(float sum[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const uint32_t(*all)[6] = (const uint32_t(*)[6])emulated_meet(53, mine, sizeof mine);
    typedef float four __attribute__((vector_size(16)));
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    four sums = {sum[0], sum[1], sum[2], sum[3]};
    for (uint32_t k = 0; k < 16; k += 2) {
        const uint32_t *row = all[g * 4 + k % 8 / 2], *column = all[2 * t * 4 + k % 8 / 2];
        const uint32_t x0 = row[k / 8 * 2], x1 = row[1 + k / 8 * 2];
        const uint32_t y0 = column[4 + k / 8], y1 = column[4 * 6 + 4 + k / 8];
        const float lows[4] = {cuda_low_bf16(x0), cuda_low_bf16(x1), cuda_low_bf16(y0),
                               cuda_low_bf16(y1)};
        const float highs[4] = {cuda_high_bf16(x0), cuda_high_bf16(x1), cuda_high_bf16(y0),
                                cuda_high_bf16(y1)};
        sums +=
            (four){lows[0], lows[0], lows[1], lows[1]} * (four){lows[2], lows[3], lows[2], lows[3]};
        sums += (four){highs[0], highs[0], highs[1], highs[1]} *
                (four){highs[2], highs[3], highs[2], highs[3]};
    }
    for (uint32_t i = 0; i < 4; i++) sum[i] = sums[i];
}

void cuda_mma_tf32(float sum[4], const float a[4], float b0, float b1) {
    const float mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const float(*all)[6] = (const float(*)[6])emulated_meet(63, mine, sizeof mine);
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t k = 0; k < 8; k++)
            sum[i] += cuda_tf32(all[g * 4 + k % 4][i / 2 + k / 4 * 2]) *
                      cuda_tf32(all[(2 * t + i % 2) * 4 + k % 4][4 + k / 4]);
}

void cuda_mma_int8(int32_t sum[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const uint32_t(*all)[6] = (const uint32_t(*)[6])emulated_meet(57, mine, sizeof mine);
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t k = 0; k < 32; k++) {
            const uint32_t lane = k % 16 / 4, shift = k % 4 * 8;
            const uint32_t x = all[g * 4 + lane][i / 2 + k / 16 * 2];
            const uint32_t y = all[(2 * t + i % 2) * 4 + lane][4 + k / 16];
            sum[i] += (int8_t)(x >> shift) * (int8_t)(y >> shift);
        }
}

/* ---- products of warpgroups ---- */

/* Number `n` of row `row` of an operand in shared memory, whose rows are 128 B apart. */
static float emulated_operand(uint64_t begin, uint32_t row, uint32_t n) {
    uint32_t at = (uint32_t)begin + row * 128 + n / 8 * 16;
    uint16_t bits;
    if (begin % 16 || at + 16 > SHARED_BYTES) die("an operand outside shared memory");
    at ^= (at >> 7 & 7) << 4;
    memcpy(&bits, cuda_memory + at + n % 8 * 2, 2);
    return bf16_to_f32(bits);
}

static void note_order(uint32_t what) {
    uint32_t *order = &threads[threadIdx.x].order;
    *order = (*order ^ what) * 16777619u + 1;
}

static void emulated_product(std::function<void(void)> product) {
    note_order(1);
    if (is_late)
        threads[threadIdx.x].products.back().push_back(product);
    else
        product();
}

void cuda_products_commit(void) {
    note_order(2);
    threads[threadIdx.x].products.emplace_back();
}

void emulated_products_wait(int count) {
    note_order(3 + (uint32_t)count);
    auto &groups = threads[threadIdx.x].products;
    while ((int)groups.size() - 1 > count) {
        for (const auto &product : groups[0]) product();
        groups.erase(groups.begin());
    }
}

void emulated_scores(float (*sum)[4], int columns, uint64_t a, uint64_t b, int is_added) {
    const uint32_t g = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    (void)emulated_meet(54, &a, sizeof a);
    emulated_product([=] {
        for (int c = 0; c < columns / 8; c++)
            for (uint32_t i = 0; i < 4; i++) {
                if (!is_added) sum[c][i] = 0;
                for (uint32_t k = 0; k < 16; k++)
                    sum[c][i] += emulated_operand(a, g + i / 2 * 8, k) *
                                 emulated_operand(b, c * 8 + 2 * t + i % 2, k);
            }
    });
}

void cuda_product_from(float (*sum)[4], const uint32_t a[4], uint64_t b) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t(*all)[4] = (const uint32_t(*)[4])emulated_meet(55, a, 4 * sizeof *a);
    std::vector<float> rows(2 * 16);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k < 16; k++) {
            uint32_t pair = all[g * 4 + k % 8 / 2][i + k / 8 * 2];
            rows[i * 16 + k] = k % 2 ? cuda_high_bf16(pair) : cuda_low_bf16(pair);
        }
    emulated_product([=] {
        for (uint32_t c = 0; c < 8; c++)
            for (uint32_t i = 0; i < 4; i++)
                for (uint32_t k = 0; k < 16; k++)
                    sum[c][i] +=
                        rows[i / 2 * 16 + k] * emulated_operand(b, k, c * 8 + 2 * t + i % 2);
    });
}

/* ---- products of codes ---- */

/* 32 codes of row `row` of an operand. */
static void operand_codes(uint64_t begin, uint32_t row, int8_t ret[32]) {
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        uint32_t at = (uint32_t)begin + row * 128 + chunk * 16;
        if (begin % 16 || at + 16 > SHARED_BYTES) die("an operand outside shared memory");
        at ^= (at >> 7 & 7) << 4;
        memcpy(ret + chunk * 16, cuda_memory + at, 16);
    }
}

void emulated_int8(int32_t (*sum)[4], int columns, uint64_t a, uint64_t b, int is_added) {
    const uint32_t g = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    (void)emulated_meet(56, &a, sizeof a);
    emulated_product([=] {
        int8_t rows[2][32], column[32];
        for (uint32_t i = 0; i < 2; i++) operand_codes(a, g + 8 * i, rows[i]);
        for (int c = 0; c < columns / 8; c++)
            for (uint32_t j = 0; j < 2; j++) {
                operand_codes(b, (uint32_t)c * 8 + 2 * t + j, column);
                for (uint32_t i = 0; i < 2; i++) {
                    int32_t all = is_added ? sum[c][2 * i + j] : 0;
                    for (int k = 0; k < 32; k++) all += rows[i][k] * column[k];
                    sum[c][2 * i + j] = all;
                }
            }
    });
}

static float code_float(uint8_t code) {
    const uint32_t even = cuda_even_e4m3(code);
    return ldexpf(cuda_low_bf16(even), 120);
}

void emulated_e4m3(float (*sum)[4], int columns, uint64_t a, uint64_t b, int is_added) {
    const uint32_t g = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    (void)emulated_meet(58, &a, sizeof a);
    emulated_product([=] {
        int8_t codes[32];
        float rows[2][32], column[32];
        auto read = [&](uint64_t from, uint32_t row, float *ret) {
            operand_codes(from, row, codes);
            for (int k = 0; k < 32; k++) ret[k] = code_float((uint8_t)codes[k]);
        };
        for (uint32_t i = 0; i < 2; i++) read(a, g + 8 * i, rows[i]);
        for (int c = 0; c < columns / 8; c++)
            for (uint32_t j = 0; j < 2; j++) {
                read(b, (uint32_t)c * 8 + 2 * t + j, column);
                for (uint32_t i = 0; i < 2; i++) {
                    float all = is_added ? sum[c][2 * i + j] : 0;
                    for (int k = 0; k < 32; k++) all += rows[i][k] * column[k];
                    sum[c][2 * i + j] = all;
                }
            }
    });
}

/* Comes to a meeting of so many threads, and waits for the others or passes. */
static void come_to(group *group, uint32_t threads, bool is_waiting) {
    const uint32_t meeting = group->meeting;
    if (++group->arrived == threads) group->arrived = 0, group->meeting++, meetings_over++;
    if (is_waiting) pause_while(&group->meeting, meeting);
}

void emulated_group_wait(int count) {
    emulated_products_wait(count);
    come_to(&groups[threadIdx.x / 128], 128, true);
}

/* ---- barriers and tiles ---- */

void emulated_meet_some(uint32_t id, uint32_t threads, bool is_waiting) {
    come_to(&meetings[id], threads, is_waiting);
}

static barrier &barrier_at(uint32_t address) {
    const auto found = barriers.find(address);
    if (found == barriers.end()) die("a barrier that nobody opened");
    return found->second;
}

static void end_phase(barrier *barrier) {
    if (barrier->arrivals != barrier->count || barrier->bytes != 0) return;
    barrier->arrivals = 0;
    barrier->phase++;
    meetings_over++;
}

void cuda_barrier_open(uint32_t address, uint32_t count) {
    if (address % 8) die("a barrier at no multiple of 8");
    barriers[address] = {count, 0, 0, 0, {}};
}

void cuda_barrier_expect(uint32_t address, uint32_t bytes) {
    barrier &barrier = barrier_at(address);
    barrier.bytes += bytes;
    cuda_barrier_arrive(address, 0);
}

void cuda_barrier_arrive(uint32_t address, uint32_t) {
    barrier &barrier = barrier_at(address);
    if (++barrier.arrivals > barrier.count) die("more arrivals than a barrier counts");
    end_phase(&barrier);
}

void cuda_barrier_wait(uint32_t address, uint32_t parity) {
    barrier &barrier = barrier_at(address);
    while (barrier.phase % 2 == parity) {
        std::vector<std::function<void(void)>> late;
        late.swap(barrier.late);
        for (const auto &tile : late) tile();
        if (late.empty()) pause_thread();
    }
}

/* Does what brings the bytes, at once or when somebody waits for them. */
static void bring(uint32_t address, uint32_t bytes, std::function<void(void)> copy) {
    barrier *barrier = &barrier_at(address);
    auto come = [=] {
        copy();
        barrier->bytes -= bytes;
        end_phase(barrier);
    };
    if (is_late)
        barrier->late.push_back(come);
    else
        come();
}

void cuda_barrier_arrive_copied(uint32_t address) {
    std::vector<std::vector<copy>> &groups = threads[threadIdx.x].groups;
    std::vector<copy> copies;
    for (const std::vector<copy> &group : groups)
        copies.insert(copies.end(), group.begin(), group.end());
    groups.assign(1, {});
    auto come = [=] {
        for (const copy &one : copies) do_copy(&one);
        cuda_barrier_arrive(address, 0);
    };
    if (is_late)
        barrier_at(address).late.push_back(come);
    else
        come();
}

void cuda_bulk_read(uint32_t to, const void *from, uint32_t bytes, uint32_t address) {
    if (to % 16 || (uintptr_t)from % 16 || bytes % 16) die("a copy at no multiple of 16");
    if (to + bytes > SHARED_BYTES) die("a copy leaves shared memory");
    bring(address, bytes, [=] { memcpy(cuda_memory + to, from, bytes); });
}

/* Bytes of a tile in order, the innermost dimension first; beyond the matrix they are 0. */
static void copy_tile(uint32_t to, const cuda_tiles &tiles,
                      const uint32_t first[CUDA_TILE_RANK_MAX]) {
    uint32_t rows = 1;
    for (int i = 1; i < CUDA_TILE_RANK_MAX; i++) rows *= tiles.box[i];
    for (uint32_t row = 0; row < rows; row++) {
        bool is_there = true;
        uint64_t from = 0;
        for (uint32_t i = 1, rest = row; i < CUDA_TILE_RANK_MAX; rest /= tiles.box[i++]) {
            const uint64_t at = first[i] + rest % tiles.box[i];
            is_there &= at < tiles.sizes[i], from += at * tiles.strides[i];
        }
        for (uint32_t x = 0; x < tiles.box[0]; x++) {
            const uint32_t byte = to + row * 128 + x;
            cuda_memory[byte ^ (byte >> 7 & 7) << 4] =
                is_there && first[0] + x < tiles.sizes[0] ? tiles.at[from + first[0] + x] : 0;
        }
    }
}

void emulated_tile(uint32_t to, const struct cuda_tiles *tiles, uint32_t address,
                   const uint32_t first[CUDA_TILE_RANK_MAX]) {
    const cuda_tiles copy = *tiles;
    std::vector<uint32_t> begin(first, first + CUDA_TILE_RANK_MAX);
    uint32_t bytes = 128;
    for (int i = 1; i < CUDA_TILE_RANK_MAX; i++) bytes *= copy.box[i];
    if (to % 1024 || to + bytes > SHARED_BYTES) die("a tile leaves shared memory");
    bring(address, bytes, [=] { copy_tile(to, copy, begin.data()); });
}

/* ---- words between GPUs ---- */

#define PEER_PATIENCE_S 100

bool cuda_peer_await(const uint32_t *word, uint32_t value, const uint32_t *given_up) {
    const time_t begin = time(NULL);
    while ((int32_t)(cuda_peer_word(word) - value) < 0) {
        if (given_up && cuda_peer_word(given_up) != 0) return false;
        if (time(NULL) - begin > PEER_PATIENCE_S) die("another GPU never says that it is there");
        std::this_thread::yield();
    }
    return true;
}
