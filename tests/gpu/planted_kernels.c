/* SPDX-License-Identifier: Apache-2.0 */
#include "planted_kernels.h"

#include <assert.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define COUNT_OF_MULTIPROCESSORS 16 /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
#define STREAM_NON_BLOCKING 1u      /* CU_STREAM_NON_BLOCKING */
#define BLOCK_THREADS 1024u
#define BLOCKS_EACH 2u /* blocks for a multiprocessor, which has room for at most 2,048 threads */

static const char code[] = ".version 7.0\n"
                           ".target sm_80\n"
                           ".address_size 64\n"
                           ".visible .entry endless()\n"
                           "{\n"
                           "again:\n"
                           "    bra again;\n"
                           "}\n"
                           ".visible .entry outside()\n"
                           "{\n"
                           "    .reg .u64 %at;\n"
                           "    .reg .u32 %value;\n"
                           "    mov.u64 %at, 64;\n"
                           "    mov.u32 %value, 1;\n"
                           "    st.global.u32 [%at], %value;\n"
                           "    ret;\n"
                           "}\n";

/* As cuda.h declares them: 0 is success. */
static struct {
    int (*context)(void **ret_context);
    int (*take_context)(void *context);
    int (*card)(int *ret_card, int index);
    int (*retain)(void **ret_context, int card);
    int (*attribute)(int *ret_value, int attribute, int card);
    int (*load)(void **ret_module, const void *image);
    int (*find)(void **ret_function, void *module, const char *name);
    int (*make_stream)(void **ret_stream, unsigned flags);
    int (*launch)(void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                  unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                  void *stream, void **arguments, void **extra);
} driver;
static void *context, *endless, *outside, *stream;
static int multiprocessors;

/* ISO C has no conversion from an object's address to a function's. */
static bool find(void *library, const char *name, void *ret_function) {
    void *symbol = dlsym(library, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol;
}

static bool load_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library && find(library, "cuCtxGetCurrent", &driver.context) &&
           find(library, "cuCtxSetCurrent", &driver.take_context) &&
           find(library, "cuDeviceGet", &driver.card) &&
           find(library, "cuDevicePrimaryCtxRetain", &driver.retain) &&
           find(library, "cuDeviceGetAttribute", &driver.attribute) &&
           find(library, "cuModuleLoadData", &driver.load) &&
           find(library, "cuModuleGetFunction", &driver.find) &&
           find(library, "cuStreamCreate", &driver.make_stream) &&
           find(library, "cuLaunchKernel", &driver.launch);
}

static bool load_kernels(int card) {
    void *module;
    return driver.attribute(&multiprocessors, COUNT_OF_MULTIPROCESSORS, card) == 0 &&
           driver.load(&module, code) == 0 && driver.find(&endless, module, "endless") == 0 &&
           driver.find(&outside, module, "outside") == 0 &&
           driver.make_stream(&stream, STREAM_NON_BLOCKING) == 0;
}

bool planted_kernels_load(uint32_t gpu) {
    void *before = NULL;
    int card;
    if (!load_driver() || driver.context(&before) != 0 || driver.card(&card, (int)gpu) != 0 ||
        driver.retain(&context, card) != 0 || driver.take_context(context) != 0)
        return false;
    const bool is_loaded = load_kernels(card);
    return driver.take_context(before) == 0 && is_loaded;
}

static void start(void *function, unsigned blocks, unsigned threads) {
    void *before = NULL;
    assert(function);
    int code_told = driver.context(&before);
    if (code_told == 0) code_told = driver.take_context(context);
    assert(code_told == 0);
    code_told = driver.launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, NULL, NULL);
    assert(code_told == 0);
    code_told = driver.take_context(before);
    assert(code_told == 0);
}

void endless_kernel_start(void) {
    start(endless, (unsigned)multiprocessors * BLOCKS_EACH, BLOCK_THREADS);
}

void outside_kernel_start(void) {
    start(outside, 1, 1);
}
