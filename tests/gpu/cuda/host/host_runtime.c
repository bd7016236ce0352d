/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_runtime_api.h"
#include "host_faults.h"
#include "host_kernels.h"
#include "host_streams.h"

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
static int here; /* the GPU that calls are for */
/* Memory of the host that the GPU reaches. */
static struct pinned {
    char *at;
    size_t bytes;
} * pinned; /* (pinned_count) */
static size_t pinned_count;
/* The errors that kernels left for the calls that wait for them. They stay, as a GPU's do. */
static cudaError_t faults[HOST_CARDS_MAX];
static const uint32_t *given_up; /* host_waits_while */

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

cudaError_t host_look(bool is_at_end) {
    const cudaError_t code = end_of_card();
    return code == cudaSuccess && !is_at_end ? cudaErrorNotReady : code;
}

cudaError_t host_wait(bool is_at_end) {
    const cudaError_t code = host_look(is_at_end);
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
    (void)host_run_all();
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
    struct pinned *more = realloc(pinned, (pinned_count + 1) * sizeof *pinned);
    if (!more) return cudaErrorMemoryAllocation;
    pinned = more;
    *ret_at = malloc(bytes);
    if (!*ret_at) return cudaErrorMemoryAllocation;
    pinned[pinned_count++] = (struct pinned){*ret_at, bytes};
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *at) {
    (void)host_run_all();
    if (at == given_up) given_up = NULL;
    for (size_t i = 0; i < pinned_count; i++)
        if (pinned[i].at == at) pinned[i] = pinned[--pinned_count];
    if (pinned_count == 0) {
        free(pinned);
        pinned = NULL;
    }
    free(at);
    return cudaSuccess;
}
bool host_can_copy(const void *to, const void *from, enum cudaMemcpyKind kind) {
    const bool to_card = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_card = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return kind == cudaMemcpyDefault ||
           (is_of_card(to) == to_card && is_of_card(from) == from_card);
}
bool host_is_reached(const void *at) {
    for (size_t i = 0; i < pinned_count; i++)
        if ((const char *)at >= pinned[i].at && (const char *)at < pinned[i].at + pinned[i].bytes)
            return true;
    return is_of_card(at);
}
/* Behind the plain calls before it alone, as streams that were made non-blocking have it. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    if (bytes == 0) return cudaSuccess;
    if (!host_can_copy(to, from, kind)) return cudaErrorInvalidValue;
    (void)host_run_plain();
    memmove(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpy2D(void *to, size_t to_stride, const void *from, size_t from_stride,
                         size_t width, size_t height, enum cudaMemcpyKind kind) {
    cudaError_t code = cudaSuccess;
    for (size_t i = 0; i < height && code == cudaSuccess; i++)
        code = cudaMemcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, width,
                          kind);
    return code;
}
cudaError_t cudaMemset(void *at, int value, size_t bytes) {
    if (bytes > 0 && !is_of_card(at)) return cudaErrorInvalidValue;
    host_queue_set(at, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    return host_wait(host_run_card());
}
