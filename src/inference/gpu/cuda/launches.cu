/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/launches.h"

#include "gpu/cuda/dependent.cuh"

#include <assert.h>
#include <stdlib.h>

#define ROOM_LEAST 256u /* nodes; a model of 36 layers has some 290 */

struct launch_node {
    cudaGraphNode_t node;
    bool is_off;
};

/* The recording or replay under way. */
static struct {
    struct launches *list; /* NULL: none */
    cudaGraphExec_t exec;  /* NULL: a recording */
    uint32_t next;         /* node of a replay */
} now;

void launches_record(struct launches *list) {
    assert(!now.list && list->count == 0);
    now = {list, NULL, 0};
}

void launches_replay(struct launches *list, struct CUgraphExec_st *exec) {
    assert(!now.list && exec);
    now = {list, exec, 0};
}

bool launches_end(void) {
    const bool is_whole = !now.exec || now.next == now.list->count;
    now = {NULL, NULL, 0};
    return is_whole;
}

void launches_free(struct launches *list) {
    free(list->nodes);
    *list = {NULL, 0, 0};
}

/* The node that the stream's capture made last. */
static cudaError_t last_node(cudaStream_t stream, cudaGraphNode_t *ret_node) {
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t *nodes = NULL;
    size_t count = 0;
#if CUDART_VERSION >= 13000
    cudaError_t code = cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, NULL, &count);
#else
    cudaError_t code = cudaStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &nodes, &count);
#endif
    if (code != cudaSuccess) return code;
    if (status != cudaStreamCaptureStatusActive || count != 1) return cudaErrorInvalidValue;
    *ret_node = nodes[0];
    return cudaSuccess;
}

static cudaError_t note(cudaStream_t stream) {
    struct launches *list = now.list;
    cudaGraphNode_t node;
    cudaError_t code = last_node(stream, &node);
    if (code != cudaSuccess) return code;
    if (list->count == list->room) {
        const uint32_t room = list->room > 0 ? 2 * list->room : ROOM_LEAST;
        void *grown = realloc(list->nodes, room * sizeof *list->nodes);
        if (!grown) return cudaErrorMemoryAllocation;
        list->nodes = (struct launch_node *)grown;
        list->room = room;
    }
    list->nodes[list->count++] = {node, false};
    return cudaSuccess;
}

static cudaError_t set_on(struct launch_node *node, bool is_on) {
    if (node->is_off == !is_on) return cudaSuccess;
    cudaError_t code = cudaGraphNodeSetEnabled(now.exec, node->node, is_on);
    if (code == cudaSuccess) node->is_off = !is_on;
    return code;
}

static cudaError_t replay(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) {
    if (now.next == now.list->count) return cudaErrorInvalidValue;
    struct launch_node *node = &now.list->nodes[now.next++];
    cudaKernelNodeParams params = {};
    if (config->gridDim.x == 0) return set_on(node, false);
    params.func = (void *)kernel;
    params.gridDim = config->gridDim;
    params.blockDim = config->blockDim;
    params.sharedMemBytes = (unsigned)config->dynamicSmemBytes;
    params.kernelParams = arguments;
    cudaError_t code = cudaGraphExecKernelNodeSetParams(now.exec, node->node, &params);
    return code == cudaSuccess ? set_on(node, true) : code;
}

cudaError_t launches_take(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) {
    if (now.exec) return replay(config, kernel, arguments);
    if (config->gridDim.x == 0) return cudaSuccess;
    cudaError_t code = cudaLaunchKernelExC(config, kernel, arguments);
    return code == cudaSuccess && now.list ? note(config->stream) : code;
}
