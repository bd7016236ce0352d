/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_internal.h"
#include "plain_world.h"

#include <string.h>

/* A row of an attention. */
struct planned {
    uint32_t sequence, position;
    uint32_t begin; /* keys before it are in partials */
    uint32_t partial_in, partial_count;
};

struct planner {
    const struct world *world;
    struct world_items *items;
    struct gpu_attention *attention;
    struct planned rows[WORLD_ROWS];
    uint32_t row_count;
    unsigned how;
};

static uint32_t pages_of(uint32_t sequence) {
    return sequence * WORLD_BLOCKS;
}

static uint32_t tile_rows(const struct planner *planner) {
    const struct world_traits *t = &planner->world->traits;
    return PLAIN_TILE_HEADS / (t->heads / world_kv_heads(t));
}

/* The common prefix as tiles over all rows behind it, in one piece or two. */
static void plan_prefix(struct planner *planner) {
    struct world_items *items = planner->items;
    struct gpu_tiles *prefixes = &planner->attention->prefixes;
    uint32_t pieces = planner->how & PLAN_CUT ? 2 : 1, count = 0, most = tile_rows(planner);
    for (uint32_t i = 0; i < planner->row_count; i++) {
        struct planned *row = &planner->rows[i];
        uint32_t shared = planner->world->sequences[row->sequence].shared;
        if (shared == 0 || row->position < shared) continue;
        row->begin = shared;
        row->partial_in = count * pieces;
        row->partial_count = pieces;
        items->prefix_rows[count++] = i;
    }
    for (uint32_t i = 0; i < count; i += most)
        for (uint32_t piece = 0; piece < pieces; piece++)
            items->prefixes[prefixes->count++] = (struct gpu_tile_item){
                .row = i,
                .row_count = count - i < most ? count - i : most,
                .begin = piece * WORLD_SHARED / pieces,
                .end = (piece + 1) * WORLD_SHARED / pieces,
                .pages = pages_of(planner->rows[items->prefix_rows[i]].sequence),
                .partial_in = GPU_NONE,
                .partial_out = i * pieces + piece,
                .partial_step = pieces};
    prefixes->rows = items->prefix_rows;
    prefixes->row_count = count;
    items->partials = count * pieces;
}

/* The number of rows from `first` on that can be one tile; 1: none. */
static uint32_t tile_of(const struct planner *planner, uint32_t first) {
    const struct planned *rows = planner->rows;
    uint32_t count = 1;
    if (!(planner->how & PLAN_TILES) || rows[first].partial_count > 1) return 1;
    while (first + count < planner->row_count && count < tile_rows(planner) &&
           rows[first + count].sequence == rows[first].sequence &&
           rows[first + count].position == rows[first].position + count &&
           rows[first + count].partial_count == rows[first].partial_count)
        count++;
    return count;
}

static void add_tile(struct planner *planner, uint32_t first, uint32_t count) {
    const struct planned *row = &planner->rows[first];
    planner->items->tiles[planner->attention->tiles.count++] =
        (struct gpu_tile_item){.row = first,
                               .row_count = count,
                               .begin = row->begin,
                               .end = row->position + count,
                               .pages = pages_of(row->sequence),
                               .partial_in = row->partial_count ? row->partial_in : GPU_NONE,
                               .partial_out = GPU_NONE,
                               .partial_step = 1};
}

