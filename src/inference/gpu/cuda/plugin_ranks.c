/* SPDX-License-Identifier: Apache-2.0 */

/* Several GPUs that compute every step together: who reaches whom, who waits for whom, and the sums
 * over their parts of products. */

#include "gpu/cuda/plugin_walk.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>
#include <time.h>

#define POLL_NS 20000 /* between two looks at the ranks of a step, which takes milliseconds */

void rank_use(const struct gpu *gpu) {
    if (gpu->rank_count > 1) (void)cudaSetDevice((int)gpu->index);
}

/* ---- open ---- */

/* Whether a GPU reaches the memory of another. A driver may refuse the mapping that it offered. */
static bool reaches(const struct gpu *from, const struct gpu *to) {
    int can = 0;
    if (from->index == to->index) return true;
    cudaError_t code = cudaDeviceCanAccessPeer(&can, (int)from->index, (int)to->index);
    if (code == cudaSuccess && !can) return false;
    if (code == cudaSuccess) code = cudaSetDevice((int)from->index);
    if (code == cudaSuccess) code = cudaDeviceEnablePeerAccess((int)to->index, 0);
    if (code != cudaSuccess) (void)cudaGetLastError(); /* or a launch would tell it */
    return code == cudaSuccess || code == cudaErrorPeerAccessAlreadyEnabled; /* by an earlier try */
}

enum err ranks_join(struct gpu *const *gpus, uint32_t count, bool adds_in_host,
                    struct error *error) {
    bool are_apart = adds_in_host;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < count; k++) {
            if (i == k) continue;
            if (gpus[i]->compute_major != gpus[k]->compute_major)
                return err_set(error, ERR_UNAVAILABLE,
                               "GPUs %u and %u are of different kinds, and --tensor-parallel-size "
                               "needs GPUs of one kind",
                               gpus[i]->index, gpus[k]->index);
            are_apart |= !reaches(gpus[i], gpus[k]);
        }
    for (uint32_t i = 0; i < count; i++) {
        gpus[i]->is_apart = are_apart;
        memcpy(gpus[i]->ranks, gpus, count * sizeof *gpus);
        gpus[i]->rank_count = count;
        gpus[i]->rank = i;
    }
    rank_use(gpus[0]);
    cudaError_t code = cudaEventCreateWithFlags(&gpus[0]->drawn, cudaEventDisableTiming);
    if (code == cudaSuccess)
        code = cudaHostAlloc((void **)&gpus[0]->given_up, sizeof *gpus[0]->given_up,
                             cudaHostAllocPortable | cudaHostAllocMapped);
    if (code == cudaSuccess) {
        *gpus[0]->given_up = 0;
        return OK;
    }
    for (uint32_t i = 0; i < count; i++) gpus[i]->rank_count = 1; /* each is closed by itself */
    return card_error(code, error, "opening %u GPUs", count);
}

/* ---- parts of products ---- */

/* All parts, words and tokens in pinned memory, which every GPU reaches: slowly, but in the same
 * order. */
static void place_in_host(struct gpu *gpu, size_t part_bytes, size_t word_bytes, int *code) {
    const size_t token_bytes = gpu->limits.sequences_max * sizeof(int32_t);
    char *at = NULL;
    if (*code == cudaSuccess)
        *code =
            cudaHostAlloc((void **)&at, GPU_PART_BUFFERS * part_bytes + word_bytes + token_bytes,
                          cudaHostAllocPortable | cudaHostAllocMapped);
    if (*code != cudaSuccess) return;
    gpu->shared = at;
    for (uint32_t i = 0; i < GPU_PART_BUFFERS; i++)
        gpu->parts[i] = (uint16_t *)(void *)(at + i * part_bytes);
    at += GPU_PART_BUFFERS * part_bytes;
    gpu->words = memset(at, 0, word_bytes);
    gpu->shared_tokens = (int32_t *)(void *)(at + word_bytes);
}

void ranks_place(struct gpu *gpu, const struct gpu_program *program, struct memory *memory,
                 int *code) {
    const size_t width = (program->width + PRODUCT_ALIGN - 1) / PRODUCT_ALIGN * PRODUCT_ALIGN;
    const size_t bytes = gpu->row_bucket * width * sizeof **gpu->parts;
    const size_t words = CUDA_RANKS_MAX * sizeof *gpu->words;
    if (gpu->rank_count == 1) return;
    if (gpu->is_apart) {
        if (memory->base) place_in_host(gpu, bytes, words, code);
        return;
    }
    for (uint32_t i = 0; i < GPU_PART_BUFFERS; i++)
        gpu->parts[i] = memory_take(memory, MEMORY_ACTIVATIONS, bytes);
    gpu->words = memory_take(memory, MEMORY_ACTIVATIONS, words);
    if (gpu->words && *code == cudaSuccess) *code = cudaMemset(gpu->words, 0, words);
}

