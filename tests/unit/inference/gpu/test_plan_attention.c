/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "gpu/plan_attention.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 256u
#define SEQUENCES 64u
#define CONTEXT 2048u
#define BLOCKS (CONTEXT / 16)
#define GROUPS 3u /* one that sees all, two with a window */
#define WINDOW 100u
#define PAGES (SEQUENCES * BLOCKS * GROUPS)
#define PARTIALS 4096u

/* A random step. */
struct world {
    struct rng rng;
    struct step step;
    struct step_sequence sequences[SEQUENCES];
    uint32_t tables[SEQUENCES][GROUPS][BLOCKS];
    int32_t tokens[ROWS];
    uint32_t positions[ROWS];
    uint32_t of[ROWS]; /* sequence of each row */
    uint32_t wanted[ROWS];
    uint32_t wanted_count;
};

static uint32_t below(struct world *world, uint32_t bound) {
    return (uint32_t)rng_below(&world->rng, bound);
}

/* A table that shares leading blocks with an earlier one, and has pages of its own behind them. */
static void make_table(struct world *world, uint32_t index, uint32_t shared) {
    for (uint32_t block = 0; block < BLOCKS; block++)
        for (uint32_t group = 0; group < GROUPS; group++)
            world->tables[index][group][block] = block < shared
                                                     ? world->tables[index - 1][group][block]
                                                     : ((index * BLOCKS) + block) * GROUPS + group;
}

/* Entries that no row sees: as they were, or of any page. */
static void forget_passed(struct world *world, uint32_t index, uint32_t kv_tokens) {
    uint32_t first = backend_first_seen_block(WINDOW, kv_tokens);
    if (below(world, 2) == 0) return;
    for (uint32_t block = 0; block < first; block++)
        for (uint32_t group = 1; group < GROUPS; group++)
            world->tables[index][group][block] = below(world, PAGES);
}

static void add_sequence(struct world *world, uint32_t row_count, uint32_t shared_blocks,
                         uint32_t kv_tokens) {
    struct step *step = &world->step;
    uint32_t index = step->sequence_count++;
    world->sequences[index] = (struct step_sequence){.slot = index,
                                                     .row_first = step->row_count,
                                                     .row_count = row_count,
                                                     .kv_tokens = kv_tokens,
                                                     .block_count = BLOCKS,
                                                     .page_stride = BLOCKS,
                                                     .pages = world->tables[index][0]};
    make_table(world, index, shared_blocks);
    for (uint32_t i = 0; i < row_count; i++, step->row_count++) {
        world->positions[step->row_count] = kv_tokens + i;
        world->of[step->row_count] = index;
    }
}

static void make_world(struct world *world, uint64_t seed) {
    *world = (struct world){.rng = {seed}};
    world->step = (struct step){
        .tokens = world->tokens, .positions = world->positions, .sequences = world->sequences};
    uint32_t count = 1 + below(world, SEQUENCES), longest = 1 + below(world, CONTEXT - 200);
    uint32_t kv_before = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t left = ROWS - world->step.row_count;
        uint32_t rows = below(world, 4) == 0 ? 1 + below(world, 100) : 1;
        if (rows > left) rows = left;
        if (rows == 0) break;
        uint32_t kv_tokens = below(world, longest),
                 most = kv_tokens < kv_before ? kv_tokens : kv_before;
        uint32_t shared = i > 0 && below(world, 5) > 0 ? below(world, most / 16 + 1) : 0;
        if (below(world, 2) == 0 && i > 0) shared = most / 16;
        add_sequence(world, rows, shared, kv_tokens);
        kv_before = kv_tokens;
    }
    for (uint32_t i = 0; i < world->step.sequence_count; i++)
        forget_passed(world, i, world->sequences[i].kv_tokens);
    for (uint32_t row = 0; row < world->step.row_count; row++) {
        const struct step_sequence *sequence = &world->sequences[world->of[row]];
        bool is_last = row == sequence->row_first + sequence->row_count - 1;
        if (is_last || below(world, 5) == 0) world->wanted[world->wanted_count++] = row;
    }
}

/* What the items of a list of work do, row by row. */
struct trace {
    const struct world *world;
    const struct gpu_group *group;
    uint32_t group_index;
    uint32_t window;
    const uint32_t *rows; /* row of the step of each row; NULL: itself */
    uint32_t row_count;
    uint16_t *seen; /* (ROWS, CONTEXT) how often a row's items have the key */
    bool is_finished[ROWS];
    struct {
        uint32_t row;
        uint32_t launch; /* that leaves it; 0: none */
        bool is_read;
    } partials[PARTIALS];
};

