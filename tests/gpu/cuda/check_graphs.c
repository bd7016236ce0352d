/* SPDX-License-Identifier: Apache-2.0 */

/* Steps as graphs, kernel by kernel, and careful ones, which must agree in every bit. A course has
 * pieces of prompts, decode of 1 to 144 rows in an order in which the number of rows grows and
 * falls, and both at once: one sequence is long, so that its items are cut, and all others share a
 * prefix. So launches that a step has, the next one with the same graph may lack. */

#include "check_plugin.h"
#include "plain_world.h"

#include "gpu/plan_attention.h"

#include <stdlib.h>
#include <string.h>

#define SEQUENCES 144u
#define ROWS 160u
#define LONG 290u /* tokens of the first sequence: more than split_tokens */
#define SHARED 64u
#define BLOCKS 24u
#define OWN_BLOCKS 2u /* blocks in a sequence behind the shared ones */
#define PIECE 15u     /* rows of a prompt */
#define FIRST_NUMBER 7000u
#define FEW 128u         /* rows of the largest graph where fewer are asked for */
#define WARM_STEPS 3u    /* steps in `warm`, which are careful ones, too */
#define CAREFUL_STEPS 9u /* steps in the course: graphs can run some steps before and behind */

enum {
    STEP_PROMPT = 1, /* prompt for sequence 0, then for the prefix; its last row is wanted */
    STEP_LATE = 2,   /* the first row is drawn by a later call, with an edit */
    STEP_SPLIT = 4,  /* an item of the prefix per row: more than a plan has */
    STEP_TWO = 8,    /* the first sequence has two rows, which are a tile */
    STEP_PIECE = 16, /* the first sequence has PIECE rows, of which the last one is wanted */
};

static const struct {
    uint32_t count; /* sequences that decode, or rows of a prompt */
    unsigned how;
} course[] = {
    {145, STEP_PROMPT},
    {145, STEP_PROMPT},
    {64, STEP_PROMPT},
    {135, STEP_PIECE}, /* fewer tiles than the step before had in the same memory */
    {1, 0},
    {15, 0},
    {16, 0},
    {17, 0},
    {128, 0},
    {129, 0},
    {127, STEP_LATE},
    {16, STEP_SPLIT},
    {16, 0},
    {1, STEP_LATE},
    {16, STEP_TWO},
    {40, STEP_LATE},
    {144, 0},
    {1, 0},
    {120, STEP_PIECE},
    {2, 0},
};
#define STEPS (sizeof course / sizeof course[0])

/* The results of a course. */
struct outcome {
    int32_t tokens[STEPS][ROWS];
    struct gpu_answer answers[STEPS];
    uint32_t logits[STEPS][ROWS][WORLD_VOCAB_MAX]; /* bits of float32 */
    uint32_t nonfinite_rows;
    struct gpu_counters counters;
};

struct graph_check {
    const struct gpu_table *table;
    struct world world;
    struct plan_attention *plan;
    uint32_t tables[SEQUENCES][2][BLOCKS];
    uint32_t known[SEQUENCES]; /* tokens in the cache */
    bool is_drawn[SEQUENCES];  /* the next token is on the GPU alone */
    struct step_sequence sequences[SEQUENCES];
    uint32_t sequence_count;
    int32_t tokens[ROWS];
    uint32_t positions[ROWS], wanted[ROWS], rows[ROWS];
    struct gpu_draw draws[ROWS];
    struct gpu_group groups[2];
    struct gpu_tile_item split[2][ROWS];
    struct gpu_step step;
    struct gpu_state_item states[SEQUENCES];
};

/* ---- a GPU ---- */

static void make_tables(struct graph_check *check) {
    uint32_t page = 0;
    for (uint32_t g = 0; g < check->world.limits.group_count; g++) {
        for (uint32_t b = 0; b < BLOCKS; b++) check->tables[0][g][b] = page++;
        for (uint32_t s = 1; s < SEQUENCES; s++)
            for (uint32_t b = 0; b < SHARED / GPU_PAGE_TOKENS + OWN_BLOCKS; b++)
                check->tables[s][g][b] =
                    s > 1 && b < SHARED / GPU_PAGE_TOKENS ? check->tables[1][g][b] : page++;
    }
    check->world.limits.page_count_min = check->world.limits.page_count_max = page;
}