/* One decode item, or several that a merge adds up. */
static void add_decode(struct planner *planner, uint32_t index) {
    const struct planned *row = &planner->rows[index];
    struct gpu_attention *attention = planner->attention;
    uint32_t end = row->position + 1, first = planner->items->partials, count = 0;
    bool is_cut = planner->how & PLAN_CUT &&
                  row->begin / PLAIN_SPLIT_TOKENS != (end - 1) / PLAIN_SPLIT_TOKENS;
    for (uint32_t begin = row->begin; begin < end; count++) {
        uint32_t next = is_cut ? (begin / PLAIN_SPLIT_TOKENS + 1) * PLAIN_SPLIT_TOKENS : end;
        planner->items->decode[attention->decode_count++] =
            (struct gpu_decode_item){.row = index,
                                     .position = row->position,
                                     .begin = begin,
                                     .end = next < end ? next : end,
                                     .pages = pages_of(row->sequence),
                                     .partial_in = row->partial_in,
                                     .partial_count = begin == row->begin ? row->partial_count : 0,
                                     .partial_out = is_cut ? first + count : GPU_NONE};
        begin = next;
    }
    if (!is_cut) return;
    planner->items->merges[attention->merge_count++] =
        (struct gpu_merge_item){.row = index, .first = first, .count = count};
    planner->items->partials += count;
}

static void plan_attention(struct planner *planner) {
    struct world_items *items = planner->items;
    struct gpu_attention *attention = planner->attention;
    *attention = (struct gpu_attention){.prefixes = {.items = items->prefixes},
                                        .tiles = {.items = items->tiles},
                                        .decode = items->decode,
                                        .merges = items->merges};
    items->partials = 0;
    if (planner->how & PLAN_PREFIX) plan_prefix(planner);
    for (uint32_t i = 0; i < planner->row_count;) {
        uint32_t count = tile_of(planner, i);
        if (count > 1)
            add_tile(planner, i, count);
        else
            add_decode(planner, i);
        i += count;
    }
    if (!(planner->how & PLAN_LIST)) return;
    for (uint32_t i = 0; i < planner->row_count; i++) items->tile_rows[i] = i;
    attention->tiles.rows = items->tile_rows;
    attention->tiles.row_count = planner->row_count;
}

static void set_rows(const struct world *world, struct world_step *step,
                     const struct world_run *runs, uint32_t run_count, bool wants_all) {
    struct gpu_step *to = &step->step;
    for (uint32_t i = 0; i < run_count; i++)
        for (uint32_t j = 0; j < runs[i].count; j++) {
            const struct world_sequence *sequence = &world->sequences[runs[i].sequence];
            uint32_t row = to->row_count++, position = runs[i].position + j;
            step->tokens[row] =
                runs[i].is_pending ? ~(int32_t)runs[i].sequence : sequence->tokens[position];
            step->positions[row] = position;
            step->sequences[row] = runs[i].sequence;
            if (wants_all || j == runs[i].count - 1) step->wanted[to->wanted_count++] = row;
            for (uint32_t g = 0; g < world->limits.group_count; g++)
                step->slots[g][row] =
                    sequence->pages[g][position / GPU_PAGE_TOKENS] * GPU_PAGE_TOKENS +
                    position % GPU_PAGE_TOKENS;
        }
}

/* Where the rows of a run begin and end. */
static void plan_states(struct world *world, struct world_step *step, const struct world_run *runs,
                        uint32_t run_count) {
    struct gpu_step *to = &step->step;
    const uint32_t shared = WORLD_SEQUENCES, part = shared + 1;
    bool is_read = false; /* somebody begins from the shared state */
    if (world->limits.state_places == 0) return;
    for (uint32_t i = 0, row = 0; i < run_count; row += runs[i++].count) {
        const uint32_t own = runs[i].sequence, position = runs[i].position;
        const bool is_part = position == WORLD_SHARED + WORLD_PART;
        const bool goes_on = world->state_at[own] == position;
        struct gpu_state_item *item = &step->states[to->state_count++];
        *item = (struct gpu_state_item){
            .row = row, .rows = runs[i].count, .from = own, .to = own, .save = GPU_NONE};
        if (position == 0) item->from = GPU_NONE;
        if (!goes_on && own > 0 && position == WORLD_SHARED) item->from = shared;
        if (!goes_on && own > 0 && is_part) item->from = part;
        is_read |= item->from == shared;
        world->state_at[own] = position + runs[i].count;
    }
    for (uint32_t i = 0; i < run_count && !is_read; i++) {
        const uint32_t position = runs[i].position;
        if (runs[i].sequence != 0 || position >= WORLD_SHARED ||
            position + runs[i].count < WORLD_SHARED)
            continue;
        step->states[i].save = shared;
        step->states[i].save_rows = WORLD_SHARED - position;
    }
    to->states = step->states;
}

