/* SPDX-License-Identifier: Apache-2.0 */

/* Graphs of CUDA's runtime: a captured stream records the calls of kernels with copies of their
 * arguments, and a launch of the graph makes them in their order. */

#include "cuda_runtime_api.h"
#include "host_kernels.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENT_BYTES 256

struct recorded {
    host_again *again;
    bool has_more;
    _Alignas(16) char call[ARGUMENT_BYTES];
    _Alignas(16) char more[ARGUMENT_BYTES];
};
struct CUgraph_st {
    struct recorded *calls;
    size_t count;
};
struct CUgraphExec_st {
    struct CUgraph_st graph;
};

static const struct CUstream_st *captured;
static struct CUgraph_st recording;

bool host_is_captured(const struct CUstream_st *stream) {
    return stream && stream == captured;
}

bool host_record(const struct CUstream_st *stream, host_again *again, const void *call,
                 size_t call_bytes, const void *more, size_t more_bytes) {
    if (!host_is_captured(stream)) return false;
    assert(call_bytes <= ARGUMENT_BYTES && more_bytes <= ARGUMENT_BYTES);
    struct recorded *grown =
        realloc(recording.calls, (recording.count + 1) * sizeof *recording.calls);
    if (!grown) abort();
    recording.calls = grown;
    struct recorded *at = &recording.calls[recording.count++];
    *at = (struct recorded){.again = again, .has_more = more != NULL};
    memcpy(at->call, call, call_bytes);
    if (more) memcpy(at->more, more, more_bytes);
    return true;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)mode;
#ifdef HOST_NO_GRAPHS
    return cudaErrorInvalidValue;
#endif
    assert(stream && !captured);
    captured = stream;
    recording = (struct CUgraph_st){0};
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret_graph) {
    if (!host_is_captured(stream)) return cudaErrorInvalidValue;
    captured = NULL;
    *ret_graph = malloc(sizeof **ret_graph);
    if (!*ret_graph) abort();
    **ret_graph = recording;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    free(graph->calls);
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret_exec, cudaGraph_t graph,
                                 unsigned long long flags) {
    (void)flags;
    struct CUgraphExec_st *exec = malloc(sizeof *exec);
    const size_t bytes = graph->count * sizeof *graph->calls;
    if (!exec) abort();
    exec->graph = (struct CUgraph_st){malloc(bytes), graph->count};
    if (!exec->graph.calls) abort();
    memcpy(exec->graph.calls, graph->calls, bytes);
    *ret_exec = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    return exec && stream && !captured ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    struct error error = {0};
    if (!exec || !stream || captured) return cudaErrorInvalidValue;
    for (size_t i = 0; i < exec->graph.count; i++) {
        const struct recorded *at = &exec->graph.calls[i];
        if (at->again(at->call, at->has_more ? at->more : NULL, &error) != OK)
            return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    free(exec->graph.calls);
    free(exec);
    return cudaSuccess;
}
