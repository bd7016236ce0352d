/* SPDX-License-Identifier: Apache-2.0 */

/* Graphs of CUDA's runtime: a captured stream records the calls of kernels with copies of their
 * arguments, and a launch of the graph queues them in their order. launches.h for these calls: a
 * replay must make those of the recording, but with other arguments. */

#include "cuda_runtime_api.h"
#include "host_kernels.h"
#include "host_streams.h"

#include "gpu/cuda/launches.h"
#include "gpu/cuda/reduce.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct CUgraph_st {
    struct host_call *calls;
    size_t count;
};
struct CUgraphExec_st {
    struct CUgraph_st graph;
};

/* A kernel of our own. */
struct launch_node {
    size_t call;
};

static const struct CUstream_st *captured;
static struct CUgraph_st recording;
static struct launches *list;           /* that is recorded or replayed */
static struct CUgraphExec_st *replayed; /* NULL: it is recorded */
static uint32_t next;

bool host_is_captured(const struct CUstream_st *stream) {
    return stream && stream == captured;
}

bool host_refuses_changes(void) {
#ifdef HOST_NO_CHANGES
    return replayed != NULL;
#else
    return false;
#endif
}

/* ---- calls ---- */

static void *grow(void *array, size_t count, size_t bytes) {
    void *grown = realloc(array, count * bytes);
    if (!grown) abort();
    return grown;
}

static void add_call(const struct host_call *call) {
    recording.calls = grow(recording.calls, recording.count + 1, sizeof *recording.calls);
    recording.calls[recording.count++] = *call;
}

bool host_record_product(const struct CUstream_st *stream, host_again *again, const void *call,
                         size_t call_bytes) {
    if (!stream) return false;
    assert(!replayed);
    const struct host_call made = host_call_of(again, call, call_bytes, NULL, 0);
    host_launches_on(stream);
    if (host_is_captured(stream))
        add_call(&made);
    else
        host_queue((struct CUstream_st *)(uintptr_t)stream, &made, 1);
    return true;
}

bool host_record(const struct CUstream_st *stream, host_again *again, const void *call,
                 size_t call_bytes, const void *more, size_t more_bytes) {
    if (!stream) return false;
    const struct host_call made = host_call_of(again, call, call_bytes, more, more_bytes);
    if (replayed) {
        assert(next < list->count);
        struct host_call *at = &replayed->graph.calls[list->nodes[next++].call];
        assert(at->again == again);
        *at = made;
        return true;
    }
    host_launches_on(stream);
    if (!host_is_captured(stream)) {
        const struct cuda_meeting *meeting = host_meeting_of(again, call);
        if (meeting) host_meets_on(stream, meeting->ranks);
        host_queue((struct CUstream_st *)(uintptr_t)stream, &made, 1);
        return true;
    }
    assert(list);
    list->nodes = grow(list->nodes, list->count + 1, sizeof *list->nodes);
    list->nodes[list->count++].call = recording.count;
    add_call(&made);
    return true;
}

void launches_record(struct launches *recorded) {
    assert(!list && recorded->count == 0);
    list = recorded;
}

void launches_replay(struct launches *recorded, struct CUgraphExec_st *exec) {
    assert(!list && exec);
    list = recorded;
    replayed = exec;
    next = 0;
}

bool launches_end(void) {
    const bool is_whole = !replayed || next == list->count;
    list = NULL;
    replayed = NULL;
    return is_whole;
}

void launches_free(struct launches *recorded) {
    free(recorded->nodes);
    *recorded = (struct launches){0};
}

/* ---- the runtime ---- */

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

/* A start keeps the arguments of now. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (!exec || !stream || captured || replayed) return cudaErrorInvalidValue;
    host_queue(stream, exec->graph.calls, exec->graph.count);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    free(exec->graph.calls);
    free(exec);
    return cudaSuccess;
}
