/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_runtime_api.h"
#include "host_faults.h"
#include "host_kernels.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CARD_BYTES ((size_t)1 << 30)
#define FULL_BYTES ((size_t)12 << 20) /* free on a GPU that others fill */
#define POISON 0xff                   /* NaN in every float format */
#define TILE_BYTES ((size_t)2 << 20)

/* The pieces of GPUs' memory: each open takes one. */
#define PIECES_MAX 8
static struct piece {
    char *at;
    size_t bytes;
    int card;
} pieces[PIECES_MAX];
static int here;   /* the GPU that calls are for */
static int things; /* streams and events need an address each */
/* The errors that kernels left for the calls that wait for them. They stay, as a GPU's do. */
static cudaError_t faults[HOST_CARDS_MAX];
static const uint32_t *given_up; /* host_waits_while */

/* A captured stream takes kernels alone. */
static bool is_open(cudaStream_t stream) {
    return stream && !host_is_captured(stream);
}

/* The piece that has an address; NULL: memory of the host. */
static const struct piece *piece_of(const void *at) {
    for (int i = 0; i < PIECES_MAX; i++)
        if (pieces[i].at && (const char *)at >= pieces[i].at &&
            (const char *)at < pieces[i].at + pieces[i].bytes)
            return &pieces[i];
    return NULL;
}

static bool is_of_card(const void *at) {
    return piece_of(at) != NULL;
}

static size_t taken_bytes(void) {
    size_t bytes = 0;
    for (int i = 0; i < PIECES_MAX; i++)
        if (pieces[i].at && pieces[i].card == here) bytes += pieces[i].bytes;
    return bytes;
}

/* The error of a kernel's access that the GPU cannot make. */
static void set_fault(void) {
    if (host_has_fault(here))
        faults[here] = host_fault_is("ecc")      ? cudaErrorECCUncorrectable
                       : host_fault_is("launch") ? cudaErrorLaunchFailure
                                                 : cudaErrorIllegalAddress;
}

bool host_can_store(uintptr_t at) {
    const bool is_well = is_of_card((const void *)at);
    if (!is_well) set_fault();
    return is_well;
}

/* Whether GPUs do not reach each other's memory. */
static bool are_apart(void) {
    return host_machine_is("apart") || host_machine_is("unmapped");
}

bool host_can_read(const void *at) {
    const struct piece *piece = piece_of(at);
    const bool is_well = !piece || piece->card == here || !are_apart();
    if (!is_well) set_fault();
    return is_well;
}

void host_waits_while(const uint32_t *word) {
    given_up = word;
}

/* How all that the GPU has to do ends. */
static cudaError_t end_of_card(void) {
    bool is_lost = false;
    if (faults[here] != cudaSuccess) return faults[here];
    for (int i = 0; i < HOST_CARDS_MAX; i++) is_lost |= faults[i] != cudaSuccess;
    return is_lost && (!given_up || *given_up == 0) ? cudaErrorNotReady : cudaSuccess;
}

/* A call that returns when the GPU has come to its end. */
static cudaError_t wait_for_card(void) {
    const cudaError_t code = end_of_card();
    if (code != cudaErrorNotReady) return code;
    (void)fprintf(stderr, "host: a wait for GPU %d, whose kernels wait for a lost one\n", here);
    abort();
}

const char *cudaGetErrorString(cudaError_t code) {
    switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoKernelImageForDevice:
        return "no kernel image is available for execution on the device";
    case cudaErrorECCUncorrectable: return "uncorrectable ECC error encountered";
    case cudaErrorJitCompilerNotFound: return "PTX JIT compiler library not found";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorNotReady: return "device not ready";
    default: return "invalid argument";
    }
}
const char *cudaGetErrorName(cudaError_t code) {
    switch (code) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    case cudaErrorECCUncorrectable: return "cudaErrorECCUncorrectable";
    case cudaErrorJitCompilerNotFound: return "cudaErrorJitCompilerNotFound";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    default: return "cudaErrorInvalidValue";
    }
}
cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *ret_count) {
    *ret_count = 0;
    if (host_machine_is("no-driver") || host_machine_is("old-driver"))
        return cudaErrorInsufficientDriver;
    if (host_machine_is("no-card")) return cudaErrorNoDevice;
    *ret_count = host_cards();
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *ret_version) {
    *ret_version = host_machine_is("no-driver") ? 0 : host_machine_is("old-driver") ? 11040 : 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *ret_version) {
    *ret_version = 13000;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret_card, int gpu) {
    (void)gpu;
    *ret_card = (struct cudaDeviceProp){.name = "host",
                                        .major = host_machine_is("old-card") ? 6 : 9,
                                        .multiProcessorCount = 8,
                                        .totalGlobalMem = CARD_BYTES};
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *ret_value, enum cudaDeviceAttr attribute, int gpu) {
    (void)attribute;
    (void)gpu;
    *ret_value = 8;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *ret_id, int bytes, int gpu) {
    (void)gpu;
    (void)snprintf(ret_id, (size_t)bytes, "0000:01:00.0");
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int gpu) {
    if (gpu < 0 || gpu >= host_cards()) return cudaErrorInvalidValue;
    here = gpu;
    return cudaSuccess;
}
int host_card(void) {
    return here;
}
cudaError_t cudaDeviceCanAccessPeer(int *ret_can, int gpu, int peer) {
    *ret_can = gpu != peer && !host_machine_is("apart");
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    static bool is_enabled[HOST_CARDS_MAX][HOST_CARDS_MAX];
    if (flags != 0 || peer == here || peer >= host_cards() || host_machine_is("unmapped"))
        return cudaErrorInvalidValue;
    if (is_enabled[here][peer]) return cudaErrorPeerAccessAlreadyEnabled;
    is_enabled[here][peer] = true;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total) {
    *ret_total = CARD_BYTES;
    *ret_free = host_was_full() ? FULL_BYTES : CARD_BYTES - CARD_BYTES / 10 - taken_bytes();
    return cudaSuccess;
}
/* A file of one tile of poison, or -1. */
static int poison_file(void) {
    static char tile[TILE_BYTES];
    const int file = memfd_create("poison", MFD_CLOEXEC);
    memset(tile, POISON, sizeof tile);
    if (file >= 0 && write(file, tile, sizeof tile) == (ssize_t)sizeof tile) return file;
    if (file >= 0) (void)close(file);
    return -1;
}