static void see(struct trace *trace, uint32_t row, uint32_t begin, uint32_t end, uint32_t pages) {
    const struct world *world = trace->world;
    assert_true(row < trace->row_count);
    uint32_t of_step = trace->rows ? trace->rows[row] : row;
    uint32_t position = world->positions[of_step];
    uint32_t first =
        trace->window && position + 1 > trace->window ? position + 1 - trace->window : 0;
    const uint32_t *table = world->tables[world->of[of_step]][trace->group_index];
    for (uint32_t key = begin > first ? begin : first; key < end && key <= position; key++) {
        assert_true(pages + key / 16 < trace->group->page_count);
        assert_int_equal(trace->group->pages[pages + key / 16], table[key / 16]);
        trace->seen[row * CONTEXT + key]++;
    }
}

static void leave(struct trace *trace, uint32_t partial, uint32_t row, uint32_t launch) {
    assert_true(partial < PARTIALS);
    assert_int_equal(trace->partials[partial].launch, 0);
    trace->partials[partial].row = row;
    trace->partials[partial].launch = launch;
}

static void take(struct trace *trace, uint32_t partial, uint32_t row, uint32_t launch) {
    assert_true(partial < PARTIALS);
    assert_true(trace->partials[partial].launch > 0 && trace->partials[partial].launch < launch);
    assert_int_equal(trace->partials[partial].row, row);
    assert_false(trace->partials[partial].is_read);
    trace->partials[partial].is_read = true;
}

static void finish(struct trace *trace, uint32_t row) {
    assert_false(trace->is_finished[row]);
    trace->is_finished[row] = true;
}

static void trace_tiles(struct trace *trace, const struct gpu_tiles *tiles, uint32_t launch,
                        uint32_t tile_rows) {
    assert_null(tiles->rows);
    for (uint32_t i = 0; i < tiles->count; i++) {
        const struct gpu_tile_item *item = &tiles->items[i];
        assert_true(item->row_count >= 1 && item->row_count <= tile_rows &&
                    item->begin < item->end);
        for (uint32_t j = 0; j < item->row_count; j++) {
            see(trace, item->row + j, item->begin, item->end, item->pages);
            if (item->partial_in != GPU_NONE)
                take(trace, item->partial_in + j * item->partial_step, item->row + j, launch);
            if (item->partial_out != GPU_NONE)
                leave(trace, item->partial_out + j * item->partial_step, item->row + j, launch);
            else
                finish(trace, item->row + j);
        }
    }
}

static void trace_decode(struct trace *trace, const struct gpu_attention *work) {
    for (uint32_t i = 0; i < work->decode_count; i++) {
        const struct gpu_decode_item *item = &work->decode[i];
        uint32_t row = trace->rows ? trace->rows[item->row] : item->row;
        assert_int_equal(item->position, trace->world->positions[row]);
        assert_true(item->begin < item->end);
        see(trace, item->row, item->begin, item->end, item->pages);
        for (uint32_t j = 0; j < item->partial_count; j++)
            take(trace, item->partial_in + j, item->row, 2);
        if (item->partial_out != GPU_NONE)
            leave(trace, item->partial_out, item->row, 2);
        else
            finish(trace, item->row);
    }
    for (uint32_t i = 0; i < work->merge_count; i++) {
        const struct gpu_merge_item *item = &work->merges[i];
        for (uint32_t j = 0; j < item->count; j++) take(trace, item->first + j, item->row, 3);
        finish(trace, item->row);
    }
}

static void expect_covered(const struct trace *trace) {
    for (uint32_t row = 0; row < trace->row_count; row++) {
        uint32_t position = trace->world->positions[trace->rows ? trace->rows[row] : row];
        uint32_t first =
            trace->window && position + 1 > trace->window ? position + 1 - trace->window : 0;
        assert_true(trace->is_finished[row]);
        for (uint32_t key = first; key <= position; key++)
            assert_int_equal(trace->seen[row * CONTEXT + key], 1);
    }
    for (uint32_t i = 0; i < PARTIALS; i++)
        assert_true(trace->partials[i].launch == 0 || trace->partials[i].is_read);
}