/* Whether an operation leaves a part of h, or of what ADD adds. */
static bool is_part(const struct gpu *gpu, uint32_t index) {
    const struct gpu_op *op = &gpu->program.ops[index];
    const bool is_added = op->to == TO_SHARED && op[1].kind == OP_ADD;
    uint32_t matrix = GPU_NONE;
    if (op->kind == OP_EXPERTS) matrix = op->experts.down;
    if (op->kind == OP_MATMUL && (op->to == TO_H || is_added)) matrix = op->matrix;
    return matrix != GPU_NONE && gpu->shard.splits[matrix].kind == GPU_SPLIT_INPUTS;
}

/* Whether an operation reads what the last product left of h, or for ADD. */
static bool reads_part(const struct gpu_op *op) {
    return op->kind == OP_ASIDE || op->kind == OP_JOIN || op->kind == OP_ADD ||
           (op->kind == OP_NORM && op->add != ADD_NOTHING);
}

void ranks_number(struct gpu *gpu) {
    bool is_open = false; /* there is a part that nobody has read */
    gpu->part_count = 0;
    for (uint32_t i = 0; i < gpu->program.op_count && gpu->rank_count > 1; i++) {
        struct card_op *op = &gpu->ops[i];
        op->part = 0;
        if (is_part(gpu, i)) {
            assert(!is_open);
            op->part = ++gpu->part_count, is_open = true;
        } else if (is_open && reads_part(&op->op)) {
            op->part = gpu->part_count, is_open = false;
        }
    }
}

/* ---- steps ---- */

enum err rank_error(const struct gpu *rank, enum err err, struct error *error) {
    return err == OK || rank->rank_count == 1 ? err : err_prefix(error, "GPU %u", rank->index);
}

enum err ranks_await_tokens(struct gpu *lead, struct error *error) {
    if (lead->rank_count == 1) return OK;
    const size_t bytes = lead->limits.sequences_max * sizeof *lead->last_token;
    const struct gpu *at = lead;
    cudaError_t code = cudaSuccess;
    rank_use(lead);
    if (lead->is_apart)
        code = cudaMemcpyAsync(lead->shared_tokens, lead->last_token, bytes, cudaMemcpyDeviceToHost,
                               lead->compute);
    if (code == cudaSuccess) code = cudaEventRecord(lead->drawn, lead->compute);
    for (uint32_t i = 1; i < lead->rank_count && code == cudaSuccess; i++) {
        const struct gpu *rank = at = lead->ranks[i];
        rank_use(rank);
        code = cudaStreamWaitEvent(rank->compute, lead->drawn, 0);
        if (code == cudaSuccess && lead->is_apart)
            code = cudaMemcpyAsync(rank->last_token, lead->shared_tokens, bytes,
                                   cudaMemcpyHostToDevice, rank->compute);
    }
    return code == cudaSuccess
               ? OK
               : rank_error(at, card_error(code, error, "waiting for tokens"), error);
}

enum err walk_part(struct walk *walk, const struct card_op *op, const struct cuda_product *sums,
                   struct error *error) {
    const struct gpu *gpu = walk->gpu;
    struct cuda_part call = {.from = *sums,
                             .to = product_place(gpu, op),
                             .width = gpu->program.width,
                             .rows = walk->rows};
    call.from.bias = NULL; /* the sum has it once */
    return cuda_part(&call, gpu->compute, error);
}

static struct cuda_meeting meeting_of(const struct walk *walk, const struct card_op *op) {
    const struct gpu *gpu = walk->gpu;
    struct cuda_meeting meeting = {.ranks = gpu->rank_count,
                                   .rank = gpu->rank,
                                   .number = walk->flight->parts_before + op->part,
                                   .given_up = gpu->ranks[0]->given_up};
    for (uint32_t i = 0; i < gpu->rank_count; i++) {
        meeting.parts[i] = gpu->ranks[i]->parts[part_buffer(op->part)];
        meeting.words[i] = gpu->ranks[i]->words;
    }
    return meeting;
}

