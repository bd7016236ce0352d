/* SPDX-License-Identifier: Apache-2.0 */

/* stub_plugin: a plugin that computes nothing. Each build of it stands for one situation:
 *
 *   STUB_GOOD     three cards; the second one is refused, the third has the most free memory
 *   STUB_ABI      another interface
 *   STUB_BYTES    another size of the table
 *   STUB_VERSION  another version
 *   STUB_SYMBOL   no function that gives the table
 *   STUB_DRIVER   no driver
 *   STUB_EMPTY    a driver without cards
 *   STUB_REFUSED  one card, which is too old
 *   STUB_LIBRARY  one card, and no library for products when it is opened
 *   STUB_FULL     one card, whose memory others hold
 *   STUB_FREED    the same, until it is listed for the third time
 *   STUB_CUDA     one card of the kind that needs cuBLASLt */

#include "kernels/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)

#ifdef STUB_ABI
#define ABI (DEVICE_ABI + 1)
#else
#define ABI DEVICE_ABI
#endif
#ifdef STUB_BYTES
#define BYTES (sizeof(struct device_table) - 8)
#else
#define BYTES sizeof(struct device_table)
#endif
#ifdef STUB_VERSION
#define VERSION "0.0.1"
#else
#define VERSION QUERN_VERSION
#endif
#ifdef STUB_SYMBOL
#define GIVE another_name
#else
#define GIVE quern_device_table
#endif

#ifdef STUB_CUDA
#define KIND "cuda"
#else
#define KIND "stub"
#endif

struct device {
    pthread_t thread;
};

static enum err list(struct device_info *ret_infos, uint32_t room, uint32_t *ret_count,
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
    ret_infos[0] = (struct device_info){.name = "Stub 0",
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
static enum err open_card(struct device **ret_device, const struct device_options *options,
                          struct error *error) {
    (void)options;
#if defined STUB_LIBRARY
    (void)ret_device;
    return err_set(error, ERR_UNAVAILABLE, "libcublasLt.so cannot be loaded; install cuBLAS");
#elif defined STUB_FULL
    (void)ret_device;
    return err_set(error, ERR_LIMIT, "%llu MiB are wanted, and 100 MiB are free",
                   (unsigned long long)(options->memory_bytes >> 20));
#else
#if defined STUB_FREED
    if (options->memory_bytes < GIB)
        return err_set(error, ERR_LIMIT, "%llu MiB are too few",
                       (unsigned long long)(options->memory_bytes >> 20));
#endif
    (void)error;
    struct device *device = calloc(1, sizeof *device);
    if (!device || pthread_create(&device->thread, NULL, rest, NULL) != 0) abort();
    pthread_setname_np(device->thread, "stub-driver");
    pthread_detach(device->thread);
    *ret_device = device;
    return OK;
#endif
}

static enum err prepare(struct device *device, const struct device_program *program,
                        const struct device_limits *limits, struct device_ledger *ret_ledger,
                        struct error *error) {
    (void)device, (void)program, (void)limits, (void)ret_ledger;
    return err_set(error, ERR_INVALID, "a stub has no kernels");
}

static void close_card(struct device *device) {
    free(device);
}

const struct device_table *GIVE(void);
const struct device_table *GIVE(void) {
    static const struct device_table table = {.abi = ABI,
                                              .bytes = BYTES,
                                              .version = VERSION,
                                              .kind = KIND,
                                              .list = list,
                                              .open = open_card,
                                              .close = close_card,
                                              .prepare = prepare};
    return &table;
}
