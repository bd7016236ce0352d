/* SPDX-License-Identifier: Apache-2.0 */

/* What a GPU found out by trials goes to a later one: nothing is tried twice, steps are the
 * same, and damaged notes change nothing. */

#include "check_plugin.h"

#include "plain_world.h"

#include <stdlib.h>
#include <string.h>

/* What a GPU left. */
struct told {
    char *notes; /* NULL: none that were new */
    size_t bytes;
    float *logits;
    size_t logit_bytes;
};

static void told_free(struct told *told) {
    free(told->notes);
    free(told->logits);
}

/* The logits of the course. */
static void tell_logits(const struct gpu_table *table, struct world *world, struct told *told) {
    struct world_step *step = calloc(1, sizeof *step);
    struct gpu_result result = {.tokens = calloc(WORLD_ROWS, sizeof(int32_t))};
    struct error error = {0};
    const size_t row_bytes = world->vocab_rows * sizeof *told->logits;
    size_t rows = 0;
    told->logits = malloc((size_t)WORLD_COURSE * WORLD_ROWS * row_bytes);
    for (uint32_t i = 0; i < WORLD_COURSE; i++) {
        world_plan(world, step, 1 + i, world_course[i], world_course_runs(i), true, PLAN_TILES);
        const uint32_t count = step->step.wanted_count;
        must(table->submit(world->gpu, &step->step, NULL, &error), &error, "submit");
        must(table->wait(world->gpu, 1 + i, &result, &error), &error, "wait");
        must(table->logits(world->gpu, 0, count, told->logits + rows * world->vocab_rows, &error),
             &error, "logits");
        rows += count;
    }
    told->logit_bytes = rows * row_bytes;
    free(result.tokens);
    free(step);
}

/* A GPU from open to close. `notes` may be NULL; so many layers have their experts away. */
static struct told run_away(const struct gpu_table *table, const struct world_traits *traits,
                            uint64_t memory_bytes, const char *notes, size_t bytes, uint32_t away) {
    struct world world;
    struct told told = {0};
    struct error error = {0};
    const char *text = NULL;
    world_make(&world, traits, 3);
    world_card_forms(&world);
    world.limits.pages_max *= world.limits.group_count;
    world.limits.experts_away = away;
    const struct gpu_options options = {.memory_bytes = memory_bytes};
    open_checked(table, options, &world.gpu);
    must(table->prepare(world.gpu, &world.program, &world.limits, &world.ledger, &error), &error,
         "prepare");
    for (uint32_t i = 0; i < world.program.matrix_count; i++) world_fill(&world, i);
    if (notes) table->recall(world.gpu, notes, bytes);
    must(table->warm(world.gpu, &error), &error, "warm");
    if (table->tell(world.gpu, &text, &told.bytes)) {
        told.notes = malloc(told.bytes);
        memcpy(told.notes, text, told.bytes);
    }
    tell_logits(table, &world, &told);
    world_close(&world);
    return told;
}

static struct told run(const struct gpu_table *table, const struct world_traits *traits,
                       uint64_t memory_bytes, const char *notes, size_t bytes) {
    return run_away(table, traits, memory_bytes, notes, bytes, 0);
}

static bool are_same_logits(const struct told *a, const struct told *b) {
    return a->logit_bytes == b->logit_bytes && memcmp(a->logits, b->logits, a->logit_bytes) == 0;
}

/* Notes with a changed byte, or fewer bytes: all shapes are tried anew. */
static bool is_damage_seen(const struct gpu_table *table, const struct world_traits *traits,
                           uint64_t memory_bytes, const struct told *first) {
    const size_t places[] = {0, first->bytes / 3, first->bytes - 3};
    char *notes = malloc(first->bytes);
    bool is_seen = true;
    for (size_t i = 0; i <= sizeof places / sizeof places[0]; i++) {
        const bool is_short = i == sizeof places / sizeof places[0];
        memcpy(notes, first->notes, first->bytes);
        if (!is_short) notes[places[i]] ^= 1;
        struct told told =
            run(table, traits, memory_bytes, notes, is_short ? first->bytes - 1 : first->bytes);
        is_seen &= told.notes != NULL;
        told_free(&told);
    }
    free(notes);
    return is_seen;
}

void check_notes(const struct gpu_table *table, const struct world_traits *traits,
                 uint64_t memory_bytes) {
    struct told first = run(table, traits, memory_bytes, NULL, 0);
    report(first.notes != NULL, "%s: warm has notes to tell", traits->name);
    if (first.notes) {
        struct told again = run(table, traits, memory_bytes, first.notes, first.bytes);
        report(!again.notes && are_same_logits(&first, &again),
               "%s: with its own notes a device tries nothing and gives the same bits",
               traits->name);
        report(is_damage_seen(table, traits, memory_bytes, &first),
               "%s: damaged notes are of no use", traits->name);
        told_free(&again);
    }
    told_free(&first);
}

void check_away(const struct gpu_table *table, const struct world_traits *traits,
                uint64_t memory_bytes) {
    struct told home = run(table, traits, memory_bytes, NULL, 0);
    struct told away = run_away(table, traits, memory_bytes, home.notes, home.bytes, traits->away);
    report(are_same_logits(&home, &away), "%s: the bits of a GPU that has them all", traits->name);
    told_free(&home);
    told_free(&away);
}