static void open_check(struct graph_check *check, const struct world_traits *traits,
                       const struct gpu_options *opened) {
    struct world *world = &check->world;
    struct gpu_info card;
    struct error error = {0};
    uint32_t count;
    world_make(world, traits, 11);
    world_card_forms(world);
    make_tables(check);
    must(check->table->list(&card, 1, &count, &error), &error, "list");
    struct gpu_limits *limits = &world->limits;
    const struct kv_layout layout = {.layers_each = limits->layer_places,
                                     .full_groups = 1,
                                     .window_groups = limits->group_count - 1,
                                     .window_tokens = traits->window};
    limits->rows_max = limits->logit_rows_max = ROWS;
    limits->sequences_max = SEQUENCES;
    if (limits->state_places > 0) limits->state_places = SEQUENCES + 1;
    limits->context_max = BLOCKS * GPU_PAGE_TOKENS;
    const struct plan_attention_options options = {.layout = &layout,
                                                   .heads = traits->heads,
                                                   .kv_heads = world_kv_heads(traits),
                                                   .kept_group = traits->is_local_last,
                                                   .tile_rows_heads = check->table->tile_rows_heads,
                                                   .split_tokens = check->table->split_tokens,
                                                   .multiprocessors = card.multiprocessors,
                                                   .page_count = limits->page_count_max,
                                                   .rows_max = limits->rows_max,
                                                   .sequences_max = limits->sequences_max,
                                                   .context_max = limits->context_max};
    const struct plan_attention_sizes sizes = plan_attention_sizes(&options);
    limits->pages_max = sizes.pages_max;
    limits->items_max = sizes.items_max;
    limits->partials_max = sizes.partials_max;
    must(plan_attention_open(&check->plan, &options, &error), &error, "plan");
    open_checked(check->table, *opened, &world->gpu);
    must(check->table->prepare(world->gpu, &world->program, limits, &world->ledger, &error), &error,
         "prepare");
    for (uint32_t i = 0; i < world->program.matrix_count; i++) world_fill(world, i);
    warm_checked(check->table, world->gpu);
}

static void close_check(struct graph_check *check) {
    plan_attention_close(check->plan);
    world_close(&check->world);
}

/* ---- a step ---- */

/* The state of the prefix is saved in the last place. */
static void add_state(struct graph_check *check, uint32_t index, uint32_t first, uint32_t rows) {
    const uint32_t known = check->known[index];
    if (check->world.limits.state_places == 0) return;
    struct gpu_state_item *item = &check->states[check->step.state_count++];
    *item = (struct gpu_state_item){
        .row = first, .rows = rows, .from = index, .to = index, .save = GPU_NONE};
    if (known == 0) item->from = GPU_NONE;
    if (index > 1 && known == SHARED) item->from = SEQUENCES;
    if (index == 1 && known < SHARED && known + rows >= SHARED)
        item->save = SEQUENCES, item->save_rows = SHARED - known;
    check->step.states = check->states;
}

static void add_sequence(struct graph_check *check, uint32_t index, uint32_t rows) {
    struct gpu_step *step = &check->step;
    const uint32_t first = step->row_count, known = check->known[index];
    check->sequences[check->sequence_count++] =
        (struct step_sequence){.slot = index,
                               .row_first = first,
                               .row_count = rows,
                               .kv_tokens = known,
                               .block_count = (known + rows - 1) / GPU_PAGE_TOKENS + 1,
                               .page_stride = BLOCKS,
                               .pages = check->tables[index][0]};
    for (uint32_t i = 0; i < rows; i++) {
        check->tokens[first + i] = (int32_t)((index * 13 + known + i) * 7 % check->world.vocab);
        check->positions[first + i] = known + i;
        check->draws[first + i] = (struct gpu_draw){.mask = -1, .slot = -1};
    }
    if (check->is_drawn[index]) check->tokens[first] = ~(int32_t)index;
    add_state(check, index, first, rows);
    step->row_count += rows;
    check->known[index] += rows;
    check->is_drawn[index] = true;
}

/* Leaves an item per row of the prefixes. */
static void split_prefixes(struct graph_check *check) {
    for (uint32_t g = 0; g < check->world.limits.group_count; g++) {
        struct gpu_tiles *prefixes = &check->groups[g].all.prefixes;
        uint32_t count = 0;
        for (uint32_t i = 0; i < prefixes->count; i++)
            for (uint32_t row = 0; row < prefixes->items[i].row_count; row++) {
                struct gpu_tile_item *item = &check->split[g][count++];
                *item = prefixes->items[i];
                item->row += row;
                item->row_count = 1;
                item->partial_out += row * item->partial_step;
            }
        *prefixes = (struct gpu_tiles){.items = check->split[g], .count = count};
    }
    const uint32_t kept = check->world.traits.is_local_last;
    check->groups[kept].kept = check->groups[kept].all;
}