static void check_work(const struct world *world, const struct plan_attention_options *options,
                       const struct gpu_group *groups, uint32_t group, bool is_kept) {
    const struct plan_attention_sizes sizes = plan_attention_sizes(options);
    const struct gpu_attention *work = is_kept ? &groups[group].kept : &groups[group].all;
    struct trace *trace = calloc(1, sizeof *trace);
    trace->world = world;
    trace->group = &groups[group];
    trace->group_index = group;
    trace->window = group > 0 ? WINDOW : 0;
    trace->rows = is_kept ? world->wanted : NULL;
    trace->row_count = is_kept ? world->wanted_count : world->step.row_count;
    trace->seen = calloc((size_t)ROWS * CONTEXT, sizeof *trace->seen);
    assert_true(work->prefixes.count <= sizes.items_max && work->tiles.count <= sizes.items_max);
    assert_true(work->decode_count <= sizes.items_max && work->merge_count <= sizes.items_max);
    uint32_t tile_rows = options->tile_rows_heads / (options->heads / options->kv_heads);
    trace_tiles(trace, &work->prefixes, 1, tile_rows);
    trace_tiles(trace, &work->tiles, 2, tile_rows);
    trace_decode(trace, work);
    expect_covered(trace);
    for (uint32_t i = sizes.partials_max; i < PARTIALS; i++)
        assert_int_equal(trace->partials[i].launch, 0);
    free(trace->seen);
    free(trace);
}

static void expect_slots(const struct world *world, const struct gpu_group *groups) {
    for (uint32_t group = 0; group < GROUPS; group++)
        for (uint32_t row = 0; row < world->step.row_count; row++) {
            uint32_t position = world->positions[row];
            assert_int_equal(groups[group].slots[row],
                             world->tables[world->of[row]][group][position / 16] * 16 +
                                 position % 16);
        }
}

static const struct kv_layout layout = {
    .layers_each = 2, .full_groups = 1, .window_groups = 2, .window_tokens = WINDOW};

static struct plan_attention_options options_of(uint64_t seed) {
    static const uint32_t heads[][2] = {{32, 8}, {8, 1}, {4, 4}, {16, 2}};
    return (struct plan_attention_options){.layout = &layout,
                                           .heads = heads[seed % 4][0],
                                           .kv_heads = heads[seed % 4][1],
                                           .kept_group = (uint32_t)(seed % GROUPS),
                                           .tile_rows_heads = 64,
                                           .split_tokens = 64,
                                           .multiprocessors = seed % 3 == 0 ? 0 : 132,
                                           .page_count = PAGES,
                                           .rows_max = ROWS,
                                           .sequences_max = SEQUENCES,
                                           .context_max = CONTEXT};
}

static void every_row_has_each_of_its_keys_once(void **state) {
    (void)state;
    struct world *world = calloc(1, sizeof *world);
    uint32_t prefixes = 0, merges = 0, continued_tiles = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct plan_attention_options options = options_of(seed);
        struct plan_attention *plan;
        struct error error;
        assert_int_equal(plan_attention_open(&plan, &options, &error), OK);
        make_world(world, seed);
        const struct gpu_group *groups =
            plan_attention_step(plan, &world->step, world->wanted, world->wanted_count);
        expect_slots(world, groups);
        uint32_t pages = groups[0].page_count + groups[1].page_count + groups[2].page_count;
        assert_true(pages <= plan_attention_sizes(&options).pages_max);
        for (uint32_t i = 0; i < GROUPS; i++) check_work(world, &options, groups, i, false);
        check_work(world, &options, groups, options.kept_group, true);
        prefixes += groups[0].all.prefixes.count;
        merges += groups[0].all.merge_count;
        for (uint32_t i = 0; i < groups[0].all.tiles.count; i++)
            continued_tiles += groups[0].all.tiles.items[i].partial_in != GPU_NONE;
        plan_attention_close(plan);
    }
    assert_true(prefixes > 100 && merges > 20 && continued_tiles > 30);
    free(world);
}

static uint64_t reads_of(const struct gpu_tiles *prefixes) {
    uint64_t reads = 0;
    for (uint32_t i = 0; i < prefixes->count; i++) {
        const struct gpu_tile_item *item = &prefixes->items[i];
        reads += (uint64_t)item->row_count * (item->end - item->begin);
    }
    return reads;
}

/* Reads that the prefixes of a world's first group save. */
static uint64_t reads_with(struct world *world, struct plan_attention_options *options,
                           uint64_t reads_min) {
    struct plan_attention *plan;
    struct error error;
    options->prefix_reads_min = reads_min;
    assert_int_equal(plan_attention_open(&plan, options, &error), OK);
    const struct gpu_group *groups =
        plan_attention_step(plan, &world->step, world->wanted, world->wanted_count);
    for (uint32_t i = 0; i < GROUPS; i++) check_work(world, options, groups, i, false);
    uint64_t reads = reads_of(&groups[0].all.prefixes);
    plan_attention_close(plan);
    return reads;
}

