/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce_world.h"

#include "gpu/cuda/rows.h"

#define REPEATS 50 /* calls of a graph */
#define STARTS 9   /* starts of each graph */

struct bench_rank {
    float *x, *weight, *scale;
    uint16_t *parts[2];
    void *y;
    cudaEvent_t begin, end;
    cudaGraphExec_t exec;
};

struct bench_case {
    uint32_t ranks, rows, width;
    enum cuda_code code;
    bool is_total; /* the sums alone */
};

static void take_rank(struct bench_rank *at, const struct bench_case *shape, uint32_t rank) {
    const size_t count = (size_t)shape->rows * shape->width;
    CUDA_MUST(cudaSetDevice((int)rank));
    at->x = gpu_copy(std::vector<float>(count, 1.0f));
    at->weight = gpu_copy(std::vector<float>(shape->width, 1.0f));
    struct rng rng = random_of("bench");
    const std::vector<uint16_t> some = random_bf16(&rng, count, 0.1f);
    for (auto &part : at->parts) part = gpu_copy(some);
    at->y = gpu_take_bytes(count * 2);
    at->scale = gpu_take<float>(shape->rows);
    CUDA_MUST(cudaEventCreate(&at->begin));
    CUDA_MUST(cudaEventCreate(&at->end));
}

static struct cuda_reduce call_of(const struct bench_case *shape, const struct ranks *ranks,
                                  const struct bench_rank *all, uint32_t rank, uint32_t number) {
    struct cuda_reduce call = {};
    const struct bench_rank *mine = &all[rank];
    call.norm.x = mine->x, call.norm.x_stride = shape->width;
    call.norm.h.stride = shape->width;
    call.norm.weight.at = mine->weight;
    call.norm.y = {mine->y, shape->code, shape->width, mine->scale};
    call.norm.width = shape->width, call.norm.rows = shape->rows, call.norm.epsilon = 1e-6f;
    call.meeting.ranks = shape->ranks, call.meeting.rank = rank, call.meeting.number = number;
    for (uint32_t k = 0; k < shape->ranks; k++)
        call.meeting.parts[k] = all[k].parts[number % 2], call.meeting.words[k] = ranks->words[k];
    return call;
}

/* The same sums alone. */
static struct cuda_total total_of(const struct cuda_reduce &reduce) {
    struct cuda_total call = {};
    call.meeting = reduce.meeting;
    call.to = (uint16_t *)reduce.norm.y.codes;
    call.width = call.stride = reduce.norm.width, call.rows = reduce.norm.rows;
    return call;
}

static void record(const struct bench_case *shape, const struct ranks *ranks,
                   struct bench_rank *all, uint32_t rank, uint32_t blocks) {
    cudaGraph_t graph;
    cudaStream_t on = ranks->streams[rank];
    CUDA_MUST(cudaSetDevice((int)rank));
    CUDA_MUST(cudaStreamBeginCapture(on, cudaStreamCaptureModeRelaxed));
    for (uint32_t i = 1; i <= REPEATS; i++) {
        struct cuda_reduce call = call_of(shape, ranks, all, rank, i);
        const struct cuda_total total = total_of(call);
        call.blocks_max = blocks;
        if (shape->is_total)
            MUST_BE_OK(cuda_total(&total, on, error));
        else
            MUST_BE_OK(cuda_reduce(&call, on, error));
    }
    CUDA_MUST(cudaStreamEndCapture(on, &graph));
    CUDA_MUST(cudaGraphInstantiate(&all[rank].exec, graph, 0));
    CUDA_MUST(cudaGraphDestroy(graph));
}

/* Microseconds per call of one start of all graphs. A rank that starts first waits for the others,
 * so the shortest time counts. */
static double start_us(const struct bench_case *shape, const struct ranks *ranks,
                       struct bench_rank *all) {
    float least = INFINITY;
    for (uint32_t i = 0; i < shape->ranks; i++) {
        CUDA_MUST(cudaSetDevice((int)i));
        CUDA_MUST(cudaMemset(ranks->words[i], 0, CUDA_RANKS_MAX * sizeof(uint32_t)));
        CUDA_MUST(cudaDeviceSynchronize());
    }
    for (uint32_t i = 0; i < shape->ranks; i++) {
        CUDA_MUST(cudaSetDevice((int)i));
        CUDA_MUST(cudaEventRecord(all[i].begin, ranks->streams[i]));
        CUDA_MUST(cudaGraphLaunch(all[i].exec, ranks->streams[i]));
        CUDA_MUST(cudaEventRecord(all[i].end, ranks->streams[i]));
    }
    ranks_settle(ranks, shape->ranks);
    for (uint32_t i = 0; i < shape->ranks; i++) {
        float ms;
        CUDA_MUST(cudaEventElapsedTime(&ms, all[i].begin, all[i].end));
        least = std::min(least, ms);
    }
    return least * 1000.0 / REPEATS;
}

