/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/plan_attention.h"

#include "base/mem.h"
#include "base/min_max.h"
#include "gpu/plan_decode.h"
#include "gpu/plan_prefix.h"
#include "program/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Partials per row of a step, on average: four per sequence at 2,048 rows and 1,024 sequences. */
#define PARTIALS_PER_ROW 2u

/* Positions behind a row that sees all of its text: more than a text has, and few enough for sums
 * in 32 bits. */
#define ALL_BEHIND (1u << 29)

/* The groups first..first+count-1, whose layers see the same keys. */
struct group_kind {
    uint32_t first;
    uint32_t count;
    uint32_t window;
};

/* The arrays of a list of work. */
struct plan_work {
    struct gpu_tile_item *prefixes;
    struct gpu_tile_item *tiles;
    struct gpu_decode_item *decode;
    struct gpu_merge_item *merges;
};

enum { WORK_FULL, WORK_WINDOW, WORK_KEPT, WORK_COUNT };

struct plan_attention {
    struct plan_attention_options options;
    struct plan_attention_sizes sizes;
    uint32_t heads_each; /* query heads per KV head */
    uint32_t tile_rows;
    uint32_t group_count;
    struct group_kind kinds[2]; /* full, window; either may have no groups */
    struct gpu_group groups[GPU_GROUPS_MAX];
    uint32_t *slots[GPU_GROUPS_MAX];
    uint32_t *seen[2]; /* (rows_max) by kind, with sees_both; else NULL */
    uint32_t *pages[GPU_GROUPS_MAX];
    struct plan_work works[WORK_COUNT];
    struct plan_prefix prefix;
    struct plan_span *spans;       /* (sequences_max) */
    uint32_t *tables;              /* (sequences_max) index of each sequence's page table */
    uint32_t *shared;              /* (sequences_max) blocks in common with the next sequence */
    uint32_t *kept_positions;      /* (rows_max) */
    struct gpu_decode_item *whole; /* (rows_max) */
    struct gpu_tile_item *found;   /* (rows_max) */
};

/* ---- opening ---- */

/* Entries of a group's page tables: a sequence has those of the blocks that its rows see. The first
 * table may begin behind as many entries as it leaves out. */
static uint32_t table_entries(const struct plan_attention_options *options, uint32_t window) {
    uint32_t context = backend_blocks_for(options->context_max);
    if (window == 0 || window >= options->context_max) return context * options->sequences_max;
    uint32_t each = min_u32(backend_blocks_for(window) + 2, context);
    return context + each * options->sequences_max + backend_blocks_for(options->rows_max);
}

struct plan_attention_sizes plan_attention_sizes(const struct plan_attention_options *options) {
    const struct kv_layout *layout = options->layout;
    uint32_t pieces = plan_decode_pieces_max(options->kv_heads, options->multiprocessors);
    uint64_t pages =
        (uint64_t)layout->full_groups * table_entries(options, 0) +
        (uint64_t)layout->window_groups * table_entries(options, layout->window_tokens);
    return (struct plan_attention_sizes){
        .pages_max = pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX,
        .items_max = options->rows_max + pieces,
        .partials_max = PARTIALS_PER_ROW * options->rows_max + pieces,
    };
}

static bool open_work(const struct plan_attention *plan, struct plan_work *work) {
    work->prefixes = calloc(plan->sizes.items_max, sizeof *work->prefixes);
    work->tiles = calloc(plan->sizes.items_max, sizeof *work->tiles);
    work->decode = calloc(plan->sizes.items_max, sizeof *work->decode);
    work->merges = calloc(plan->sizes.items_max, sizeof *work->merges);
    return work->prefixes && work->tiles && work->decode && work->merges;
}

static bool open_arrays(struct plan_attention *plan) {
    const struct plan_attention_options *options = &plan->options;
    bool is_open = true;
    for (uint32_t kind = 0; kind < 2; kind++) {
        uint32_t entries = table_entries(options, plan->kinds[kind].window);
        if (options->sees_both && plan->kinds[kind].count > 0) {
            plan->seen[kind] = calloc(options->rows_max, sizeof *plan->seen[kind]);
            is_open = is_open && plan->seen[kind];
        }
        for (uint32_t i = 0; i < plan->kinds[kind].count; i++) {
            uint32_t group = plan->kinds[kind].first + i;
            plan->slots[group] = calloc(options->rows_max, sizeof *plan->slots[group]);
            plan->pages[group] = calloc(entries, sizeof *plan->pages[group]);
            is_open = is_open && plan->slots[group] && plan->pages[group];
        }
    }
    for (int i = 0; i < WORK_COUNT; i++) is_open = open_work(plan, &plan->works[i]) && is_open;
    plan->spans = calloc(options->sequences_max, sizeof *plan->spans);
    plan->tables = calloc(options->sequences_max, sizeof *plan->tables);
    plan->shared = calloc(options->sequences_max, sizeof *plan->shared);
    plan->kept_positions = calloc(options->rows_max, sizeof *plan->kept_positions);
    plan->whole = calloc(options->rows_max, sizeof *plan->whole);
    plan->found = calloc(options->rows_max, sizeof *plan->found);
    return is_open && plan->spans && plan->tables && plan->shared && plan->kept_positions &&
           plan->whole && plan->found;
}

