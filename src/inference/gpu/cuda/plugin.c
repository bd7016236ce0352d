/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/plugin_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT_USUAL (540 * MIB) /* driver and cuBLASLt (docs/internals/inference/gpu.md) */
#define CONTEXT_MOST (800 * MIB)  /* more than that is another process's */
#define LATER_BYTES (64 * MIB)    /* kernels that are loaded later, stacks of threads, graphs */
#define COMPUTE_LEAST 80u         /* cp.async, mma of bf16 */
#define TILE_ROWS_HEADS 128u      /* cuda_tile_rows(1) */
#define PTX_COMPILER "libnvidia-ptxjitcompiler.so.1" /* the driver's */

/* ---- list ---- */

/* The reason why the driver cannot be used. cudaGetDeviceCount opens no GPU. */
static enum err count_cards(int *ret_count, struct error *error) {
    int driver = 0, runtime = 0;
    *ret_count = 0;
    cudaError_t code = cudaGetDeviceCount(ret_count);
    if (code == cudaSuccess && *ret_count > 0) return OK;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return err_set(error, ERR_UNAVAILABLE,
                       "no CUDA device: libcuda.so.1 is not found: install NVIDIA's driver, or run "
                       "with --device cpu");
    if (code == cudaErrorInsufficientDriver)
        return err_set(error, ERR_UNAVAILABLE,
                       "no CUDA device: the driver runs CUDA %d.%d and this plugin needs %d.%d: "
                       "update the driver, build the plugin with an older nvcc, or run with "
                       "--device cpu",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    bool has_none = code == cudaSuccess || code == cudaErrorNoDevice;
    if (has_none && visible)
        return err_set(error, ERR_UNAVAILABLE,
                       "no CUDA device: the driver finds no GPU of CUDA_VISIBLE_DEVICES=%s: see "
                       "nvidia-smi -L, change or unset the variable, or run with --device cpu",
                       visible);
    if (has_none)
        return err_set(
            error, ERR_UNAVAILABLE,
            "no CUDA device: the driver finds no GPU: see nvidia-smi, give the container "
            "its GPU, or run with --device cpu");
    return err_set(error, ERR_UNAVAILABLE,
                   "no CUDA device: %s (%s): see nvidia-smi, restart the machine if its driver was "
                   "updated, or run with --device cpu",
                   cudaGetErrorString(code), cudaGetErrorName(code));
}

static void describe(int index, const struct cudaDeviceProp *card, struct gpu_info *ret_info) {
    *ret_info = (struct gpu_info){
        .index = (uint32_t)index,
        .compute = (uint32_t)(card->major * 10 + card->minor),
        .multiprocessors = (uint32_t)card->multiProcessorCount,
        .memory_bytes = card->totalGlobalMem,
        .free_bytes = free_bytes_of(index, card->totalGlobalMem),
    };
    (void)snprintf(ret_info->name, sizeof ret_info->name, "%.63s", card->name);
    const unsigned char *id = (const unsigned char *)card->uuid.bytes;
    int used = snprintf(ret_info->uuid, sizeof ret_info->uuid, "GPU");
    for (int i = 0; i < 16; i++) {
        const char *before = i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        used += snprintf(ret_info->uuid + used, sizeof ret_info->uuid - (size_t)used, "%s%02x",
                         before, id[i]);
    }
    if (ret_info->compute < COMPUTE_LEAST)
        (void)snprintf(ret_info->refusal, sizeof ret_info->refusal,
                       "its compute capability is %d.%d, and the kernels need 8.0: use a newer GPU "
                       "(A100, RTX 30 or later), or run with --device cpu",
                       card->major, card->minor);
}

static enum err plugin_list(struct gpu_info *ret_infos, uint32_t room, uint32_t *ret_count,
                            struct error *error) {
    int count;
    *ret_count = 0;
    enum err err = count_cards(&count, error);
    if (err != OK) return err;
    *ret_count = (uint32_t)count;
    for (int i = 0; i < count && (uint32_t)i < room; i++) {
        struct cudaDeviceProp card;
        cudaError_t code = cudaGetDeviceProperties(&card, i);
        if (code != cudaSuccess)
            return err_set(error, ERR_UNAVAILABLE,
                           "CUDA device %d: %s: see nvidia-smi, or run with --device cpu", i,
                           cudaGetErrorString(code));
        describe(i, &card, &ret_infos[i]);
    }
    return OK;
}

/* ---- open ---- */

/* Tells that others leave no room for driver and libraries: ERR_LIMIT, since they may end. The
 * runtime knows the free memory once there is a context, and would make one when it is asked. */
static enum err lack_room(const struct gpu *gpu, bool has_context, struct error *error) {
    uint64_t free_bytes = 0;
    size_t left = 0, total = 0;
    char told[24] = "fewer";
    (void)cudaGetLastError(); /* else a launch of the next try finds it */
    bool is_known = has_context ? cudaMemGetInfo(&left, &total) == cudaSuccess
                                : free_bytes_told((int)gpu->index, &free_bytes);
    if (has_context) free_bytes = left;
    if (is_known) (void)snprintf(told, sizeof told, "%llu", (unsigned long long)(free_bytes / MIB));
    return err_set(error, ERR_LIMIT,
                   "driver and libraries need %llu MiB of the GPU's memory, and %s are free: end "
                   "what else nvidia-smi shows on it, or run with --device cpu",
                   (unsigned long long)((CONTEXT_USUAL + LATER_BYTES + WORKSPACE_BYTES) / MIB),
                   told);
}

/* The code of the kernels, and the driver's compiler, which a sandbox would keep out (modules.h).
 */
static enum err open_modules(struct gpu *gpu, struct error *error) {
    const int64_t begin_ns = clock_monotonic_ns();
    bool is_compiled;
    /* cuBLASLt loads its kernels later, and may have PTX alone for the GPU, too. */
    (void)dlopen(PTX_COMPILER, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const int code = cuda_modules_load(&is_compiled);
    if (code == cudaErrorMemoryAllocation) return lack_room(gpu, true, error);
    if (is_compiled) gpu->compile_ns = (uint64_t)(clock_monotonic_ns() - begin_ns);
    if (code == cudaSuccess) return OK;
    struct cudaDeviceProp card = {0};
    (void)cudaGetDeviceProperties(&card, (int)gpu->index);
    return err_set(
        error, ERR_UNAVAILABLE,
        "CUDA device %u: the plugin has no code for compute capability %d.%d, and the driver "
        "cannot compile it: %s (%s): build the plugin for it (-Dgpu_archs), update the driver, "
        "give a container NVIDIA_DRIVER_CAPABILITIES=compute,utility, or run with --device cpu",
        gpu->index, card.major, card.minor, cudaGetErrorString((cudaError_t)code),
        cudaGetErrorName((cudaError_t)code));
}

/* Context, streams, kernels and the library for products. */
static enum err open_card(struct gpu *gpu, const struct gpu_options *options, struct error *error) {
    cudaError_t code = cudaSetDevice((int)gpu->index);
    if (code == cudaSuccess) code = cudaFree(NULL); /* makes the context */
    bool has_context = code == cudaSuccess;
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&gpu->multiprocessors, cudaDevAttrMultiProcessorCount,
                                      (int)gpu->index);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&gpu->compute_major, cudaDevAttrComputeCapabilityMajor,
                                      (int)gpu->index);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&gpu->compute, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&gpu->up, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&gpu->down, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(&gpu->copied, cudaEventDisableTiming);
    if (code == cudaErrorMemoryAllocation) return lack_room(gpu, has_context, error);
    if (code != cudaSuccess)
        return err_set(error, ERR_UNAVAILABLE,
                       "CUDA device %u cannot be opened: %s (%s): see nvidia-smi, or run with "
                       "--device cpu",
                       gpu->index, cudaGetErrorString(code), cudaGetErrorName(code));
    enum err err = open_modules(gpu, error);
    if (err != OK) return err;
    err = cuda_products_open(&gpu->products, options->library, WORKSPACE_BYTES, error);
    return err == ERR_LIMIT ? lack_room(gpu, true, error) : err;
}

