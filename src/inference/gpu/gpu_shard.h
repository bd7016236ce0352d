/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_shard: a program's share that one of several GPUs computes, each with a rank.
 *
 * Heads and feed-forwards are split evenly: a product whose outputs are heads, or gate and up, has
 * the rank's rows of its matrix; a product that reads them has the rank's columns, and its sums are
 * a part, which the norm behind it adds up over the ranks, or a kernel of its own. So a layer has
 * two such sums or more. A KV head that fewer than one rank can have is held by several. Recurrent
 * layers are split by the heads of their states, or by channels. What all rows' experts leave
 * beside those of a row is a part of the same sum. All ranks have the embedding, parts of tokens,
 * the router and the residual stream; the first rank, the lead, alone has a head of its own and the
 * logits.
 *
 * It knows no file, no step and no memory of a GPU.
 *
 * Thread: any.
 * Memory: a shard owns the arrays and vectors of its program that are not the whole program's.
 * Invariant: operations have the same places in the shards of all ranks; those of ranks other than
 *     the lead lack the last one, LOGITS. */

#include "base/err.h"
#include "gpu/table.h"

#define GPU_PART_BUFFERS 3u /* for parts of products on each rank: (rows, width) bf16 */
#define GPU_PIECES_MAX 18u  /* q, k, and eight each of v and z: the tiled heads of a state */

enum gpu_split_kind {
    GPU_SPLIT_NOT,     /* each rank has the whole matrix */
    GPU_SPLIT_OUTPUTS, /* some of its rows */
    GPU_SPLIT_INPUTS,  /* some of its columns: its product is a part */
    GPU_SPLIT_LEAD,    /* the lead has it, others have a few rows that nobody reads */
};

/* Rows first..first+rows-1 of the whole matrix are rows own..own+rows-1 of the rank's. */
struct gpu_piece {
    uint32_t first, own, rows;
};

/* With GPU_SPLIT_INPUTS all of it is of columns, and the rank has all rows. */
struct gpu_split {
    enum gpu_split_kind kind;
    uint32_t repeats;    /* times that the pieces stand one behind another: experts, or 1 */
    uint32_t whole, own; /* rows of a repeat, in the whole matrix and in the rank's */
    struct gpu_piece pieces[GPU_PIECES_MAX];
    uint32_t piece_count;
};

struct gpu_shard {
    struct gpu_program program;
    struct gpu_split *splits; /* (matrix_count) */
    void **vectors;           /* (vector_count) */
    uint32_t vector_count;
};

/* ERR_INVALID with a sentence that names --tensor-parallel-size and why the model cannot be split
 * so. `ranks` is 2..GPU_RANKS_MAX. */
enum err gpu_shard_of(struct gpu_shard *ret_shard, const struct gpu_program *program, uint32_t rank,
                      uint32_t ranks, struct error *error) MUST_CHECK;
/* The same from a program whose vectors have no numbers, as those of a prediction: they are the
 * whole program's. */
enum err gpu_shard_sizes(struct gpu_shard *ret_shard, const struct gpu_program *program,
                         uint32_t rank, uint32_t ranks, struct error *error) MUST_CHECK;
void gpu_shard_release(struct gpu_shard *shard);
/* The first run of rows first..end-1 of the whole matrix that the rank has, whatever its columns;
 * false: it has none. */
bool gpu_split_next(const struct gpu_split *split, uint32_t first, uint32_t end,
                    struct gpu_piece *ret_run);
