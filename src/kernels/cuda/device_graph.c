/* SPDX-License-Identifier: Apache-2.0 */

/* device_graph: a step of few rows is started with one call of the driver instead of one per
 * kernel.
 *
 * The host needs 2.5 ms for the 430 launches of a step of Qwen3-4B, most of the time that the card
 * takes for few rows, and between launches the card waits. With a graph the step takes 6 to 9 %
 * less, and the host 0.06 ms (docs/internals/device.md).
 *
 * `warm` records, per flight and bucket of rows, the kernels of all operations, over a step whose
 * arrays lie at fixed places of the flight's block. Later steps put their own arrays there:
 *
 *   - rows between the step's and the bucket's are computed and ignored: token 0 at position 0,
 *     which is not stored in the KV cache;
 *   - launches of attention have blocks for the most items; how many there are stands on the card;
 *   - page tables are last, since their number is not bounded by the rows. The tables of all groups
 *     are one array, and the items of a group name places in it.
 *
 * A graph has steps in which every row has logits and no sequence has several. Draws and results
 * are as in any step: they have the true number of rows. */

#include "kernels/cuda/device_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#define ROWS_MOST 128u /* of a graph: with more rows the card does not wait for the host */
#define GRAPH_BYTES_MAX (32 * MIB) /* of the card's memory, half of what `open` leaves free */
#define ARRAYS 8u                  /* of a group; each may leave a gap */

/* The most items of a step. Steps with more are started kernel by kernel. */
struct room {
    uint32_t rows;
    uint32_t prefixes;
    uint32_t decode;
    uint32_t merges;
};
enum { COUNT_PREFIXES, COUNT_DECODE, COUNT_MERGES, COUNTS };

/* Items are cut only while a step has fewer of them than the card has room for
 * (program/plan_decode.c): `least` rows are the fewest of a step. */
static struct room room_for(uint32_t rows, uint32_t least, uint32_t kv_heads,
                            uint32_t multiprocessors) {
    struct room room = {.rows = rows, .prefixes = rows / 4 + 8, .decode = rows};
    if (least * kv_heads >= multiprocessors) return room;
    room.decode += 3 * ((multiprocessors + kv_heads - 1) / kv_heads);
    room.merges = rows;
    return room;
}

static struct room room_of(const struct device *device, uint32_t index) {
    uint32_t least = index > 0 ? device->graph_rows[index - 1] + 1 : 1;
    return room_for(device->graph_rows[index], least, device->program.kv_heads,
                    (uint32_t)device->multiprocessors);
}

size_t graph_block_bytes(const struct device_limits *limits, const struct device_program *program,
                         uint32_t multiprocessors) {
    const struct room room = room_for(ROWS_MOST, 1, program->kv_heads, multiprocessors);
    size_t group = (room.rows + COUNTS) * sizeof(uint32_t) +
                   room.prefixes * sizeof(struct device_tile_item) +
                   room.decode * sizeof(struct device_decode_item) +
                   room.merges * sizeof(struct device_merge_item) + (size_t)ARRAYS * 16;
    return 3 * room.rows * sizeof(uint32_t) + (size_t)ARRAYS * 16 + limits->group_count * group;
}

/* ---- a step's arrays ---- */

static const void *take(struct block *block, size_t count, size_t bytes) {
    void *host;
    return block_take(block, count * bytes, &host);
}

/* Fills flight->step with the addresses of the arrays of a graph's step, which are the same each
 * time. */
static void lay_out(const struct device *device, struct flight *flight, const struct room *room) {
    struct block *block = &flight->block;
    struct card_step *step = &flight->step;
    block->used = block->sent = 0;
    block->is_full = false;
    *step = (struct card_step){.row_count = room->rows, .wanted_count = room->rows};
    step->tokens = take(block, room->rows, sizeof *step->tokens);
    step->positions = take(block, room->rows, sizeof *step->positions);
    step->wanted = take(block, room->rows, sizeof *step->wanted);
    step->wanted_positions = step->positions;
    void *host;
    step->nonfinite = block_take(block, sizeof *step->nonfinite, &host);
    for (uint32_t i = 0; i < device->limits.group_count; i++) {
        struct card_group *group = &step->groups[i];
        struct card_attention *all = &group->all;
        const uint32_t *counts = take(block, COUNTS, sizeof *counts);
        group->slots = take(block, room->rows, sizeof *group->slots);
        all->prefixes.items = take(block, room->prefixes, sizeof *all->prefixes.items);
        all->prefixes.count = room->prefixes;
        all->decode = take(block, room->decode, sizeof *all->decode);
        all->decode_count = room->decode;
        all->merges = take(block, room->merges, sizeof *all->merges);
        all->merge_count = room->merges;
        if (!counts) continue;
        all->prefixes.counted = counts + COUNT_PREFIXES;
        all->decode_counted = counts + COUNT_DECODE;
        all->merge_counted = counts + COUNT_MERGES;
    }
    const uint32_t *pages = take(block, 0, 0);
    for (uint32_t i = 0; i < device->limits.group_count; i++) {
        step->groups[i].pages = pages;
        step->groups[i].kept = step->groups[i].all; /* all rows are wanted */
    }
}

