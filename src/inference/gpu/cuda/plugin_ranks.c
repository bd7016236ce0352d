/* SPDX-License-Identifier: Apache-2.0 */

/* Several GPUs that compute every step together: who reaches whom, who waits for whom, and the sums
 * over their parts of products. */

#include "gpu/cuda/plugin_walk.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

void rank_use(const struct gpu *gpu) {
    if (gpu->rank_count > 1) (void)cudaSetDevice((int)gpu->index);
}

/* ---- open ---- */

static enum err reach(const struct gpu *from, const struct gpu *to, struct error *error) {
    int can = 0;
    cudaError_t code = cudaDeviceCanAccessPeer(&can, (int)from->index, (int)to->index);
    if (code == cudaSuccess && !can)
        return err_set(error, ERR_UNAVAILABLE,
                       "GPU %u does not reach the memory of GPU %u (nvidia-smi topo -p2p r), as "
                       "--tensor-parallel-size needs: run without it, or with "
                       "--data-parallel-size",
                       from->index, to->index);
    if (code == cudaSuccess) code = cudaSetDevice((int)from->index);
    if (code == cudaSuccess) code = cudaDeviceEnablePeerAccess((int)to->index, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError(); /* a try before this one did it */
        return OK;
    }
    return code == cudaSuccess
               ? OK
               : card_error(code, error, "letting GPU %u reach GPU %u", from->index, to->index);
}

enum err ranks_join(struct gpu *const *gpus, uint32_t count, struct error *error) {
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < count; k++) {
            if (i == k) continue;
            if (gpus[i]->compute_major != gpus[k]->compute_major)
                return err_set(error, ERR_UNAVAILABLE,
                               "GPUs %u and %u are of different kinds, and --tensor-parallel-size "
                               "needs GPUs of one kind",
                               gpus[i]->index, gpus[k]->index);
            enum err err = reach(gpus[i], gpus[k], error);
            if (err != OK) return err;
        }
    for (uint32_t i = 0; i < count; i++) {
        memcpy(gpus[i]->ranks, gpus, count * sizeof *gpus);
        gpus[i]->rank_count = count;
        gpus[i]->rank = i;
    }
    rank_use(gpus[0]);
    cudaError_t code = cudaEventCreateWithFlags(&gpus[0]->drawn, cudaEventDisableTiming);
    if (code == cudaSuccess) return OK;
    for (uint32_t i = 0; i < count; i++) gpus[i]->rank_count = 1; /* each is closed by itself */
    return card_error(code, error, "opening %u GPUs", count);
}

/* ---- parts of products ---- */

void ranks_place(struct gpu *gpu, const struct gpu_program *program, struct memory *memory,
                 int *code) {
    const size_t bytes = (size_t)gpu->row_bucket * program->width * sizeof **gpu->parts;
    const size_t words = CUDA_RANKS_MAX * sizeof *gpu->words;
    if (gpu->rank_count == 1) return;
    for (uint32_t i = 0; i < PART_BUFFERS; i++)
        gpu->parts[i] = memory_take(memory, MEMORY_ACTIVATIONS, bytes);
    gpu->words = memory_take(memory, MEMORY_ACTIVATIONS, words);
    if (gpu->words && *code == cudaSuccess) *code = cudaMemset(gpu->words, 0, words);
}

/* Whether an operation leaves a part of h. */
static bool is_part(const struct gpu *gpu, const struct gpu_op *op) {
    const uint32_t matrix = op->kind == OP_EXPERTS  ? op->experts.down
                            : op->kind == OP_MATMUL ? op->matrix
                                                    : GPU_NONE;
    return matrix != GPU_NONE && gpu->shard.splits[matrix].kind == GPU_SPLIT_INPUTS;
}

void ranks_number(struct gpu *gpu) {
    gpu->part_count = 0;
    for (uint32_t i = 0; i < gpu->program.op_count && gpu->rank_count > 1; i++) {
        struct card_op *op = &gpu->ops[i];
        op->part = 0;
        if (is_part(gpu, &op->op)) op->part = ++gpu->part_count;
        if (op->op.kind == OP_NORM && op->op.add != ADD_NOTHING) op->part = gpu->part_count;
    }
}

/* ---- steps ---- */

enum err ranks_await_tokens(struct gpu *lead, struct error *error) {
    if (lead->rank_count == 1) return OK;
    rank_use(lead);
    cudaError_t code = cudaEventRecord(lead->drawn, lead->compute);
    for (uint32_t i = 1; i < lead->rank_count && code == cudaSuccess; i++) {
        rank_use(lead->ranks[i]);
        code = cudaStreamWaitEvent(lead->ranks[i]->compute, lead->drawn, 0);
    }
    return code == cudaSuccess ? OK : card_error(code, error, "waiting for tokens");
}

enum err walk_sum(struct walk *walk, const struct card_op *op, const struct cuda_norm *norm,
                  struct error *error) {
    const struct gpu *gpu = walk->gpu;
    struct cuda_reduce call = {.norm = *norm,
                               .ranks = gpu->rank_count,
                               .rank = gpu->rank,
                               .number = walk->flight->parts_before + op->part};
    call.norm.h = (struct cuda_product){.stride = norm->h.stride, .bias = norm->h.bias};
    for (uint32_t i = 0; i < gpu->rank_count; i++) {
        call.parts[i] = gpu->ranks[i]->parts[part_buffer(op->part)];
        call.words[i] = gpu->ranks[i]->words;
    }
    return cuda_reduce(&call, gpu->compute, error);
}

/* A rank whose kernel waited in vain for another rank ends by a launch failure, so any other error
 * tells more. */
enum err ranks_wait(struct gpu *lead, const struct flight *flight, struct error *error) {
    cudaError_t worst = cudaSuccess;
    uint32_t failed = 0;
    for (uint32_t i = lead->rank_count; i-- > 0;) {
        rank_use(lead->ranks[i]);
        cudaError_t code = cudaEventSynchronize(rank_flight(lead->ranks[i], flight)->done);
        if (code == cudaSuccess || (worst != cudaSuccess && code == cudaErrorLaunchFailure))
            continue;
        worst = code, failed = i;
    }
    rank_use(lead);
    if (worst == cudaSuccess) return OK;
    if (lead->rank_count == 1)
        return card_error(worst, error, "step %llu", (unsigned long long)flight->number);
    return card_error(worst, error, "step %llu on GPU %u", (unsigned long long)flight->number,
                      lead->ranks[failed]->index);
}
