/* SPDX-License-Identifier: Apache-2.0 */

/* plugin_graph: most operations of a step are started with one call of the driver instead of one
 * per kernel.
 *
 * The host needs 2 ms for the 430 launches of a step of Qwen3-4B, most of the time that the GPU
 * takes for few rows, and between launches the GPU waits (docs/internals/inference/gpu.md). `warm`
 * records the kernels of all operations before OP_KEEP as a graph. A step walks over its operations
 * as ever, but its launches give the graph's nodes their arguments and blocks (launches.h), which
 * takes 0.6 us each, and then starts the graph. So the GPU computes what it would without one.
 *
 * Kernels of products are the library's, and their arguments are the same in all steps of a bucket
 * of rows: there is a graph per bucket.
 *
 * OP_KEEP and the operations behind it, the attention of the last layer among them, are launched
 * one by one: their rows are those with logits, whose number has no bucket. */

#include "gpu/cuda/plugin_walk.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#define ROWS_MOST 2048u            /* most rows in a graph, if nobody asks for more */
#define GRAPH_BYTES_MAX (32 * MIB) /* GPU memory, half of what `open` leaves free */

/* ---- steps ---- */

static struct graph *graph_for(struct gpu *gpu, const struct flight *flight) {
    uint32_t index = 0;
    const uint32_t rows = flight->step.row_count;
    if (rows == 0 || flight->is_careful) return NULL; /* a graph has no place to wait in */
    if (flight->step.unfold.rows > 0) return NULL;    /* nor such launches */
    while (index < gpu->graph_count && gpu->graphs[index].rows < rows) index++;
    return index < gpu->graph_count ? &gpu->graphs[index] : NULL;
}

static void refuse(struct gpu *gpu, const char *what, const char *reason) {
    (void)cudaGetLastError(); /* which would be told by a later call */
    (void)snprintf(gpu->graph_refusal, sizeof gpu->graph_refusal, "%s: %.200s", what, reason);
}

/* Walks to OP_KEEP, the launches going to the graph's nodes. */
static enum err replay(struct walk *walk, struct graph *graph, struct error *error) {
    rank_use(walk->gpu);
    walk->is_replayed = true;
    launches_replay(&graph->launches, graph->exec);
    enum err err = walk_ops(walk, 1, 0, walk->gpu->keep_op, error);
    const bool is_whole = launches_end();
    assert(err != OK || is_whole);
    walk->is_replayed = false;
    return err;
}

/* Gives the graphs of all ranks what the step has. False: nothing was started. */
static bool replay_all(struct walk *walks, struct graph **graphs, uint32_t count) {
    struct error refused = {0};
    for (uint32_t i = 0; i < count; i++)
        if (replay(&walks[i], graphs[i], &refused) != OK) {
            /* The driver cannot change its graphs, or the step would fail as well. */
            refuse(walks[0].gpu, "a graph is not changed", refused.text);
            for (uint32_t k = 0; k < count; k++) graphs_free(walks[k].gpu);
            return false;
        }
    return true;
}

enum err graph_run(struct gpu *gpu, struct flight *flight, struct error *error) {
    struct graph *graphs[GPU_RANKS_MAX];
    struct walk walks[GPU_RANKS_MAX];
    const uint32_t count = walks_begin(walks, gpu, flight);
    for (uint32_t i = 0; i < count; i++)
        if (!(graphs[i] = graph_for(gpu->ranks[i], walks[i].flight)))
            return walk_all(gpu, flight, error);
    if (!replay_all(walks, graphs, count)) return walk_all(gpu, flight, error);
    for (uint32_t i = 0; i < count; i++) {
        rank_use(gpu->ranks[i]);
        cudaError_t code = cudaGraphLaunch(graphs[i]->exec, gpu->ranks[i]->compute);
        if (code != cudaSuccess)
            return rank_error(gpu->ranks[i], card_error(code, error, "starting a graph"), error);
    }
    gpu->counters.graph_steps++;
    return walk_ops(walks, count, gpu->keep_op, gpu->program.op_count, error);
}

/* ---- making graphs ---- */

/* The GPU's memory that is not free. */
static size_t used_bytes(void) {
    size_t free_bytes = 0, total = 0;
    return cudaMemGetInfo(&free_bytes, &total) == cudaSuccess ? total - free_bytes : 0;
}