enum err plan_attention_open(struct plan_attention **ret_plan,
                             const struct plan_attention_options *options, struct error *error) {
    _Static_assert(GPU_PAGE_TOKENS == BACKEND_BLOCK_TOKENS, "a block has one page per group");
    const struct kv_layout *layout = options->layout;
    struct plan_attention *plan = mem_new(1, sizeof *plan);
    plan->options = *options;
    plan->options.layout = NULL;
    plan->sizes = plan_attention_sizes(options);
    plan->heads_each = options->heads / options->kv_heads;
    plan->tile_rows = options->tile_rows_heads / plan->heads_each;
    plan->group_count = kv_layout_groups(layout);
    plan->kinds[0] = (struct group_kind){.count = layout->full_groups};
    plan->kinds[1] = (struct group_kind){.first = layout->full_groups,
                                         .count = layout->window_groups,
                                         .window = layout->window_tokens};
    assert(plan->tile_rows > 0 && plan->group_count <= GPU_GROUPS_MAX);
    struct plan_prefix_options prefix = {
        .group = plan->heads_each,
        .tile_rows = plan->tile_rows,
        .spans_max = options->sequences_max,
        .items_max = plan->sizes.items_max,
        .partials_max = PARTIALS_PER_ROW * options->rows_max,
        .reads_min = options->prefix_reads_min,
    };
    enum err err = plan_prefix_open(&plan->prefix, &prefix, error);
    if (err == OK && !open_arrays(plan))
        err = err_set(error, ERR_LIMIT, "no memory to plan steps of %u rows", options->rows_max);
    if (err == OK)
        *ret_plan = plan;
    else
        plan_attention_close(plan);
    return err;
}

void plan_attention_close(struct plan_attention *plan) {
    if (!plan) return;
    plan_prefix_close(&plan->prefix);
    free(plan->seen[0]);
    free(plan->seen[1]);
    for (uint32_t i = 0; i < plan->group_count; i++) {
        free(plan->slots[i]);
        free(plan->pages[i]);
    }
    for (int i = 0; i < WORK_COUNT; i++) {
        free(plan->works[i].prefixes);
        free(plan->works[i].tiles);
        free(plan->works[i].decode);
        free(plan->works[i].merges);
    }
    free(plan->spans);
    free(plan->tables);
    free(plan->shared);
    free(plan->kept_positions);
    free(plan->whole);
    free(plan->found);
    free(plan);
}

/* ---- pages ---- */

static const uint32_t *pages_of(const struct step_sequence *sequence, uint32_t group) {
    return sequence->pages + (size_t)group * sequence->page_stride;
}

/* Copies the page tables of a kind's groups, from the first block that a row sees. The tables of
 * all groups of a kind have the same places. */
static void copy_tables(struct plan_attention *plan, const struct group_kind *kind,
                        const struct step *step) {
    uint32_t count = 0, room = table_entries(&plan->options, kind->window);
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *sequence = &step->sequences[i];
        uint32_t first = backend_first_seen_block(kind->window, sequence->kv_tokens);
        uint32_t blocks = backend_blocks_for(sequence->kv_tokens + sequence->row_count) - first;
        if (count < first) count = first;
        assert(first + blocks <= sequence->block_count && count + blocks <= room);
        plan->tables[i] = count - first;
        for (uint32_t j = kind->first; j < kind->first + kind->count; j++)
            memcpy(plan->pages[j] + count, pages_of(sequence, j) + first,
                   blocks * sizeof(uint32_t));
        count += blocks;
    }
    for (uint32_t j = kind->first; j < kind->first + kind->count; j++) {
        plan->groups[j] = (struct gpu_group){
            .slots = plan->slots[j], .pages = plan->pages[j], .page_count = count};
        for (uint32_t i = 0; i < step->sequence_count; i++)
            plan_slots(&step->sequences[i], j, plan->options.page_count, plan->slots[j]);
    }
}

/* The first block that some row of the step sees. */
static uint32_t first_block_of(const struct step *step, uint32_t window) {
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < step->sequence_count; i++)
        first = min_u32(first, backend_first_seen_block(window, step->sequences[i].kv_tokens));
    return first;
}

