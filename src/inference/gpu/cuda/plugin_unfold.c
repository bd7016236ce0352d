/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_unfold.h"

#include "base/min_max.h"
#include "gpu/cuda/attention_unfolded.h"
#include "gpu/cuda/plugin_internal.h"

#include <assert.h>
#include <string.h>

/* What a key and query gain by the unfolded form is as much as a thirtieth of what a row saves in
 * the products of heads, and a key costs in that of kv_b: 20 ps of a head, and 0.6 ns, on an H200
 * (docs/internals/inference/latent.md). */
#define PAIRS_OF_A_PRODUCT 30

/* ---- the room ---- */

static bool is_unfolded(const struct gpu_program *program) {
    const struct gpu_latent_sizes *sizes = &program->latent;
    return sizes->rank > 0 && sizes->rank % 64 == 0 && sizes->still_dim == CUDA_UNFOLDED_STILL &&
           sizes->turned_dim == CUDA_UNFOLDED_TURNED && sizes->value_dim == CUDA_UNFOLDED_VALUE &&
           cuda_has_unfolded();
}

void unfold_place(struct gpu *gpu, const struct gpu_program *program) {
    struct unfold_room *room = &gpu->unfold;
    const struct experts_room *experts = &gpu->experts;
    const size_t each = (size_t)program->heads * CUDA_UNFOLDED_HEAD; /* numbers of a token */
    const size_t rank = program->latent.rank, weights = each * rank;
    const size_t still = (size_t)gpu->row_bucket * program->heads * CUDA_UNFOLDED_STILL;
    room->tokens = 0;
    if (!is_unfolded(program) || !experts->gated || experts->gated_count <= weights + still) return;
    const size_t rows = (experts->gated_count - weights - still) / rank;
    const size_t tokens = experts->sum_count / each;
    const size_t most = rows < tokens ? rows : tokens;
    room->weights = experts->gated;
    room->still = room->weights + weights;
    room->rows = room->still + still;
    room->unfolded = experts->sums;
    room->tokens = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

/* Whether keys of so many tokens have room, with what products write behind the last. */
static bool has_room(const struct gpu *gpu, uint32_t tokens) {
    const uint32_t whole = (tokens - 1) / ROW_BUCKET_MAX * ROW_BUCKET_MAX;
    return (uint64_t)whole + row_bucket(tokens - whole) <= gpu->unfold.tokens;
}

/* ---- the choice ---- */

static uint32_t pages_of(const struct unfold_run *run) {
    return (run->end + GPU_PAGE_TOKENS - 1) / GPU_PAGE_TOKENS;
}

/* Notes the item of each row whose keys it has all of. */
static void own_rows(struct gpu *gpu, const struct gpu_tiles *tiles, uint32_t row_count) {
    uint32_t *owners = gpu->unfold.owners;
    memset(owners, 0, row_count * sizeof *owners);
    for (uint32_t i = 0; i < tiles->count && !tiles->rows; i++) {
        const struct gpu_tile_item *item = &tiles->items[i];
        if (item->begin > 0 || item->partial_in != GPU_NONE || item->partial_out != GPU_NONE)
            continue;
        for (uint32_t k = 0; k < item->row_count; k++) owners[item->row + k] = i + 1;
    }
}

/* The run that ends before row `end`. False: that row belongs to none. */
static bool run_before(const struct gpu *gpu, const struct gpu_step *step, uint32_t end,
                       struct unfold_run *ret_run) {
    const uint32_t *owners = gpu->unfold.owners;
    const struct gpu_tile_item *items = step->groups[0].all.tiles.items;
    if (end == 0 || owners[end - 1] == 0) return false;
    const struct gpu_tile_item *last = &items[owners[end - 1] - 1];
    uint32_t row = end - 1;
    while (row > 0 && owners[row - 1] > 0 && items[owners[row - 1] - 1].pages == last->pages) row--;
    *ret_run =
        (struct unfold_run){.row = row, .rows = end - row, .end = last->end, .pages = last->pages};
    return last->row + last->row_count == end && step->positions[row] + end - row == last->end;
}

/* Pairs of a key and a query that unfolding a run saves the time of, for each head. */
static int64_t gain_of(const struct unfold_run *run) {
    const int64_t rows = run->rows, keys = run->end;
    return rows * (keys - rows) + rows * rows / 2 + PAIRS_OF_A_PRODUCT * (rows - keys);
}

/* Finds the runs at the end of the step that gain most together; returns their number. */
static uint32_t choose(const struct gpu *gpu, const struct gpu_step *step) {
    struct unfold_run *run = gpu->unfold.runs;
    uint32_t tokens = 0, chosen = 0;
    int64_t gain = 0, best = 0;
    for (uint32_t end = step->row_count; run_before(gpu, step, end, run); end = run++->row) {
        tokens += pages_of(run) * GPU_PAGE_TOKENS;
        gain += gain_of(run);
        if (!has_room(gpu, tokens)) break;
        if (gain <= best) continue;
        best = gain;
        chosen = (uint32_t)(run - gpu->unfold.runs) + 1;
    }
    return chosen;
}

/* ---- the arrays ---- */

/* Pages and items of the chosen runs: the last rows of all, which cost most, then those before. */
struct unfold_lists {
    struct gpu_tile_item *items;
    uint32_t *firsts, *pages;
    uint32_t item_count, page_count;
};

static void add_items(struct unfold_lists *lists, const struct unfold_run *run, uint32_t first,
                      uint32_t turn) {
    const uint32_t at = turn * CUDA_UNFOLDED_ROWS;
    if (at >= run->rows) return;
    const uint32_t left = run->rows - at;
    const uint32_t rows = left < CUDA_UNFOLDED_ROWS ? left : CUDA_UNFOLDED_ROWS;
    lists->firsts[lists->item_count] = first;
    lists->items[lists->item_count++] = (struct gpu_tile_item){.row = run->row + at,
                                                               .row_count = rows,
                                                               .end = run->end - left + rows,
                                                               .pages = run->pages,
                                                               .partial_in = GPU_NONE,
                                                               .partial_out = GPU_NONE,
                                                               .partial_step = 1};
}

static uint32_t turns_of(const struct unfold_run *run) {
    return (run->rows + CUDA_UNFOLDED_ROWS - 1) / CUDA_UNFOLDED_ROWS;
}

static void fill_lists(const struct gpu *gpu, const struct gpu_step *step, uint32_t run_count,
                       uint32_t turns, struct unfold_lists *lists) {
    const uint32_t *tables = step->groups[0].pages;
    lists->item_count = lists->page_count = 0;
    for (const struct unfold_run *run = gpu->unfold.runs; run < gpu->unfold.runs + run_count;
         run++) {
        memcpy(lists->pages + lists->page_count, tables + run->pages,
               pages_of(run) * sizeof *tables);
        lists->page_count += pages_of(run);
    }
    while (turns-- > 0) {
        uint32_t page = 0;
        for (uint32_t i = 0; i < run_count; page += pages_of(&gpu->unfold.runs[i++]))
            add_items(lists, &gpu->unfold.runs[i], page * GPU_PAGE_TOKENS, turns);
    }
}

/* The tile items of rows before `first`. */
static void put_others(struct block *block, const struct gpu_tiles *tiles, uint32_t first,
                       struct card_tiles *ret_tiles) {
    uint32_t count = 0;
    void *host;
    for (uint32_t i = 0; i < tiles->count; i++) count += tiles->items[i].row < first;
    *ret_tiles = (struct card_tiles){
        .items = block_take(block, count * sizeof *tiles->items, &host), .count = count};
    struct gpu_tile_item *to = host;
    for (uint32_t i = 0; i < tiles->count && to; i++)
        if (tiles->items[i].row < first) *to++ = tiles->items[i];
}

void unfold_put(struct gpu *gpu, struct block *block, const struct gpu_step *step,
                struct card_step *to) {
    struct card_unfold *unfold = &to->unfold;
    const struct gpu_tiles *tiles = &step->groups[0].all.tiles;
    struct unfold_lists lists = {0};
    void *items, *firsts, *pages;
    *unfold = (struct card_unfold){0};
    if (gpu->unfold.tokens == 0) return;
    own_rows(gpu, tiles, step->row_count);
    const uint32_t run_count = choose(gpu, step);
    if (run_count == 0) return;
    uint32_t turns = 0;
    for (uint32_t i = 0; i < run_count; i++) {
        const struct unfold_run *run = &gpu->unfold.runs[i];
        lists.item_count += turns_of(run);
        lists.page_count += pages_of(run);
        turns = max_u32(turns, turns_of(run));
    }
    const uint32_t first = gpu->unfold.runs[run_count - 1].row;
    unfold->items.items = block_take(block, lists.item_count * sizeof *lists.items, &items);
    unfold->firsts = block_take(block, lists.item_count * sizeof *lists.firsts, &firsts);
    unfold->pages = block_take(block, lists.page_count * sizeof *lists.pages, &pages);
    put_others(block, tiles, first, &to->groups[0].all.tiles);
    if (block->is_full) return;
    lists.items = items, lists.firsts = firsts, lists.pages = pages;
    fill_lists(gpu, step, run_count, turns, &lists);
    unfold->rows = step->row_count - first;
    unfold->items.count = lists.item_count;
    unfold->page_count = lists.page_count;
    gpu->counters.unfolded_rows += unfold->rows;
}