/* The arena: all that the options leave beside context and libraries. `taken` are the bytes that
 * this process has of the GPU for another rank. */
static enum err take_memory(struct gpu *gpu, uint64_t taken, struct error *error) {
    size_t free_bytes = 0, total = 0;
    cudaError_t code = cudaMemGetInfo(&free_bytes, &total);
    if (code != cudaSuccess) return card_error(code, error, "asking for the GPU's memory");
    uint64_t used = total - free_bytes > taken ? total - free_bytes - taken : 0;
    uint64_t context = used > WORKSPACE_BYTES ? used - WORKSPACE_BYTES : 0;
    if (context > CONTEXT_MOST) context = CONTEXT_USUAL;
    gpu->context_bytes = context + LATER_BYTES;
    uint64_t outside = gpu->context_bytes + WORKSPACE_BYTES;
    if (gpu->limit <= outside)
        return err_set(error, ERR_LIMIT,
                       "%llu MiB of the GPU's memory are too few: driver and libraries take %llu, "
                       "and %llu more are free: end what else nvidia-smi shows on it, raise "
                       "--gpu-memory-limit-mib, or run with --device cpu",
                       (unsigned long long)(gpu->limit / MIB), (unsigned long long)(outside / MIB),
                       (unsigned long long)(free_bytes / MIB));
    uint64_t bytes = (gpu->limit - outside) / MIB * MIB;
    if (bytes + LATER_BYTES <= free_bytes) {
        void *base = NULL;
        code = cudaMalloc(&base, bytes);
        gpu->memory = (struct memory){.base = base, .room = bytes};
        if (code == cudaSuccess) return OK;
        (void)cudaGetLastError();
    }
    return err_set(error, ERR_LIMIT,
                   "%llu MiB of the GPU's memory are the limit, driver and libraries take %llu of "
                   "them, and %llu are free for the rest: end what else nvidia-smi shows on it, or "
                   "lower --gpu-memory-limit-mib",
                   (unsigned long long)(gpu->limit / MIB), (unsigned long long)(outside / MIB),
                   (unsigned long long)(free_bytes / MIB));
}

