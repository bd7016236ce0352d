/* SPDX-License-Identifier: Apache-2.0 */

/* Graphs of CUDA's runtime: a captured stream records the calls of kernels with copies of their
 * arguments, and a launch of the graph makes them in their order. launches.h for these calls: a
 * replay must make those of the recording, but with other arguments. */

#include "cuda_runtime_api.h"
#include "host_kernels.h"

#include "gpu/cuda/launches.h"
#include "gpu/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENT_BYTES 512

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

static struct recorded recorded_of(host_again *again, const void *call, size_t call_bytes,
                                   const void *more, size_t more_bytes) {
    struct recorded made = {.again = again, .has_more = more != NULL};
    assert(call_bytes <= ARGUMENT_BYTES && more_bytes <= ARGUMENT_BYTES);
    memcpy(made.call, call, call_bytes);
    if (more) memcpy(made.more, more, more_bytes);
    return made;
}

static void *grow(void *array, size_t count, size_t bytes) {
    void *grown = realloc(array, count * bytes);
    if (!grown) abort();
    return grown;
}

bool host_record_product(const struct CUstream_st *stream, host_again *again, const void *call,
                         size_t call_bytes) {
    assert(!replayed);
    host_launches_on(stream);
    if (!host_is_captured(stream)) return false;
    recording.calls = grow(recording.calls, recording.count + 1, sizeof *recording.calls);
    recording.calls[recording.count++] = recorded_of(again, call, call_bytes, NULL, 0);
    return true;
}

bool host_record(const struct CUstream_st *stream, host_again *again, const void *call,
                 size_t call_bytes, const void *more, size_t more_bytes) {
    if (replayed) {
        assert(stream && next < list->count);
        struct recorded *at = &replayed->graph.calls[list->nodes[next++].call];
        assert(at->again == again);
        *at = recorded_of(again, call, call_bytes, more, more_bytes);
        return true;
    }
    host_launches_on(stream);
    if (!host_is_captured(stream)) return false;
    assert(list);
    list->nodes = grow(list->nodes, list->count + 1, sizeof *list->nodes);
    list->nodes[list->count++].call = recording.count;
    recording.calls = grow(recording.calls, recording.count + 1, sizeof *recording.calls);
    recording.calls[recording.count++] = recorded_of(again, call, call_bytes, more, more_bytes);
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

/* Graphs that were started and wait for those of other ranks. */
static struct CUgraphExec_st *started[GPU_RANKS_MAX];
static int started_on[GPU_RANKS_MAX]; /* GPUs */
static uint32_t started_count;

static uint32_t ranks_of(const struct CUgraph_st *graph) {
    uint32_t ranks = 1;
    for (size_t i = 0; i < graph->count && ranks == 1; i++)
        ranks = host_ranks_of(graph->calls[i].again, graph->calls[i].call);
    return ranks;
}

/* Call by call, as the ranks' kernels wait for each other. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    struct error error = {0};
    if (!exec || !stream || captured || replayed) return cudaErrorInvalidValue;
    const int here = host_card();
    started_on[started_count] = here;
    started[started_count++] = exec;
    if (started_count < ranks_of(&exec->graph)) return cudaSuccess;
    const uint32_t count = started_count;
    started_count = 0;
    for (size_t i = 0; i < exec->graph.count; i++)
        for (uint32_t k = 0; k < count; k++) {
            assert(started[k]->graph.count == exec->graph.count);
            const struct recorded *at = &started[k]->graph.calls[i];
            (void)cudaSetDevice(started_on[k]);
            if (at->again(at->call, at->has_more ? at->more : NULL, &error) != OK)
                return cudaErrorInvalidValue;
        }
    return cudaSetDevice(here);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    free(exec->graph.calls);
    free(exec);
    return cudaSuccess;
}
