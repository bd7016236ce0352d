/* SPDX-License-Identifier: Apache-2.0 */

/* stub_plugin: a plugin that computes nothing. Each build of it stands for one situation:
 *
 *   STUB_GOOD     three GPUs; the second one is refused, the third has the most free memory
 *   STUB_ABI      another interface
 *   STUB_BYTES    another size of the table
 *   STUB_VERSION  another version
 *   STUB_SYMBOL   no function that gives the table
 *   STUB_DRIVER   no driver
 *   STUB_EMPTY    a driver without GPUs
 *   STUB_REFUSED  one GPU, which is too old
 *   STUB_LIBRARY  one GPU, and no library for products when it is opened
 *   STUB_FULL     one GPU, whose memory others hold
 *   STUB_FREED    the same, until it is listed for the third time
 *   STUB_CUDA     one GPU of the kind that needs cuBLASLt */

#include "gpu/table.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)

#ifdef STUB_ABI
#define ABI (GPU_ABI + 1)
#else
#define ABI GPU_ABI
#endif
#ifdef STUB_BYTES
#define BYTES (sizeof(struct gpu_table) - 8)
#else
#define BYTES sizeof(struct gpu_table)
#endif
#ifdef STUB_VERSION
#define VERSION "0.0.1"
#else
#define VERSION QUERN_VERSION
#endif
#ifdef STUB_SYMBOL
#define GIVE another_name
#else
#define GIVE quern_gpu_table
#endif

#ifdef STUB_CUDA
#define KIND "cuda"
#else
#define KIND "stub"
#endif

struct gpu {
    pthread_t thread;
};

static enum err list(struct gpu_info *ret_infos, uint32_t room, uint32_t *ret_count,
                     struct error *error) {
    (void)room;
    (void)ret_infos;
    *ret_count = 0;
#if defined STUB_DRIVER
    return err_set(error, ERR_UNAVAILABLE,
                   "libcuda.so.1 cannot be loaded; install NVIDIA's driver");
#elif defined STUB_EMPTY
    (void)error;
    return OK;
#else
    (void)error;
    ret_infos[0] = (struct gpu_info){.name = "Stub 0",
                                     .uuid = "GPU-aaaa-0",
                                     .compute = 89,
                                     .memory_bytes = 16 * GIB,
                                     .free_bytes = 12 * GIB};
    *ret_count = 1;
#if defined STUB_FREED
    static int lists;
    if (++lists < 3) ret_infos[0].free_bytes = GIB / 8;
#elif defined STUB_REFUSED
    snprintf(ret_infos[0].refusal, sizeof ret_infos[0].refusal,
             "it has compute capability 6.1, and quern needs 8.0");
#elif defined STUB_GOOD
    ret_infos[1] = ret_infos[2] = ret_infos[0];
    ret_infos[1].index = 1;
    ret_infos[2].index = 2;
    snprintf(ret_infos[1].name, sizeof ret_infos[1].name, "Stub 1");
    snprintf(ret_infos[2].name, sizeof ret_infos[2].name, "Stub 2");
    snprintf(ret_infos[1].uuid, sizeof ret_infos[1].uuid, "GPU-bbbb-1");
    snprintf(ret_infos[2].uuid, sizeof ret_infos[2].uuid, "GPU-cccc-2");
    snprintf(ret_infos[1].refusal, sizeof ret_infos[1].refusal, "it is lost; restart the machine");
    ret_infos[2].free_bytes = 15 * GIB;
    *ret_count = 3;
#endif
    return OK;
#endif
}

#if !defined STUB_LIBRARY && !defined STUB_FULL
static void *rest(void *context) {
    (void)context;
    while (pause() != 0) {
    }
    return NULL;
}
#endif

/* As a driver does, it starts a thread that nobody ends. */
static enum err open_card(struct gpu **ret_gpu, const struct gpu_options *options,
                          struct error *error) {
    (void)options;
#if defined STUB_LIBRARY
    (void)ret_gpu;
    return err_set(error, ERR_UNAVAILABLE, "libcublasLt.so cannot be loaded; install cuBLAS");
#elif defined STUB_FULL
    (void)ret_gpu;
    return err_set(error, ERR_LIMIT, "%llu MiB are wanted, and 100 MiB are free",
                   (unsigned long long)(options->memory_bytes >> 20));
#else
#if defined STUB_FREED
    if (options->memory_bytes < GIB)
        return err_set(error, ERR_LIMIT, "%llu MiB are too few",
                       (unsigned long long)(options->memory_bytes >> 20));
#endif
    (void)error;
    struct gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu || pthread_create(&gpu->thread, NULL, rest, NULL) != 0) abort();
    pthread_setname_np(gpu->thread, "stub-driver");
    pthread_detach(gpu->thread);
    *ret_gpu = gpu;
    return OK;
#endif
}

static enum err prepare(struct gpu *gpu, const struct gpu_program *program,
                        const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                        struct error *error) {
    (void)gpu, (void)program, (void)limits, (void)ret_ledger;
    return err_set(error, ERR_INVALID, "a stub has no kernels");
}

static void close_card(struct gpu *gpu) {
    free(gpu);
}

const struct gpu_table *GIVE(void);
const struct gpu_table *GIVE(void) {
    static const struct gpu_table table = {.abi = ABI,
                                           .bytes = BYTES,
                                           .version = VERSION,
                                           .kind = KIND,
                                           .list = list,
                                           .open = open_card,
                                           .close = close_card,
                                           .prepare = prepare};
    return &table;
}
