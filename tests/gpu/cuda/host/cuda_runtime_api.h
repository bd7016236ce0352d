/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The calls of CUDA's runtime that the plugin's host code makes, over memory of the host, so that
 * the host code runs without a GPU. A stream queues what it is asked for, which happens later in a
 * drawn order (host_streams.h), or records it while it is captured; it then takes kernels alone.
 * Memory of the "GPU" is poisoned when it is taken, and a copy checks its direction. A kernel's
 * access outside of it is told as a GPU tells it: not by the kernel's call but by each wait from
 * then on; other GPUs are never ready then, as those whose kernels wait for the lost one, until the
 * host has given up (gpu/cuda/reduce.h), and a blocking wait for one of them ends the process.
 * QUERN_HOST_CARDS GPUs, by default one, that reach each other's memory unless QUERN_HOST_MACHINE
 * is "apart", or "unmapped": then the driver says that they can and refuses. A kernel that reads it
 * all the same is told as one that stores outside.
 *
 * Thread: one. */

#include <stddef.h>

typedef enum {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorJitCompilerNotFound = 221,
    cudaErrorNotReady = 600,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
} cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrComputeCapabilityMajor = 75 };
#define cudaStreamNonBlocking 1u
#define cudaHostAllocPortable 1u
#define cudaHostAllocMapped 2u
#define cudaEventBlockingSync 1u
#define cudaEventDisableTiming 2u

struct cudaDeviceProp {
    char name[256];
    struct {
        char bytes[16];
    } uuid;
    int major, minor, multiProcessorCount;
    size_t totalGlobalMem;
    int pciBusID, pciDeviceID, pciDomainID;
};

const char *cudaGetErrorString(cudaError_t code);
const char *cudaGetErrorName(cudaError_t code);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceCount(int *ret_count);
cudaError_t cudaDriverGetVersion(int *ret_version);
cudaError_t cudaRuntimeGetVersion(int *ret_version);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret_card, int gpu);
cudaError_t cudaDeviceGetAttribute(int *ret_value, enum cudaDeviceAttr attribute, int gpu);
cudaError_t cudaDeviceGetPCIBusId(char *ret_id, int bytes, int gpu);
cudaError_t cudaSetDevice(int gpu);
cudaError_t cudaDeviceCanAccessPeer(int *ret_can, int gpu, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total);
cudaError_t cudaMalloc(void **ret_at, size_t bytes);
cudaError_t cudaFree(void *at);
cudaError_t cudaHostAlloc(void **ret_at, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *at);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2D(void *to, size_t to_stride, const void *from, size_t from_stride,
                         size_t width, size_t height, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemset(void *at, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaEventCreate(cudaEvent_t *ret_event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret_graph);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret_exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