void world_plan(struct world *world, struct world_step *ret_step, uint64_t number,
                const struct world_run *runs, uint32_t run_count, bool wants_all, unsigned how) {
    struct world_step *step = ret_step;
    *step = (struct world_step){.step = {.number = number,
                                         .tokens = step->tokens,
                                         .positions = step->positions,
                                         .wanted = step->wanted,
                                         .groups = step->groups,
                                         .copies = step->copies}};
    set_rows(world, step, runs, run_count, wants_all);
    plan_states(world, step, runs, run_count);
    for (uint32_t g = 0; g < world->limits.group_count; g++) {
        struct gpu_group *group = &step->groups[g];
        for (uint32_t s = 0; s < WORLD_SEQUENCES; s++)
            memcpy(step->pages[g] + pages_of(s), world->sequences[s].pages[g],
                   sizeof world->sequences[s].pages[g]);
        group->slots = step->slots[g];
        group->pages = step->pages[g];
        group->page_count = WORLD_SEQUENCES * WORLD_BLOCKS;
        for (uint32_t kept = 0; kept < 2; kept++) {
            struct planner planner = {.world = world,
                                      .items = &step->items[g][kept],
                                      .attention = kept ? &group->kept : &group->all,
                                      .row_count =
                                          kept ? step->step.wanted_count : step->step.row_count,
                                      .how = how};
            for (uint32_t i = 0; i < planner.row_count; i++) {
                uint32_t row = kept ? step->wanted[i] : i;
                planner.rows[i].sequence = step->sequences[row];
                planner.rows[i].position = step->positions[row];
            }
            plan_attention(&planner);
        }
    }
}

/* Sequence 2 gets its copy from that of sequence 1, so the order of the copies counts. */
void world_plan_copies(struct world *world, struct world_step *ret_step, uint64_t number,
                       uint32_t index, unsigned how) {
    const uint32_t block = WORLD_SHARED / GPU_PAGE_TOKENS, begin = WORLD_SHARED + WORLD_PART;
    const struct world_run runs[WORLD_COPY_STEPS][2] = {
        {{0, 0, 48, false}}, {{1, begin, 20, false}, {2, begin, 9, false}}};
    world_plan(world, ret_step, number, runs[index], index + 1, true, how);
    if (index == 0 && ret_step->step.state_count > 0) {
        ret_step->states[0].save = WORLD_SEQUENCES + 1;
        ret_step->states[0].save_rows = begin;
    }
    for (uint32_t s = 0; s < 2 && index > 0; s++)
        for (uint32_t g = 0; g < world->limits.group_count; g++)
            ret_step->copies[ret_step->step.copy_count++] =
                (struct gpu_page_copy){.from = world->sequences[s].pages[g][block],
                                       .to = world->sequences[s + 1].pages[g][block]};
}

const struct world_run world_course[WORLD_COURSE][WORLD_SEQUENCES] = {
    {{0, 0, 40, false}},
    {{0, 40, 13, false}, {1, 32, 9, false}, {3, 0, 37, false}},
    {{0, 53, 1, false}, {1, 41, 30, false}, {2, 32, 20, false}, {3, 37, 1, false}},
    {{0, 54, 1, false}, {1, 71, 1, false}, {2, 52, 1, false}, {3, 38, 1, false}},
    {{1, 72, 1, false}, {2, 53, 1, false}},
};

uint32_t world_course_runs(uint32_t step) {
    uint32_t count = 0;
    while (count < WORLD_SEQUENCES && world_course[step][count].count > 0) count++;
    return count;
}