static void *host_of(const struct block *block, const void *card) {
    return block->host + ((const char *)card - block->card);
}

/* Copies `count` numbers and fills the rest of (rows). */
static void put_rows(const struct block *block, const void *card, const void *from, uint32_t count,
                     uint32_t rows, uint32_t rest) {
    uint32_t *to = host_of(block, card);
    if (count > 0) memcpy(to, from, count * sizeof *to);
    for (uint32_t i = count; i < rows; i++) to[i] = rest;
}

/* Copies items whose page tables begin at `first` of the array of all groups. */
static void put_attention(const struct block *block, const struct card_attention *to,
                          const struct device_attention *from, uint32_t first) {
    uint32_t *counts = host_of(block, to->prefixes.counted);
    counts[COUNT_PREFIXES] = from->prefixes.count;
    counts[COUNT_DECODE] = from->decode_count;
    counts[COUNT_MERGES] = from->merge_count;
    struct device_tile_item *prefixes = host_of(block, to->prefixes.items);
    for (uint32_t i = 0; i < from->prefixes.count; i++) {
        prefixes[i] = from->prefixes.items[i];
        prefixes[i].pages += first;
    }
    struct device_decode_item *decode = host_of(block, to->decode);
    for (uint32_t i = 0; i < from->decode_count; i++) {
        decode[i] = from->decode[i];
        decode[i].pages += first;
    }
    if (from->merge_count > 0)
        memcpy(host_of(block, to->merges), from->merges, from->merge_count * sizeof *from->merges);
}

/* Puts a step of at most room->rows rows; false when the block has no room for its page tables. */
static bool put(const struct device *device, struct flight *flight, const struct room *room,
                const struct device_step *step) {
    struct block *block = &flight->block;
    struct card_step *to = &flight->step;
    const uint32_t count = step->row_count, rows = room->rows;
    uint32_t page_count = 0;
    lay_out(device, flight, room);
    for (uint32_t i = 0; i < device->limits.group_count; i++)
        page_count += step->groups[i].page_count;
    const uint32_t *pages = take(block, page_count, sizeof *pages);
    if (block->is_full) return false;
    put_rows(block, to->tokens, step->tokens, count, rows, 0);
    put_rows(block, to->positions, step->positions, count, rows, 0);
    uint32_t *wanted = host_of(block, to->wanted), *to_pages = host_of(block, pages), first = 0;
    for (uint32_t i = 0; i < rows; i++) wanted[i] = i;
    *(uint32_t *)host_of(block, to->nonfinite) = 0;
    for (uint32_t i = 0; i < device->limits.group_count; i++) {
        const struct device_group *from = &step->groups[i];
        put_rows(block, to->groups[i].slots, from->slots, count, rows, CUDA_NO_SLOT);
        put_attention(block, &to->groups[i].all, &from->all, first);
        if (from->page_count > 0)
            memcpy(to_pages + first, from->pages, from->page_count * sizeof *from->pages);
        first += from->page_count;
    }
    flight->step_bytes = block->used;
    return true;
}

/* Whether the step has no other work than a graph. */
static bool can_run(const struct device *device, const struct device_step *step,
                    const struct room *room) {
    if (step->wanted_count != step->row_count) return false;
    for (uint32_t i = 0; i < device->limits.group_count; i++) {
        const struct device_attention *all = &step->groups[i].all;
        if (all->tiles.count > 0 || all->prefixes.rows || all->prefixes.count > room->prefixes ||
            all->decode_count > room->decode || all->merge_count > room->merges)
            return false;
    }
    return true;
}

const struct graph *graph_put(struct device *device, struct flight *flight,
                              const struct device_step *step) {
    uint32_t index = 0;
    while (index < device->graph_count && device->graph_rows[index] < step->row_count) index++;
    if (index == device->graph_count || step->row_count == 0 || !flight->graphs[index].exec)
        return NULL;
    const struct room room = room_of(device, index);
    if (!can_run(device, step, &room) || !put(device, flight, &room, step)) return NULL;
    flight->step.row_count = flight->step.wanted_count = step->row_count;
    return &flight->graphs[index];
}

enum err graph_run(struct device *device, struct flight *flight, const struct graph *graph,
                   struct error *error) {
    cudaError_t code = cudaGraphLaunch(graph->exec, device->compute);
    if (code != cudaSuccess) return card_error(code, error, "starting a graph");
    flight->row_scale = graph->row_scale;
    device->counters.graph_steps++;
    return OK;
}

/* ---- making graphs ---- */

