/* SPDX-License-Identifier: Apache-2.0 */

/* device_graph: most operations of a step are started with one call of the driver instead of one
 * per kernel.
 *
 * The host needs 2.5 ms for the 430 launches of a step of Qwen3-4B, most of the time that the card
 * takes for few rows, and between launches the card waits. With a graph the step takes 6 to 9 %
 * less, and the host 0.06 ms (docs/internals/device.md).
 *
 * `warm` records, per flight and bucket of rows, the kernels of all operations before OP_KEEP, over
 * a step whose arrays lie at fixed places of the flight's block. Later steps put their own arrays
 * there:
 *
 *   - rows between the step's and the bucket's are computed and ignored, as the products do without
 *     a graph, too: token 0 at position 0, which is not stored in the KV cache;
 *   - launches of attention have blocks for the most items; how many there are stands on the card;
 *   - page tables are behind all other arrays of the graph, since their number is not bounded by
 *     the rows. The tables of all groups are one array, and the items of a group name places in it.
 *
 * OP_KEEP and the operations behind it, the attention of the last layer among them, are launched
 * one by one: their rows are those with logits, whose number has no bucket. Their arrays come
 * last. Draws and results are as in any step. */

#include "kernels/cuda/device_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#define ROWS_MOST 128u             /* of a graph, if nobody asks for more */
#define FEW_ROWS 128u              /* steps of at most so many have a graph for decode alone */
#define GRAPH_BYTES_MAX (32 * MIB) /* of the card's memory, half of what `open` leaves free */
#define ARRAYS 10u                 /* of a group; each may leave a gap */

/* The most items of a step. Steps with more are started kernel by kernel. Each item too many is a
 * block per KV head and layer that starts and ends, so there are no more than steps usually have. */
struct room {
    uint32_t rows;
    uint32_t prefixes;
    uint32_t tiles; /* 0: decode alone, without that launch */
    uint32_t decode;
    uint32_t merges;
};
enum { COUNT_PREFIXES, COUNT_TILES, COUNT_DECODE, COUNT_MERGES, COUNTS };

/* Prefixes and pieces of prompts fill their tiles but for the last one of each. Items of decode are
 * cut only while a step has fewer of them than the card has room for (program/plan_decode.c), which
 * steps of many rows with prompts may have, too: these are started kernel by kernel. */
static struct room room_for(uint32_t rows, uint32_t least, const struct device_limits *limits,
                            const struct device_program *program, uint32_t multiprocessors) {
    const uint32_t kv_heads = program->kv_heads,
                   wanted = (multiprocessors + kv_heads - 1) / kv_heads;
    const uint32_t full = rows / cuda_tile_rows(program->heads / kv_heads);
    struct room room = {.rows = rows,
                        .prefixes = rows <= FEW_ROWS ? rows / 4 + 8 : full + 8,
                        .tiles = rows <= FEW_ROWS ? 0 : full + rows / 64 + 8,
                        .decode = rows < limits->sequences_max ? rows : limits->sequences_max};
    if (least >= wanted) return room;
    room.decode += 3 * wanted;
    room.merges = rows;
    return room;
}

static struct room room_of(const struct device *device, uint32_t index) {
    uint32_t least = index > 0 ? device->graph_rows[index - 1] + 1 : 1;
    return room_for(device->graph_rows[index], least, &device->limits, &device->program,
                    (uint32_t)device->multiprocessors);
}

/* Rows of the largest graph. */
static uint32_t rows_most(uint32_t asked, const struct device_limits *limits) {
    const uint32_t most = asked > 0 ? asked : ROWS_MOST, bucket = cuda_bucket(limits->rows_max);
    return most < bucket ? most : bucket;
}

size_t graph_block_bytes(uint32_t graph_rows_max, const struct device_limits *limits,
                         const struct device_program *program, uint32_t multiprocessors) {
    const struct room room =
        room_for(rows_most(graph_rows_max, limits), 1, limits, program, multiprocessors);
    /* A step of FEW_ROWS has more prefixes than its formula for more rows says. */
    const size_t prefixes = room.prefixes + FEW_ROWS / 4 + 8;
    const size_t tiles = prefixes + room.rows / 64 + 8;
    size_t group = (3 * room.rows + COUNTS) * sizeof(uint32_t) +
                   (prefixes + tiles) * sizeof(struct device_tile_item) +
                   room.decode * sizeof(struct device_decode_item) +
                   room.merges * sizeof(struct device_merge_item) + (size_t)ARRAYS * 16;
    return 2 * room.rows * sizeof(uint32_t) + (size_t)ARRAYS * 16 + limits->group_count * group;
}