static void prefixes_that_save_too_few_reads_are_left_to_the_rows(void **state) {
    (void)state;
    struct world *world = calloc(1, sizeof *world);
    uint32_t compared = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct plan_attention_options options = options_of(seed);
        make_world(world, seed);
        uint64_t reads = reads_with(world, &options, 0);
        assert_int_equal(reads_with(world, &options, reads), reads);
        assert_int_equal(reads_with(world, &options, reads + 1), 0);
        compared += reads > 0;
    }
    assert_true(compared > 5);
    free(world);
}

static void a_step_without_wanted_rows_keeps_none(void **state) {
    (void)state;
    struct world *world = calloc(1, sizeof *world);
    struct plan_attention_options options = options_of(0);
    struct plan_attention *plan;
    struct error error;
    assert_int_equal(plan_attention_open(&plan, &options, &error), OK);
    make_world(world, 1);
    const struct gpu_group *groups = plan_attention_step(plan, &world->step, world->wanted, 0);
    assert_int_equal(groups[0].kept.decode_count + groups[0].kept.tiles.count, 0);
    plan_attention_close(plan);
    free(world);
}

static void equal_steps_have_equal_plans_whatever_came_before(void **state) {
    (void)state;
    struct world *world = calloc(1, sizeof *world);
    struct plan_attention_options options = options_of(4);
    struct plan_attention *plans[2];
    const struct gpu_attention *works[2];
    struct error error;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(plan_attention_open(&plans[i], &options, &error), OK);
        if (i == 1) {
            make_world(world, 77);
            plan_attention_step(plans[i], &world->step, world->wanted, world->wanted_count);
        }
        make_world(world, 5);
        works[i] =
            &plan_attention_step(plans[i], &world->step, world->wanted, world->wanted_count)[0].all;
    }
    const struct gpu_attention *a = works[0], *b = works[1];
    assert_int_equal(a->prefixes.count, b->prefixes.count);
    assert_int_equal(a->decode_count, b->decode_count);
    assert_memory_equal(a->prefixes.items, b->prefixes.items,
                        a->prefixes.count * sizeof *a->prefixes.items);
    assert_memory_equal(a->decode, b->decode, a->decode_count * sizeof *a->decode);
    for (int i = 0; i < 2; i++) plan_attention_close(plans[i]);
    free(world);
}

/* 16 decode rows that share 20 blocks; the last 8 share 6 more. */
static void a_tree_of_prefixes_is_read_node_by_node(void **state) {
    (void)state;
    struct world *world = calloc(1, sizeof *world);
    struct plan_attention_options options = options_of(3); /* 8 query heads per KV head */
    options.kept_group = 0;
    struct plan_attention *plan;
    struct error error;
    assert_int_equal(plan_attention_open(&plan, &options, &error), OK);
    *world = (struct world){.rng = {1}};
    world->step = (struct step){
        .tokens = world->tokens, .positions = world->positions, .sequences = world->sequences};
    for (uint32_t i = 0; i < 16; i++) add_sequence(world, 1, i == 0 ? 0 : i < 9 ? 20 : 26, 500 + i);
    const struct gpu_attention *all = &plan_attention_step(plan, &world->step, NULL, 0)[0].all;
    /* A tile has 8 rows: the root takes two items, the node below it one. */
    assert_int_equal(all->prefixes.count, 3);
    assert_int_equal(all->prefixes.items[0].end, 320);
    assert_int_equal(all->prefixes.items[2].begin, 320);
    assert_int_equal(all->prefixes.items[2].end, 26 * 16);
    assert_int_equal(all->prefixes.items[2].row, 8);
    for (uint32_t i = 0; i < all->decode_count; i++) {
        const struct gpu_decode_item *item = &all->decode[i];
        if (item->begin % 64 != 0 && item->begin != 26 * 16) continue;
        assert_true(item->partial_count <= (item->row < 8 ? 1 : 2));
    }
    plan_attention_close(plan);
    free(world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_each_of_its_keys_once),
        cmocka_unit_test(prefixes_that_save_too_few_reads_are_left_to_the_rows),
        cmocka_unit_test(a_step_without_wanted_rows_keeps_none),
        cmocka_unit_test(equal_steps_have_equal_plans_whatever_came_before),
        cmocka_unit_test(a_tree_of_prefixes_is_read_node_by_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