static double graph_us(const struct bench_case *shape, const struct ranks *ranks,
                       struct bench_rank *all, uint32_t blocks) {
    std::vector<double> took;
    for (uint32_t i = 0; i < shape->ranks; i++) record(shape, ranks, all, i, blocks);
    for (int i = 0; i <= STARTS; i++) {
        const double us = start_us(shape, ranks, all);
        if (i > 0) took.push_back(us); /* the first one loads the code */
    }
    for (uint32_t i = 0; i < shape->ranks; i++) CUDA_MUST(cudaGraphExecDestroy(all[i].exec));
    std::sort(took.begin(), took.end());
    return took[took.size() / 2];
}

/* The same norm of a product that is whole, on one GPU. */
static double norm_us(const struct bench_case *shape, const struct bench_rank *mine) {
    return time_us([&](int i) {
        struct cuda_norm call = {};
        call.x = mine->x, call.x_stride = shape->width;
        call.h.sums = mine->parts[i % 2], call.h.stride = shape->width;
        call.weight.at = mine->weight;
        call.y = {mine->y, shape->code, shape->width, mine->scale};
        call.width = shape->width, call.rows = shape->rows, call.epsilon = 1e-6f;
        MUST_BE_OK(cuda_norm(&call, stream, error));
    });
}

static void bench_case(struct ranks *ranks, const struct bench_case &shape, bool tries_blocks) {
    struct bench_rank all[CUDA_RANKS_MAX] = {};
    const double bytes = 2.0 * shape.rows * shape.width;
    const char *code = shape.code == CUDA_BF16 ? "bf16" : shape.code == CUDA_E4M3 ? "e4m3" : "int8";
    take_words(ranks, shape.ranks, 0);
    for (uint32_t i = 0; i < shape.ranks; i++) take_rank(&all[i], &shape, i);
    CUDA_MUST(cudaSetDevice(0));
    const double alone = norm_us(&shape, &all[0]);
    bench_bytes(shape.is_total ? "total" : "reduce", graph_us(&shape, ranks, all, 0), bytes, 0,
                "%u GPUs, %u x %u -> %s", shape.ranks, shape.rows, shape.width, code);
    (void)printf("# the norm alone, on one GPU: %.2f us\n", alone);
    const uint32_t held = (uint32_t)card.multiProcessorCount;
    for (uint32_t blocks : {held / 2, held, 2 * held, 3 * held, 4 * held, 6 * held, 8 * held})
        if (tries_blocks && blocks < shape.rows)
            (void)printf("# at most %u blocks: %.2f us\n", blocks,
                         graph_us(&shape, ranks, all, blocks));
    for (uint32_t i = 0; i < shape.ranks; i++) {
        CUDA_MUST(cudaEventDestroy(all[i].begin));
        CUDA_MUST(cudaEventDestroy(all[i].end));
    }
    gpu_release();
}

/* 8 KB to 32 MB of bf16, as rows of 4,096; and rows of Qwen3-32B. */
void bench_reduce(void) {
    struct ranks *ranks = all_ranks();
    if (ranks->count < 2) note("reduce: one GPU, or none that reach each other: not timed");
    for (uint32_t count = 2; count <= ranks->count; count *= 2) {
        for (uint32_t rows : {1u, 4u, 16u, 64u, 128u, 256u, 512u, 1024u, 2048u, 4096u})
            bench_case(ranks, {count, rows, 4096, CUDA_BF16}, rows >= 64);
        for (uint32_t rows : {16u, 512u, 2048u}) {
            bench_case(ranks, {count, rows, 4096, CUDA_E4M3}, false);
            bench_case(ranks, {count, rows, 4096, CUDA_BF16, true}, false);
            bench_case(ranks, {count, rows, 5120, CUDA_BF16}, false);
        }
    }
}