static void make_step(struct graph_check *check, uint32_t index) {
    const uint32_t count = course[index].count;
    const unsigned how = course[index].how;
    struct gpu_step *step = &check->step;
    check->sequence_count = 0;
    *step = (struct gpu_step){.number = FIRST_NUMBER + index,
                              .tokens = check->tokens,
                              .positions = check->positions,
                              .wanted = check->wanted,
                              .groups = check->groups};
    if (how & STEP_PROMPT) {
        uint32_t sequence = check->known[0] < LONG ? 0 : 1;
        add_sequence(check, sequence, count);
        check->is_drawn[sequence] = check->known[sequence] == (sequence == 0 ? LONG : SHARED);
        check->wanted[step->wanted_count++] = count - 1;
    }
    for (uint32_t s = 0; !(how & STEP_PROMPT) && s < count; s++) {
        const bool has_piece = how & STEP_PIECE && s == 0;
        const uint32_t first = step->row_count;
        add_sequence(check, s, has_piece ? PIECE : s == 0 && how & STEP_TWO ? 2 : 1);
        for (uint32_t row = has_piece ? step->row_count - 1 : first; row < step->row_count; row++)
            check->wanted[step->wanted_count++] = row;
    }
    for (uint32_t s = 0; s < check->sequence_count; s++) {
        const struct step_sequence *sequence = &check->sequences[s];
        uint32_t row = sequence->row_first + sequence->row_count - 1;
        row -= step->row_count - step->wanted_count; /* those before the first wanted one */
        check->draws[row].slot = (int32_t)sequence->slot;
    }
    const struct step planned = {.row_count = step->row_count,
                                 .sequence_count = check->sequence_count,
                                 .tokens = check->tokens,
                                 .positions = check->positions,
                                 .sequences = check->sequences};
    memcpy(check->groups,
           plan_attention_step(check->plan, &planned, check->wanted, step->wanted_count),
           check->world.limits.group_count * sizeof check->groups[0]);
    if (how & STEP_SPLIT) split_prefixes(check);
}

/* Submits the step with its draws, the first of which may come later. */
static void submit(struct graph_check *check, uint32_t index) {
    struct error error = {0};
    const bool is_late = course[index].how & STEP_LATE;
    const struct gpu_ask ask = {.token = -1, .top_count = 1};
    const struct draw_edit edit = {.token = 3, .kind = DRAW_FORBID};
    struct gpu_samples samples = {.number = check->step.number,
                                  .count = check->step.wanted_count - is_late,
                                  .rows = check->rows + is_late,
                                  .draws = check->draws + is_late,
                                  .mask_words = (check->world.vocab + 31) / 32,
                                  .asks = &ask,
                                  .ask_count = !is_late};
    must(check->table->submit(check->world.gpu, &check->step, &samples, &error), &error, "submit");
    if (!is_late) return;
    check->draws[0].edit_count = 1;
    samples.count = 1;
    samples.rows = check->rows;
    samples.draws = check->draws;
    samples.edits = &edit;
    samples.edit_count = samples.ask_count = 1;
    must(check->table->sample(check->world.gpu, &samples, &error), &error, "sample");
}

static void wait_for(struct graph_check *check, uint32_t index, struct outcome *outcome) {
    struct error error = {0};
    struct gpu_result result = {.tokens = outcome->tokens[index],
                                .answers = &outcome->answers[index]};
    must(check->table->wait(check->world.gpu, FIRST_NUMBER + index, &result, &error), &error,
         "wait");
    outcome->nonfinite_rows += result.nonfinite_rows;
}

/* Runs the course. With is_ahead two steps are under way, and no logits are read. */
static struct outcome *run(struct graph_check *check, bool is_ahead) {
    struct outcome *outcome = calloc(1, sizeof *outcome);
    struct world *world = &check->world;
    struct error error = {0};
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        check->known[s] = s < 2 ? 0 : SHARED;
        check->is_drawn[s] = false;
    }
    for (uint32_t i = 0; i < ROWS; i++) check->rows[i] = i;
    for (uint32_t i = 0; i < STEPS; i++) {
        make_step(check, i);
        submit(check, i);
        if (is_ahead && i > 0) wait_for(check, i - 1, outcome);
        if (is_ahead) continue;
        wait_for(check, i, outcome);
        float *logits = calloc((size_t)ROWS * world->vocab_rows, sizeof *logits);
        must(check->table->logits(world->gpu, 0, check->step.wanted_count, logits, &error), &error,
             "logits");
        for (uint32_t row = 0; row < check->step.wanted_count; row++)
            memcpy(outcome->logits[i][row], logits + (size_t)row * world->vocab_rows,
                   world->vocab_rows * sizeof *logits);
        free(logits);
    }
    if (is_ahead) wait_for(check, STEPS - 1, outcome);
    must(check->table->counters(world->gpu, &outcome->counters, &error), &error, "counters");
    return outcome;
}

/* ---- what must be equal ---- */

static bool is_equal_answer(const struct gpu_answer *a, const struct gpu_answer *b) {
    return a->token == b->token && a->rank == b->rank && a->logit == b->logit && a->lse == b->lse;
}