/* Poison in `bytes`, or NULL: the tile of a file, again and again, so that a page takes memory and
 * time once somebody writes to it. */
static char *poisoned(size_t bytes) {
    const int file = poison_file();
    char *at =
        file < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool is_whole = at != MAP_FAILED;
    for (size_t done = 0; is_whole && done < bytes; done += TILE_BYTES) {
        const size_t part = bytes - done < TILE_BYTES ? bytes - done : TILE_BYTES;
        is_whole = mmap(at + done, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file,
                        0) != MAP_FAILED;
    }
    if (at != MAP_FAILED && !is_whole) (void)munmap(at, bytes);
    if (file >= 0) (void)close(file);
    return is_whole ? at : NULL;
}

cudaError_t cudaMalloc(void **ret_at, size_t bytes) {
    int i = 0;
    while (i < PIECES_MAX && pieces[i].at) i++;
    assert(i < PIECES_MAX);
    *ret_at = pieces[i].at = poisoned(bytes);
    if (!*ret_at) return cudaErrorMemoryAllocation;
    pieces[i].bytes = bytes, pieces[i].card = here;
    return cudaSuccess;
}
cudaError_t cudaFree(void *at) {
    if (!at) return host_is_full("context") ? cudaErrorMemoryAllocation : cudaSuccess;
    for (int i = 0; i < PIECES_MAX; i++)
        if (pieces[i].at == at) {
            (void)munmap(at, pieces[i].bytes);
            pieces[i].at = NULL;
            return cudaSuccess;
        }
    abort(); /* nobody took it */
}
cudaError_t cudaHostAlloc(void **ret_at, size_t bytes, unsigned flags) {
    (void)flags;
    *ret_at = malloc(bytes);
    return *ret_at ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void *at) {
    if (at == given_up) given_up = NULL;
    free(at);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    bool to_card = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_card = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (bytes == 0) return cudaSuccess;
    if (kind != cudaMemcpyDefault && (is_of_card(to) != to_card || is_of_card(from) != from_card))
        return cudaErrorInvalidValue;
    memmove(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return is_open(stream) ? cudaMemcpy(to, from, bytes, kind) : cudaErrorInvalidValue;
}
cudaError_t cudaMemcpy2D(void *to, size_t to_stride, const void *from, size_t from_stride,
                         size_t width, size_t height, enum cudaMemcpyKind kind) {
    cudaError_t code = cudaSuccess;
    for (size_t i = 0; i < height && code == cudaSuccess; i++)
        code = cudaMemcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, width,
                          kind);
    return code;
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    return is_open(stream) ? cudaMemcpy2D(to, to_stride, from, from_stride, width, height, kind)
                           : cudaErrorInvalidValue;
}
cudaError_t cudaMemset(void *at, int value, size_t bytes) {
    if (bytes > 0 && !is_of_card(at)) return cudaErrorInvalidValue;
    memset(at, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
    return is_open(stream) ? cudaMemset(at, value, bytes) : cudaErrorInvalidValue;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags) {
    (void)flags;
    if (host_is_full("stream")) return cudaErrorMemoryAllocation;
    *ret_stream = malloc(1);
    things++;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    host_forget_waits(stream);
    free(stream);
    things--;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return is_open(stream) ? wait_for_card() : cudaErrorInvalidValue;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return is_open(stream) ? end_of_card() : cudaErrorInvalidValue;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    return is_open(stream) && event ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaDeviceSynchronize(void) {
    return wait_for_card();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned flags) {
    (void)flags;
    *ret_event = malloc(1);
    things++;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *ret_event) {
    return cudaEventCreateWithFlags(ret_event, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    things--;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return is_open(stream) && event ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return event ? wait_for_card() : cudaErrorInvalidValue;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return event ? end_of_card() : cudaErrorInvalidValue;
}
cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t from, cudaEvent_t to) {
    *ret_ms = 0.001f;
    return from && to ? cudaSuccess : cudaErrorInvalidValue;
}