enum err walk_sum(struct walk *walk, const struct card_op *op, const struct cuda_norm *norm,
                  struct error *error) {
    struct cuda_reduce call = {.norm = *norm, .meeting = meeting_of(walk, op)};
    call.norm.h = (struct cuda_product){.stride = norm->h.stride, .bias = norm->h.bias};
    return cuda_reduce(&call, walk->gpu->compute, error);
}

enum err walk_total(struct walk *walk, const struct card_op *op, struct error *error) {
    const enum op_to to = op->op.kind == OP_ADD ? TO_SHARED : TO_H;
    const bool is_read = to == TO_SHARED || op->op.kind == OP_ASIDE || op->op.kind == OP_JOIN;
    struct cuda_product *product = &walk->product[to];
    if (op->part == 0 || !is_read || walk->rows == 0) return OK;
    const struct cuda_total call = {.meeting = meeting_of(walk, op),
                                    .bias = product->bias,
                                    .to = product_buffer(walk->gpu, to),
                                    .width = walk->gpu->program.width,
                                    .stride = (uint32_t)product->stride,
                                    .rows = walk->rows};
    *product =
        (struct cuda_product){.sums = call.to, .type = CUDA_SUMS_BF16, .stride = product->stride};
    return cuda_total(&call, walk->gpu->compute, error);
}

/* ---- waiting ---- */

void ranks_give_up(const struct gpu *lead) {
    volatile uint32_t *given_up = lead->given_up;
    if (given_up) *given_up = 1;
}

/* Whether a rank has come to an end: cudaErrorNotReady, or as it ended. */
typedef cudaError_t rank_end(struct gpu *rank, const struct flight *flight);

static cudaError_t end_of_flight(struct gpu *rank, const struct flight *flight) {
    return cudaEventQuery(rank_flight(rank, flight)->done);
}

static cudaError_t end_of_stream(struct gpu *rank, const struct flight *flight) {
    (void)flight;
    return cudaStreamQuery(rank->compute);
}

/* How the ranks ended, as far as they have: cudaErrorNotReady if some have not and none failed. A
 * rank whose kernel waited in vain for another rank ends by a launch failure, so any other error
 * tells more. */
static cudaError_t look_at_all(struct gpu *lead, const struct flight *flight, rank_end *end_of,
                               uint32_t *ret_failed) {
    cudaError_t worst = cudaSuccess;
    bool is_waiting = false;
    for (uint32_t i = lead->rank_count; i-- > 0;) {
        rank_use(lead->ranks[i]);
        cudaError_t code = end_of(lead->ranks[i], flight);
        is_waiting |= code == cudaErrorNotReady;
        if (code == cudaErrorNotReady) (void)cudaGetLastError(); /* or a launch would tell it */
        if (code == cudaSuccess || code == cudaErrorNotReady ||
            (worst != cudaSuccess && code == cudaErrorLaunchFailure))
            continue;
        worst = code, *ret_failed = i;
    }
    rank_use(lead);
    return worst == cudaSuccess && is_waiting ? cudaErrorNotReady : worst;
}

/* A rank that failed says nothing to the others, whose kernels wait for it: so the host looks at
 * all ranks by turns, and lets the others go when one has failed. */
static cudaError_t wait_for_all(struct gpu *lead, const struct flight *flight, rank_end *end_of,
                                uint32_t *ret_failed) {
    const struct timespec pause = {.tv_nsec = POLL_NS};
    cudaError_t code;
    while ((code = look_at_all(lead, flight, end_of, ret_failed)) == cudaErrorNotReady)
        (void)nanosleep(&pause, NULL);
    if (code != cudaSuccess) ranks_give_up(lead);
    return code;
}

int ranks_settle(struct gpu *lead, struct gpu **ret_failed) {
    uint32_t failed = 0;
    const cudaError_t code = lead->rank_count > 1 ? wait_for_all(lead, NULL, end_of_stream, &failed)
                                                  : cudaStreamSynchronize(lead->compute);
    *ret_failed = lead->ranks[failed];
    return code;
}

enum err ranks_wait(struct gpu *lead, const struct flight *flight, struct error *error) {
    uint32_t failed = 0;
    const cudaError_t code = lead->rank_count > 1
                                 ? wait_for_all(lead, flight, end_of_flight, &failed)
                                 : cudaEventSynchronize(flight->done);
    if (code == cudaSuccess) return OK;
    if (lead->rank_count == 1)
        return card_error(code, error, "step %llu", (unsigned long long)flight->number);
    return card_error(code, error, "step %llu on GPU %u", (unsigned long long)flight->number,
                      lead->ranks[failed]->index);
}