/* The card's memory that is not free. */
static size_t used_bytes(void) {
    size_t free_bytes = 0, total = 0;
    return cudaMemGetInfo(&free_bytes, &total) == cudaSuccess ? total - free_bytes : 0;
}

static void refuse(struct device *device, const char *what, const char *reason) {
    (void)cudaGetLastError(); /* which would be told by a later call */
    (void)snprintf(device->graph_refusal, sizeof device->graph_refusal, "%s: %.200s", what, reason);
}

/* Records the walk over the step that was put; NULL, and a sentence, when the driver refuses. */
static cudaGraph_t capture(struct device *device, struct flight *flight) {
    struct error error = {0};
    cudaGraph_t graph = NULL;
    /* Relaxed: kernels may be asked about meanwhile, and nothing else of the process runs. */
    cudaError_t code = cudaStreamBeginCapture(device->compute, cudaStreamCaptureModeRelaxed);
    if (code != cudaSuccess) {
        refuse(device, "a step is not recorded", cudaGetErrorString(code));
        return NULL;
    }
    enum err err = walk_all(device, flight, &error);
    code = cudaStreamEndCapture(device->compute, &graph);
    if (err == OK && code == cudaSuccess) return graph;
    if (graph) (void)cudaGraphDestroy(graph);
    refuse(device, "a step is not recorded", err != OK ? error.text : cudaGetErrorString(code));
    return NULL;
}

/* Makes a graph of what was recorded, and lets the card have it. */
static struct CUgraphExec_st *instantiate(struct device *device, cudaGraph_t graph) {
    cudaGraphExec_t exec = NULL;
    cudaError_t code = cudaGraphInstantiate(&exec, graph, 0);
    if (code == cudaSuccess) code = cudaGraphUpload(exec, device->compute);
    if (code == cudaSuccess) return exec;
    if (exec) (void)cudaGraphExecDestroy(exec);
    refuse(device, "a graph is not made", cudaGetErrorString(code));
    return NULL;
}

/* Makes the graph of a bucket, and runs it once: over a step without rows, all of which are then
 * those that are ignored. Without a graph it leaves graph_refusal. */
static enum err make(struct device *device, struct flight *flight, uint32_t index,
                     struct error *error) {
    static const struct device_group no_groups[DEVICE_GROUPS_MAX];
    const struct device_step none = {.groups = no_groups};
    const struct room room = room_of(device, index);
    if (!put(device, flight, &room, &none)) {
        refuse(device, "a step has no room", "its limits are small");
        return OK;
    }
    enum err err = block_send(device, &flight->block, error);
    if (err == OK) err = walk_all(device, flight, error); /* loads the kernels */
    if (err != OK) return err;
    cudaError_t code = cudaStreamSynchronize(device->compute);
    if (code != cudaSuccess) return card_error(code, error, "a step of %u rows", room.rows);
    const size_t before = used_bytes();
    cudaGraph_t recorded = capture(device, flight);
    if (!recorded) return OK;
    struct graph *graph = &flight->graphs[index];
    *graph = (struct graph){instantiate(device, recorded), flight->row_scale};
    (void)cudaGraphDestroy(recorded);
    if (!graph->exec) return OK;
    err = graph_run(device, flight, graph, error);
    if (err != OK) return err;
    code = cudaStreamSynchronize(device->compute);
    if (code != cudaSuccess) return card_error(code, error, "a graph of %u rows", room.rows);
    const size_t after = used_bytes();
    if (after > before) device->counters.graph_bytes += after - before;
    device->counters.graphs++;
    if (device->counters.graph_bytes > GRAPH_BYTES_MAX)
        refuse(device, "no more graphs", "they take too much of the card's memory");
    return OK;
}

enum err graphs_make(struct device *device, struct error *error) {
    uint32_t most = device->logit_bucket < ROWS_MOST ? device->logit_bucket : ROWS_MOST;
    enum err err = OK;
    if (device->is_measuring || device->has_no_graphs || device->logit_matrix == DEVICE_NONE)
        return OK;
    for (uint32_t rows = cuda_bucket(1); rows <= most && device->graph_count < GRAPHS_MAX;
         rows = cuda_bucket(rows + 1))
        device->graph_rows[device->graph_count++] = rows;
    for (uint32_t i = 0; i < device->graph_count; i++)
        for (uint32_t k = 0; k < device->limits.steps_max; k++)
            if (err == OK && device->graph_refusal[0] == '\0')
                err = make(device, &device->flights[k], i, error);
    device->counters.graph_steps = 0;
    if (device->graph_refusal[0] != '\0') device->counters.graph_refusal = device->graph_refusal;
    return err;
}

void graphs_free(struct flight *flight) {
    for (uint32_t i = 0; i < GRAPHS_MAX; i++)
        if (flight->graphs[i].exec) (void)cudaGraphExecDestroy(flight->graphs[i].exec);
}