/* Leading blocks that are equal in two tables, of which the first `from` do not matter. */
static uint32_t equal_blocks(const uint32_t *a, const uint32_t *b, uint32_t from, uint32_t most) {
    while (from < most && a[from] == b[from]) from++;
    return from;
}

/* Finds, for all pairs of neighbours, the leading blocks that are equal in all groups of the kind
 * and full before this step. */
static void find_shared(struct plan_attention *plan, const struct group_kind *kind,
                        const struct step *step, uint32_t first_block) {
    for (uint32_t i = 0; i + 1 < step->sequence_count; i++) {
        const struct step_sequence *a = &step->sequences[i], *b = &step->sequences[i + 1];
        uint32_t shared = min_u32(a->kv_tokens, b->kv_tokens) / GPU_PAGE_TOKENS;
        for (uint32_t j = kind->first; j < kind->first + kind->count; j++)
            shared = equal_blocks(pages_of(a, j), pages_of(b, j), first_block, shared);
        plan->shared[i] = shared;
    }
}

/* ---- texts whose rows see both sides ---- */

/* Sets up to where the rows see keys, in layers of the kind: a window has its row in the middle.
 * Otherwise all keys are seen, which their items end. */
static void see_both(struct plan_attention *plan, uint32_t kind, const struct step *step) {
    const uint32_t window = plan->kinds[kind].window;
    const uint32_t behind = window > 0 ? (window - 1) / 2 : ALL_BEHIND;
    if (!plan->options.sees_both) return;
    for (uint32_t i = 0; i < step->row_count; i++)
        plan->seen[kind][i] = step->positions[i] + behind;
}

/* ---- items ---- */

/* Rows of one sequence that are many enough to fill half a tile: they share no prefix, for they
 * read it together already, and its partials would cost more. */
static bool is_piece_of_prompt(const struct plan_attention *plan, const struct plan_span *span) {
    return span->row_count > 1 && 2 * span->row_count > plan->tile_rows;
}

/* Takes the prefix off spans that have many rows, or whose neighbour has. */
static void part_spans(const struct plan_attention *plan, struct plan_span *spans,
                       uint32_t span_count) {
    for (uint32_t i = 0; i < span_count; i++)
        if (is_piece_of_prompt(plan, &spans[i])) {
            spans[i].shared = 0;
            if (i > 0) spans[i - 1].shared = 0;
        }
}

static void add_decode_items(struct plan_attention *plan, const struct plan_span *span,
                             const uint32_t *positions, uint32_t *count) {
    for (uint32_t i = 0; i < span->row_count; i++) {
        uint32_t position = positions[span->row + i];
        plan->whole[(*count)++] =
            (struct gpu_decode_item){.row = span->row + i,
                                     .position = position,
                                     .begin = span->begin,
                                     .end = min_u32(position + 1, span->end),
                                     .pages = span->pages,
                                     .partial_in = span->partial + i * span->partial_step,
                                     .partial_count = span->partial_count,
                                     .partial_out = GPU_NONE};
    }
}

static void add_tile_items(struct plan_attention *plan, const struct plan_span *span,
                           const uint32_t *positions, uint32_t window, uint32_t *count) {
    for (uint32_t i = 0; i < span->row_count; i += plan->tile_rows) {
        uint32_t rows = min_u32(span->row_count - i, plan->tile_rows);
        uint32_t row = span->row + i, begin = plan_first_seen(window, positions[row]);
        plan->found[(*count)++] = (struct gpu_tile_item){
            .row = row,
            .row_count = rows,
            .begin = begin > span->begin ? begin : span->begin,
            .end = min_u32(positions[row + rows - 1] + 1, span->end),
            .pages = span->pages,
            .partial_in =
                span->partial_count > 0 ? span->partial + i * span->partial_step : GPU_NONE,
            .partial_out = GPU_NONE,
            .partial_step = span->partial_step};
    }
}