static bool is_equal(const struct outcome *a, const struct outcome *b, bool has_logits) {
    bool is_equal = a->nonfinite_rows == 0 && b->nonfinite_rows == 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        bool is_same =
            memcmp(a->tokens[i], b->tokens[i], sizeof a->tokens[i]) == 0 &&
            is_equal_answer(&a->answers[i], &b->answers[i]) &&
            (!has_logits || memcmp(a->logits[i], b->logits[i], sizeof a->logits[i]) == 0);
        if (!is_same) note("step %u of %u sequences differs", i, course[i].count);
        is_equal &= is_same;
    }
    return is_equal;
}

/* Steps of the course from `first` on that have at most `most` rows. */
static uint64_t graph_steps(uint32_t first, uint32_t most) {
    uint64_t count = 0;
    for (uint32_t i = first; i < STEPS; i++) {
        const unsigned how = course[i].how;
        count +=
            course[i].count + (how & STEP_PIECE ? PIECE - 1 : 0) + (how & STEP_TWO ? 1 : 0) <= most;
    }
    return count;
}

/* Careful steps are no graphs, until there have been as many as were asked for. */
static void check_careful(struct graph_check *check, const struct world_traits *traits,
                          uint64_t memory_bytes, const struct outcome *plain) {
    const struct gpu_options all = {.memory_bytes = memory_bytes, .careful_steps = 1000};
    const struct gpu_options some = {.memory_bytes = memory_bytes,
                                     .careful_steps = WARM_STEPS + CAREFUL_STEPS};
    open_check(check, traits, &all);
    struct outcome *careful = run(check, false);
    struct outcome *ahead = run(check, true);
    close_check(check);
    report(ahead->counters.graphs > 0 && ahead->counters.graph_steps == 0 &&
               is_equal(plain, careful, true) && is_equal(careful, ahead, false),
           "%s: careful steps give the bits of others", traits->name);
    open_check(check, traits, &some);
    struct outcome *mixed = run(check, false);
    close_check(check);
    report(mixed->counters.graph_steps == graph_steps(CAREFUL_STEPS, ROWS) &&
               is_equal(plain, mixed, true),
           "%s: the first steps alone are careful", traits->name);
    free(careful);
    free(ahead);
    free(mixed);
}

/* With graphs of at most `most` rows. */
static void check_up_to(struct graph_check *check, const struct world_traits *traits,
                        const struct gpu_options *options, uint32_t most, bool is_refused,
                        const struct outcome *plain) {
    const uint64_t expected = is_refused ? 0 : graph_steps(0, most);
    open_check(check, traits, options);
    struct outcome *graphs = run(check, false);
    struct outcome *ahead = run(check, true);
    const struct gpu_counters *counters = &ahead->counters;
    note("%s: %u graphs of up to %u rows take %llu KiB of the GPU's memory%s%s", traits->name,
         counters->graphs, most, (unsigned long long)counters->graph_bytes >> 10,
         counters->graph_refusal ? "; " : "",
         counters->graph_refusal ? counters->graph_refusal : "");
    if (graphs->counters.graph_steps != expected || counters->graph_steps != 2 * expected)
        note("%llu and %llu steps were graphs", (unsigned long long)graphs->counters.graph_steps,
             (unsigned long long)counters->graph_steps);
    report(plain->counters.graph_steps == 0 && graphs->counters.graph_steps == expected &&
               counters->graph_steps == 2 * expected && !counters->graph_refusal == !is_refused,
           "%s: graphs of up to %u rows run %llu of %zu steps", traits->name, most,
           (unsigned long long)expected, STEPS);
    report(is_equal(plain, graphs, true), "%s: graphs of up to %u rows give the bits of kernels",
           traits->name, most);
    report(is_equal(graphs, ahead, false), "%s: two graphs under way give the tokens of one",
           traits->name);
    close_check(check);
    free(graphs);
    free(ahead);
}

void check_graphs(const struct gpu_table *table, const struct world_traits *traits,
                  uint64_t memory_bytes, bool is_refused) {
    const struct gpu_options usual = {.memory_bytes = memory_bytes};
    const struct gpu_options few = {.memory_bytes = memory_bytes, .graph_rows_max = FEW};
    const struct gpu_options single = {.memory_bytes = memory_bytes, .has_no_graphs = true};
    struct graph_check *check = calloc(1, sizeof *check);
    check->table = table;
    open_check(check, traits, &single);
    struct outcome *plain = run(check, false);
    close_check(check);
    check_up_to(check, traits, &usual, ROWS, is_refused, plain);
    check_up_to(check, traits, &few, FEW, is_refused, plain);
    if (!is_refused) check_careful(check, traits, memory_bytes, plain);
    free(plain);
    free(check);
}