static void close_one(struct gpu *gpu) {
    if (gpu->compute) (void)cudaStreamSynchronize(gpu->compute);
    if (gpu->down) (void)cudaStreamSynchronize(gpu->down);
    for (uint32_t i = 0; i < GPU_STEPS_MAX; i++) {
        struct flight *flight = &gpu->flights[i];
        if (flight->block.host) (void)cudaFreeHost(flight->block.host);
        if (flight->host.tokens) (void)cudaFreeHost(flight->host.tokens);
        if (flight->begun) (void)cudaEventDestroy(flight->begun);
        if (flight->ended) (void)cudaEventDestroy(flight->ended);
        if (flight->done) (void)cudaEventDestroy(flight->done);
        for (uint32_t k = 0; flight->op_ended && k < gpu->program.op_count; k++)
            if (flight->op_ended[k]) (void)cudaEventDestroy(flight->op_ended[k]);
        free(flight->op_ended);
    }
    for (uint32_t i = 0; i < FILL_SLICES; i++) {
        if (gpu->fill_host[i]) (void)cudaFreeHost(gpu->fill_host[i]);
        if (gpu->fill_done[i]) (void)cudaEventDestroy(gpu->fill_done[i]);
    }
    graphs_free(gpu);
    away_close(gpu);
    cuda_products_close(gpu->products);
    if (gpu->memory.base) (void)cudaFree(gpu->memory.base);
    if (gpu->shared) (void)cudaFreeHost(gpu->shared);
    if (gpu->copied) (void)cudaEventDestroy(gpu->copied);
    if (gpu->drawn) (void)cudaEventDestroy(gpu->drawn);
    if (gpu->compute) (void)cudaStreamDestroy(gpu->compute);
    if (gpu->up) (void)cudaStreamDestroy(gpu->up);
    if (gpu->down) (void)cudaStreamDestroy(gpu->down);
    free(gpu->matrices);
    free(gpu->ops);
    free(gpu->places);
    free(gpu->unfold.owners);
    free(gpu->unfold.runs);
    gpu_shard_release(&gpu->shard);
    free(gpu);
}