/* Makes a list of work from the spans. */
static void fill_work(struct plan_attention *plan, const struct group_kind *kind,
                      struct plan_work *work, uint32_t span_count, const uint32_t *positions,
                      uint32_t first_block, struct gpu_attention *ret_attention) {
    const struct plan_attention_options *options = &plan->options;
    uint32_t decode_count = 0, tile_count = 0;
    part_spans(plan, plan->spans, span_count);
    plan_prefix_fill(&plan->prefix, plan->spans, span_count, first_block, kind->window,
                     work->prefixes);
    for (uint32_t i = 0; i < span_count; i++) {
        const struct plan_span *span = &plan->spans[i];
        /* A tile continues from one partial per row. */
        if (span->row_count == 1 || span->partial_count > 1)
            add_decode_items(plan, span, positions, &decode_count);
        else
            add_tile_items(plan, span, positions, kind->window, &tile_count);
    }
    plan_prefix_sort(plan->found, tile_count, work->tiles);
    struct plan_decode decode = {.items = work->decode,
                                 .item_room = plan->sizes.items_max,
                                 .merges = work->merges,
                                 .merge_room = plan->sizes.items_max,
                                 .partial_first = plan->prefix.partial_count,
                                 .partial_room =
                                     plan->sizes.partials_max - plan->prefix.partial_count};
    plan_decode_fill(&decode, plan->whole, decode_count,
                     &(struct plan_decode_shape){.window = kind->window,
                                                 .kv_heads = options->kv_heads,
                                                 .multiprocessors = options->multiprocessors,
                                                 .split_tokens = options->split_tokens});
    *ret_attention = (struct gpu_attention){
        .prefixes = {.items = work->prefixes, .count = plan->prefix.item_count},
        .tiles = {.items = work->tiles, .count = tile_count},
        .decode = work->decode,
        .decode_count = decode.item_count,
        .merges = work->merges,
        .merge_count = decode.merge_count};
}

/* One span per sequence. */
static uint32_t span_all(struct plan_attention *plan, const struct step *step) {
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *sequence = &step->sequences[i];
        plan->spans[i] = (struct plan_span){.sequence = i,
                                            .row = sequence->row_first,
                                            .row_count = sequence->row_count,
                                            .position = sequence->kv_tokens,
                                            .end = sequence->kv_tokens + sequence->row_count,
                                            .pages = plan->tables[i],
                                            .shared = plan->shared[i]};
    }
    return step->sequence_count;
}

/* One span per sequence with wanted rows. */
static uint32_t span_wanted(struct plan_attention *plan, const struct step *step,
                            const uint32_t *positions, const uint32_t *wanted,
                            uint32_t wanted_count) {
    uint32_t count = 0, sequence = 0, shared = UINT32_MAX;
    for (uint32_t i = 0; i < wanted_count; i++) {
        uint32_t row = wanted[i];
        assert(row < step->row_count && (i == 0 || row > wanted[i - 1]));
        plan->kept_positions[i] = positions[row];
        while (row >= step->sequences[sequence].row_first + step->sequences[sequence].row_count)
            shared = min_u32(shared, plan->shared[sequence++]);
        if (count > 0 && plan->spans[count - 1].sequence == sequence) {
            plan->spans[count - 1].row_count++;
            continue;
        }
        if (count > 0) plan->spans[count - 1].shared = shared;
        plan->spans[count++] = (struct plan_span){.sequence = sequence,
                                                  .row = i,
                                                  .row_count = 1,
                                                  .position = step->positions[row],
                                                  .end = step->sequences[sequence].kv_tokens +
                                                         step->sequences[sequence].row_count,
                                                  .pages = plan->tables[sequence]};
        shared = UINT32_MAX;
    }
    return count;
}

/* Plans the groups of a kind. */
static void plan_kind(struct plan_attention *plan, uint32_t index, const struct step *step,
                      const uint32_t *wanted, uint32_t wanted_count) {
    const struct group_kind *kind = &plan->kinds[index];
    struct plan_work *work = &plan->works[index == 0 ? WORK_FULL : WORK_WINDOW];
    const uint32_t *positions = plan->options.sees_both ? plan->seen[index] : step->positions;
    uint32_t first_block = first_block_of(step, kind->window);
    uint32_t kept = plan->options.kept_group;
    copy_tables(plan, kind, step);
    see_both(plan, index, step);
    find_shared(plan, kind, step, first_block);
    struct gpu_attention all;
    fill_work(plan, kind, work, span_all(plan, step), positions, first_block, &all);
    for (uint32_t i = kind->first; i < kind->first + kind->count; i++) {
        plan->groups[i].all = all;
        if (plan->options.sees_both) plan->groups[i].seen = positions;
    }
    if (kept < kind->first || kept >= kind->first + kind->count) return;
    if (wanted_count == step->row_count)
        plan->groups[kept].kept = all;
    else
        fill_work(plan, kind, &plan->works[WORK_KEPT],
                  span_wanted(plan, step, positions, wanted, wanted_count), plan->kept_positions,
                  first_block, &plan->groups[kept].kept);
}

const struct gpu_group *plan_attention_step(struct plan_attention *plan, const struct step *step,
                                            const uint32_t *wanted, uint32_t wanted_count) {
    assert(step->row_count <= plan->options.rows_max);
    assert(step->sequence_count <= plan->options.sequences_max);
    for (uint32_t i = 0; i < 2; i++)
        if (plan->kinds[i].count > 0) plan_kind(plan, i, step, wanted, wanted_count);
    return plan->groups;
}