/* ---- a step's arrays ---- */

static const void *take(struct block *block, size_t count, size_t bytes) {
    void *host;
    return block_take(block, count * bytes, &host);
}

static void lay_out_tiles(struct block *block, struct card_tiles *ret_tiles, uint32_t count,
                          uint32_t rows, const uint32_t *counted) {
    ret_tiles->items = take(block, count, sizeof *ret_tiles->items);
    ret_tiles->count = count;
    ret_tiles->counted = counted;
    ret_tiles->rows = take(block, count > 0 ? rows : 0, sizeof *ret_tiles->rows);
}

/* Fills flight->step with the addresses of the arrays of a graph's step, which are the same each
 * time. */
static void lay_out(const struct device *device, struct flight *flight, const struct room *room) {
    struct block *block = &flight->block;
    struct card_step *step = &flight->step;
    block->used = block->sent = 0;
    block->is_full = false;
    *step = (struct card_step){.row_count = room->rows};
    step->tokens = take(block, room->rows, sizeof *step->tokens);
    step->positions = take(block, room->rows, sizeof *step->positions);
    for (uint32_t i = 0; i < device->limits.group_count; i++) {
        struct card_group *group = &step->groups[i];
        struct card_attention *all = &group->all;
        const uint32_t *counts = take(block, COUNTS, sizeof *counts);
        if (!counts) return;
        group->slots = take(block, room->rows, sizeof *group->slots);
        lay_out_tiles(block, &all->prefixes, room->prefixes, room->rows, counts + COUNT_PREFIXES);
        lay_out_tiles(block, &all->tiles, room->tiles, room->rows, counts + COUNT_TILES);
        all->decode = take(block, room->decode, sizeof *all->decode);
        all->decode_count = room->decode;
        all->decode_counted = counts + COUNT_DECODE;
        all->merges = take(block, room->merges, sizeof *all->merges);
        all->merge_count = room->merges;
        all->merge_counted = counts + COUNT_MERGES;
    }
    const uint32_t *pages = take(block, 0, 0);
    for (uint32_t i = 0; i < device->limits.group_count; i++) step->groups[i].pages = pages;
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

/* Copies items whose page tables begin at `first` of the array of all groups. Their rows are named
 * one by one, since the launch was recorded so. */
static void put_tiles(const struct block *block, const struct card_tiles *to,
                      const struct device_tiles *from, uint32_t first, uint32_t rows) {
    if (to->count == 0) return;
    struct device_tile_item *items = host_of(block, to->items);
    uint32_t *named = host_of(block, to->rows);
    *(uint32_t *)host_of(block, to->counted) = from->count;
    for (uint32_t i = 0; i < from->count; i++) {
        items[i] = from->items[i];
        items[i].pages += first;
    }
    if (from->rows) memcpy(named, from->rows, from->row_count * sizeof *named);
    for (uint32_t i = 0; i < rows && !from->rows; i++) named[i] = i;
}

static void put_attention(const struct block *block, const struct card_attention *to,
                          const struct device_attention *from, uint32_t first, uint32_t rows) {
    put_tiles(block, &to->prefixes, &from->prefixes, first, rows);
    put_tiles(block, &to->tiles, &from->tiles, first, rows);
    *(uint32_t *)host_of(block, to->decode_counted) = from->decode_count;
    *(uint32_t *)host_of(block, to->merge_counted) = from->merge_count;
    struct device_decode_item *decode = host_of(block, to->decode);
    for (uint32_t i = 0; i < from->decode_count; i++) {
        decode[i] = from->decode[i];
        decode[i].pages += first;
    }
    if (from->merge_count > 0)
        memcpy(host_of(block, to->merges), from->merges, from->merge_count * sizeof *from->merges);
}

/* Puts a step of at most room->rows rows; false when the block has no room for it. */
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
    uint32_t *to_pages = host_of(block, pages), first = 0;
    for (uint32_t i = 0; i < device->limits.group_count; i++) {
        const struct device_group *from = &step->groups[i];
        put_rows(block, to->groups[i].slots, from->slots, count, rows, CUDA_NO_SLOT);
        put_attention(block, &to->groups[i].all, &from->all, first, rows);
        if (from->page_count > 0)
            memcpy(to_pages + first, from->pages, from->page_count * sizeof *from->pages);
        to->groups[i].pages = pages + first; /* for launches behind the graph */
        first += from->page_count;
    }
    return step_put_kept(device, flight, step);
}

static bool have_room(const struct device_tiles *tiles, uint32_t count, uint32_t rows) {
    return tiles->count <= count && (!tiles->rows || tiles->row_count <= rows);
}