/* A step that has each launch, over arrays that nobody reads. */
static struct card_step step_of(const struct gpu *gpu, uint32_t rows) {
    const struct card_tiles tiles = {.count = 1};
    struct card_step step = {.row_count = rows, .state_count = 2, .decoded_count = 1};
    for (uint32_t i = 0; i < gpu->limits.group_count; i++)
        step.groups[i].all = (struct card_attention){
            .prefixes = tiles, .tiles = tiles, .decode_count = 1, .merge_count = 1};
    return step;
}

/* Records a walk up to OP_KEEP; false, and a sentence, when the driver refuses. */
static bool capture(struct gpu *gpu, struct graph *graph) {
    struct flight *flight = &gpu->flights[0];
    struct walk walk;
    struct error error = {0};
    flight->step = step_of(gpu, graph->rows);
    /* Relaxed: kernels may be loaded and asked about meanwhile, and nothing else of the process
     * runs. */
    cudaError_t code = cudaStreamBeginCapture(gpu->compute, cudaStreamCaptureModeRelaxed);
    if (code != cudaSuccess) {
        refuse(gpu, "a step is not recorded", cudaGetErrorString(code));
        return false;
    }
    launches_record(&graph->launches);
    walk_begin(&walk, gpu, flight);
    enum err err = walk_ops(&walk, 1, 0, gpu->keep_op, &error);
    (void)launches_end();
    code = cudaStreamEndCapture(gpu->compute, &graph->recorded);
    if (err == OK && code == cudaSuccess) return true;
    refuse(gpu, "a step is not recorded", err != OK ? error.text : cudaGetErrorString(code));
    return false;
}

/* Makes a graph of what was recorded, and lets the GPU have it. */
static bool instantiate(struct gpu *gpu, struct graph *graph) {
    cudaError_t code = cudaGraphInstantiate(&graph->exec, graph->recorded, 0);
    if (code == cudaSuccess) code = cudaGraphUpload(graph->exec, gpu->compute);
    if (code == cudaSuccess) return true;
    refuse(gpu, "a graph is not made", cudaGetErrorString(code));
    return false;
}

static void graph_free(struct graph *graph) {
    if (graph->exec) (void)cudaGraphExecDestroy(graph->exec);
    if (graph->recorded) (void)cudaGraphDestroy(graph->recorded);
    launches_free(&graph->launches);
    *graph = (struct graph){0};
}

/* False, and a sentence, when it is the last one. */
static bool make(struct gpu *gpu, uint32_t rows) {
    struct graph *graph = &gpu->graphs[gpu->graph_count];
    const size_t before = used_bytes();
    graph->rows = rows;
    if (!capture(gpu, graph) || !instantiate(gpu, graph)) {
        graph_free(graph);
        return false;
    }
    const size_t after = used_bytes();
    if (after > before) gpu->graph_bytes += after - before;
    gpu->graph_count++;
    if (gpu->graph_bytes <= GRAPH_BYTES_MAX) return true;
    refuse(gpu, "no more graphs", "they take too much of the GPU's memory");
    return false;
}

/* The operation from which on a step's rows are those with logits; none: op_count. */
static uint32_t keep_op_of(const struct gpu *gpu) {
    uint32_t index = 0;
    while (index < gpu->program.op_count && gpu->ops[index].op.kind != OP_KEEP) index++;
    return index;
}

void graphs_make(struct gpu *gpu) {
    const uint32_t asked = gpu->graph_rows_max > 0 ? gpu->graph_rows_max : ROWS_MOST;
    const uint32_t most = asked < gpu->row_bucket ? asked : gpu->row_bucket;
    uint32_t rows = row_bucket(1);
    rank_use(gpu);
    gpu->keep_op = keep_op_of(gpu);
    /* Steps of texts have many rows, and those that bring experts wait for the bus. */
    if (gpu->is_measuring || gpu->has_no_graphs || gpu->keep_op == gpu->program.op_count ||
        gpu->program.pools || gpu->away.count > 0)
        return;
    while (rows <= most && gpu->graph_count < GRAPHS_MAX && make(gpu, rows))
        rows = row_bucket(rows + 1);
}

void graphs_free(struct gpu *gpu) {
    for (uint32_t i = 0; i < GRAPHS_MAX; i++) graph_free(&gpu->graphs[i]);
    gpu->graph_count = 0;
    gpu->graph_bytes = 0;
}