static void plugin_close(struct gpu *gpu) {
    struct gpu *ranks[GPU_RANKS_MAX];
    const uint32_t count = gpu ? gpu->rank_count : 0;
    if (count > 0) memcpy(ranks, gpu->ranks, sizeof ranks);
    if (count > 1) ranks_give_up(gpu); /* nobody waits for a step that failed */
    uint32_t *given_up = gpu ? gpu->given_up : NULL;
    for (uint32_t i = count; i-- > 0;) {
        rank_use(ranks[i]);
        close_one(ranks[i]);
    }
    if (given_up) (void)cudaFreeHost(given_up);
}

static enum err open_one(struct gpu **ret_gpu, uint32_t index, const struct gpu_options *options,
                         int count, uint64_t taken, struct error *error) {
    if (index >= (uint32_t)count)
        return err_set(error, ERR_UNAVAILABLE,
                       "there is no CUDA device %u: the driver counts %d: see nvidia-smi", index,
                       count);
    struct gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu) return err_set(error, ERR_LIMIT, "no memory for a device");
    gpu->index = index;
    gpu->ranks[0] = gpu;
    gpu->rank_count = 1;
    gpu->limit = options->memory_bytes;
    gpu->is_measuring = options->measures_ops;
    gpu->has_no_graphs = options->has_no_graphs;
    gpu->graph_rows_max = options->graph_rows_max;
    gpu->careful_steps = options->careful_steps;
    gpu->clears_memory = options->clears_memory;
    enum err err = open_card(gpu, options, error);
    if (err == OK) err = take_memory(gpu, taken, error);
    if (err == OK)
        *ret_gpu = gpu;
    else
        close_one(gpu);
    return err;
}

static enum err plugin_open(struct gpu **ret_gpu, const struct gpu_options *options,
                            struct error *error) {
    struct gpu *gpus[GPU_RANKS_MAX];
    uint32_t opened = 0;
    int count;
    enum err err = count_cards(&count, error);
    assert(options->more_count < GPU_RANKS_MAX);
    while (err == OK && opened <= options->more_count) {
        const uint32_t index = opened == 0 ? options->index : options->more[opened - 1];
        uint64_t taken = 0;
        for (uint32_t i = 0; i < opened; i++)
            if (gpus[i]->index == index) taken += gpus[i]->memory.room;
        err = open_one(&gpus[opened], index, options, count, taken, error);
        if (err == OK) opened++;
    }
    if (err == OK && opened > 1) err = ranks_join(gpus, opened, options->adds_in_host, error);
    if (err == OK) {
        *ret_gpu = gpus[0];
        return OK;
    }
    while (opened > 0) close_one(gpus[--opened]);
    return err;
}

/* ---- the table ---- */

static const struct gpu_table table = {
    .abi = GPU_ABI,
    .bytes = sizeof(struct gpu_table),
    .version = QUERN_VERSION,
    .kind = "cuda",
    .tile_rows_heads = TILE_ROWS_HEADS,
    .split_tokens = CUDA_SPLIT_TOKENS,
    .prefix_reads_min = CUDA_PREFIX_READS_MIN,
    .list = plugin_list,
    .open = plugin_open,
    .close = plugin_close,
    .prepare = plugin_prepare,
    .fill = plugin_fill,
    .recall = plugin_recall,
    .warm = plugin_warm,
    .tell = plugin_tell,
    .trial = plugin_trial,
    .submit = plugin_submit,
    .sample = plugin_sample,
    .wait = plugin_wait,
    .logits = plugin_logits,
    .run_op = plugin_run_op,
    .counters = plugin_counters_read,
};

const struct gpu_table *quern_gpu_table(void);
const struct gpu_table *quern_gpu_table(void) {
    return &table;
}