/* Whether a graph has room for all items of the step. */
static bool can_run(const struct device *device, const struct device_step *step,
                    const struct room *room) {
    for (uint32_t i = 0; i < device->limits.group_count; i++) {
        const struct device_attention *all = &step->groups[i].all;
        if (!have_room(&all->prefixes, room->prefixes, room->rows) ||
            !have_room(&all->tiles, room->tiles, room->rows) || all->decode_count > room->decode ||
            all->merge_count > room->merges)
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
    flight->step.row_count = step->row_count;
    return &flight->graphs[index];
}

enum err graph_run(struct device *device, const struct graph *graph, struct error *error) {
    cudaError_t code = cudaGraphLaunch(graph->exec, device->compute);
    if (code != cudaSuccess) return card_error(code, error, "starting a graph");
    device->counters.graph_steps++;
    struct walk walk = graph->walk;
    return walk_ops(&walk, device->keep_op, device->program.op_count, error);
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

/* Records the walk over the step that was put, up to OP_KEEP, and fills *ret_walk with its state
 * there; NULL, and a sentence, when the driver refuses. */
static cudaGraph_t capture(struct device *device, struct flight *flight, struct walk *ret_walk) {
    struct error error = {0};
    cudaGraph_t graph = NULL;
    /* Relaxed: kernels may be asked about meanwhile, and nothing else of the process runs. */
    cudaError_t code = cudaStreamBeginCapture(device->compute, cudaStreamCaptureModeRelaxed);
    if (code != cudaSuccess) {
        refuse(device, "a step is not recorded", cudaGetErrorString(code));
        return NULL;
    }
    walk_begin(ret_walk, device, flight);
    enum err err = walk_ops(ret_walk, 0, device->keep_op, &error);
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

/* A walk over the step that was put loads the kernels. */
static enum err try_walk(struct device *device, struct flight *flight, uint32_t rows,
                         struct error *error) {
    enum err err = block_send(device, &flight->block, error);
    if (err == OK) err = walk_all(device, flight, error);
    if (err != OK) return err;
    cudaError_t code = cudaStreamSynchronize(device->compute);
    return code == cudaSuccess ? OK : card_error(code, error, "a step of %u rows", rows);
}

static enum err try_graph(struct device *device, const struct graph *graph, uint32_t rows,
                          struct error *error) {
    enum err err = graph_run(device, graph, error);
    if (err != OK) return err;
    cudaError_t code = cudaStreamSynchronize(device->compute);
    return code == cudaSuccess ? OK : card_error(code, error, "a graph of %u rows", rows);
}

/* Makes the graph of a bucket over a step without rows, all of which are then those that are
 * ignored. A graph of few rows is run once; one of many would take as long as a step, and its
 * kernels have run in other trials. Without a graph it leaves graph_refusal. */
static enum err make(struct device *device, struct flight *flight, uint32_t index,
                     struct error *error) {
    static const struct device_group no_groups[DEVICE_GROUPS_MAX];
    const struct device_step none = {.groups = no_groups};
    const struct room room = room_of(device, index);
    const bool is_tried = room.rows <= FEW_ROWS;
    enum err err = OK;
    if (!put(device, flight, &room, &none)) {
        refuse(device, "a step has no room", "its limits are small");
        return OK;
    }
    if (is_tried) err = try_walk(device, flight, room.rows, error);
    if (err != OK) return err;
    const size_t before = used_bytes();
    struct graph *graph = &flight->graphs[index];
    cudaGraph_t recorded = capture(device, flight, &graph->walk);
    if (!recorded) return OK;
    graph->exec = instantiate(device, recorded);
    (void)cudaGraphDestroy(recorded);
    if (!graph->exec) return OK;
    if (is_tried) err = try_graph(device, graph, room.rows, error);
    if (err != OK) return err;
    const size_t after = used_bytes();
    if (after > before) device->counters.graph_bytes += after - before;
    device->counters.graphs++;
    if (device->counters.graph_bytes > GRAPH_BYTES_MAX)
        refuse(device, "no more graphs", "they take too much of the card's memory");
    return OK;
}

/* The operation from which on a step's rows are those with logits; none: op_count. */
static uint32_t keep_op_of(const struct device *device) {
    uint32_t index = 0;
    while (index < device->program.op_count && device->ops[index].op.kind != OP_KEEP) index++;
    return index;
}

enum err graphs_make(struct device *device, struct error *error) {
    const uint32_t most = rows_most(device->graph_rows_max, &device->limits);
    enum err err = OK;
    device->keep_op = keep_op_of(device);
    if (device->is_measuring || device->has_no_graphs ||
        device->keep_op == device->program.op_count)
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
