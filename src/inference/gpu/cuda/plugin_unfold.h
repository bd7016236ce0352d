/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plugin_unfold: which rows of a step of latent layers attend by unfolded keys and values
 * (attention_unfolded.h), and the room for these.
 *
 * They are the last rows of a step, all those of some prompts, for decoded rows stand before them.
 * The room is that of a layer's experts, which have nothing in it while a layer attends. So it
 * costs no memory; prompts whose keys find no place there stay absorbed.
 *
 * It knows no sequence: rows of a prompt are those of tile items with the same pages.
 *
 * Thread: the GPU's one.
 * Memory: the arena's; `owners` and `runs` are the GPU's.
 * Invariant: a row is either unfolded, or in an item of the absorbed form. Equal steps are equally
 *     unfolded. */

#include "gpu/cuda/plugin_memory.h"
#include "gpu/table.h"

#include <stdint.h>

struct card_step;
struct card_tiles;
struct gpu;

/* Rows of one prompt, which see all keys before them. */
struct unfold_run {
    uint32_t row, rows;
    uint32_t end;   /* keys of the last row */
    uint32_t pages; /* where its page table begins */
};

struct unfold_room {
    uint16_t *weights;       /* (heads, keys and values, rank) bf16: the running layer's */
    uint16_t *still;         /* (row_bucket, heads, still_dim) bf16: what does not turn of q */
    uint16_t *rows;          /* (tokens, rank) bf16: entries without what turns */
    uint16_t *unfolded;      /* (tokens, heads, keys and values) bf16 */
    uint32_t tokens;         /* 0: none are unfolded */
    uint32_t *owners;        /* (rows_max) in the host: 1 + the tile item of each row; 0: none */
    struct unfold_run *runs; /* (rows_max) in the host: of one step, the last rows first */
};

/* Finds the room, behind experts_place. */
void unfold_place(struct gpu *gpu, const struct gpu_program *program);

/* Chooses the rows of a step, and puts their items and the tile items of the others. */
void unfold_put(struct gpu *gpu, struct block *block, const struct gpu_step *step,
                struct card_step *to);
