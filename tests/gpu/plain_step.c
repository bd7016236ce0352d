/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_internal.h"

#define NUMBER(step) ((unsigned long long)(step)->number)

/* ---- checks ---- */

static void check_rows(const struct gpu *gpu, const struct gpu_step *step) {
    const struct gpu_limits *limits = &gpu->limits;
    MUST(step->row_count >= 1 && step->row_count <= limits->rows_max, "step %llu: %u rows, of %u",
         NUMBER(step), step->row_count, limits->rows_max);
    MUST(step->wanted_count <= limits->logit_rows_max, "step %llu: %u wanted rows, of %u",
         NUMBER(step), step->wanted_count, limits->logit_rows_max);
    for (uint32_t i = 0; i < step->row_count; i++) {
        int32_t token = step->tokens[i];
        MUST(step->positions[i] < limits->context_max, "step %llu: row %u is at position %u of %u",
             NUMBER(step), i, step->positions[i], limits->context_max);
        MUST(token < (int32_t)gpu->program.matrices[gpu->program.ops[0].matrix].rows,
             "step %llu: row %u has token %d", NUMBER(step), i, token);
        if (token >= 0) continue;
        MUST((uint32_t)~token < limits->sequences_max, "step %llu: row %u waits for slot %d",
             NUMBER(step), i, ~token);
        MUST(gpu->has_token[~token], "step %llu: row %u: no token was drawn for slot %d",
             NUMBER(step), i, ~token);
    }
    for (uint32_t i = 0; i < step->wanted_count; i++)
        MUST(step->wanted[i] < step->row_count && (i == 0 || step->wanted[i] > step->wanted[i - 1]),
             "step %llu: wanted[%u] is row %u, which does not ascend to %u", NUMBER(step), i,
             step->wanted[i], step->row_count);
}

/* Slots are in range, at the offsets of their positions, and all different. */
static void check_slots(struct gpu *gpu, const struct gpu_step *step, uint32_t group) {
    for (uint32_t i = 0; i < step->row_count; i++) {
        uint32_t slot = step->groups[group].slots[i];
        MUST(slot < plain_slots(gpu), "step %llu: row %u has slot %u of %u", NUMBER(step), i, slot,
             plain_slots(gpu));
        MUST(slot % GPU_PAGE_TOKENS == step->positions[i] % GPU_PAGE_TOKENS,
             "step %llu: row %u at position %u has slot %u, at another offset", NUMBER(step), i,
             step->positions[i], slot);
        MUST(gpu->slot_marks[slot] != gpu->submits,
             "step %llu: row %u of group %u writes slot %u, as another row does", NUMBER(step), i,
             group, slot);
        gpu->slot_marks[slot] = gpu->submits;
    }
}

static void check_counts(const struct gpu *gpu, const struct gpu_step *step,
                         const struct gpu_attention *attention) {
    const struct gpu_limits *limits = &gpu->limits;
    uint32_t counts[] = {attention->prefixes.count, attention->tiles.count, attention->decode_count,
                         attention->merge_count};
    for (uint32_t i = 0; i < 4; i++)
        MUST(counts[i] <= limits->items_max, "step %llu: %u items of a kind, of %u", NUMBER(step),
             counts[i], limits->items_max);
    MUST(attention->prefixes.row_count <= limits->partials_max,
         "step %llu: prefixes of %u rows, and %u partials", NUMBER(step),
         attention->prefixes.row_count, limits->partials_max);
    MUST(attention->tiles.row_count <= limits->rows_max, "step %llu: tiles of %u rows, of %u",
         NUMBER(step), attention->tiles.row_count, limits->rows_max);
}

static void check_copies(const struct gpu *gpu, const struct gpu_step *step) {
    const uint32_t pages = gpu->ledger.page_count;
    for (uint32_t i = 0; i < step->copy_count; i++)
        MUST(step->copies[i].from < pages && step->copies[i].to < pages &&
                 step->copies[i].from != step->copies[i].to,
             "step %llu copies page %u of %u to page %u", NUMBER(step), step->copies[i].from, pages,
             step->copies[i].to);
}

void plain_check_step(struct gpu *gpu, const struct gpu_step *step) {
    uint32_t pages = 0;
    check_rows(gpu, step);
    check_copies(gpu, step);
    gpu->submits++;
    for (uint32_t i = 0; i < gpu->limits.group_count; i++) {
        const struct gpu_group *group = &step->groups[i];
        MUST(group->page_count <= gpu->limits.pages_max - pages,
             "step %llu: more than %u page entries", NUMBER(step), gpu->limits.pages_max);
        pages += group->page_count;
        check_slots(gpu, step, i);
        check_counts(gpu, step, &group->all);
        check_counts(gpu, step, &group->kept);
    }
    plain_check_states(gpu, step);
}

static void check_draw(const struct gpu *gpu, const struct gpu_samples *samples, uint32_t index) {
    const struct gpu_draw *draw = &samples->draws[index];
    uint32_t vocab = gpu->program.vocab, lowest = 0;
    MUST(draw->mask < (int32_t)samples->mask_count, "draw %u has mask %d of %u", index, draw->mask,
         samples->mask_count);
    if (draw->mask >= 0) {
        const uint32_t *mask = samples->masks + (size_t)draw->mask * samples->mask_words;
        while (lowest < vocab && !(mask[lowest / 32] >> lowest % 32 & 1)) lowest++;
        MUST(lowest < vocab, "draw %u: its mask allows no token", index);
    }
    MUST(draw->fallback == (int32_t)lowest, "draw %u: the lowest allowed token is %u, not %d",
         index, lowest, draw->fallback);
    MUST(draw->slot < (int32_t)gpu->limits.sequences_max, "draw %u sets slot %d", index,
         draw->slot);
    MUST(draw->edit_begin <= samples->edit_count &&
             draw->edit_count <= samples->edit_count - draw->edit_begin,
         "draw %u has edits %u + %u of %u", index, draw->edit_begin, draw->edit_count,
         samples->edit_count);
    for (uint32_t i = 0; i < draw->edit_count; i++) {
        const struct draw_edit *edit = &samples->edits[draw->edit_begin + i];
        MUST(edit->row == index, "edit %u is of draw %u, not %u", i, edit->row, index);
        MUST(edit->token >= 0 && edit->token < (int32_t)vocab, "edit %u is of token %d", i,
             edit->token);
        MUST(i == 0 || edit[-1].token <= edit->token, "edit %u of draw %u is not in order", i,
             index);
    }
}

static void check_asks(const struct gpu *gpu, const struct plain_step *step,
                       const struct gpu_samples *samples) {
    for (uint32_t i = 0; i < samples->ask_count; i++) {
        const struct gpu_ask *ask = &samples->asks[i];
        MUST(ask->row < step->in.wanted_count, "ask %u is of wanted row %u of %u", i, ask->row,
             step->in.wanted_count);
        MUST(ask->token < (int32_t)gpu->program.vocab, "ask %u is of token %d", i, ask->token);
        MUST(ask->top_count <= GPU_TOP_MAX, "ask %u: top %u", i, ask->top_count);
        MUST(ask->named_begin <= samples->named_count &&
                 ask->named_count <= samples->named_count - ask->named_begin,
             "ask %u names tokens %u + %u of %u", i, ask->named_begin, ask->named_count,
             samples->named_count);
    }
    for (uint32_t i = 0; i < samples->named_count; i++)
        MUST(samples->named[i] >= 0 && samples->named[i] < (int32_t)gpu->program.vocab,
             "token %d is named", samples->named[i]);
}

/* Draws of a call ascend, and no row is drawn twice. */
static void check_drawn_rows(const struct plain_step *step, const struct gpu_samples *samples) {
    for (uint32_t i = 0; i < samples->count; i++) {
        uint32_t row = samples->rows[i];
        MUST(row < step->in.wanted_count && (i == 0 || row > samples->rows[i - 1]),
             "step %llu: draw %u is of wanted row %u, which does not ascend to %u", NUMBER(step), i,
             row, step->in.wanted_count);
        MUST(!step->is_drawn[row], "step %llu: wanted row %u is drawn twice", NUMBER(step), row);
    }
}

static void check_samples(const struct gpu *gpu, const struct plain_step *step,
                          const struct gpu_samples *samples) {
    const struct gpu_limits *limits = &gpu->limits;
    uint32_t asks = step->ask_count + samples->ask_count;
    uint32_t named = step->named_count + samples->named_count;
    MUST(samples->number == step->number, "draws of step %llu for step %llu",
         (unsigned long long)samples->number, NUMBER(step));
    MUST(asks <= step->in.wanted_count, "step %llu: %u asks of %u rows", NUMBER(step), asks,
         step->in.wanted_count);
    MUST(samples->edit_count <= limits->edits_max, "step %llu: %u edits, of %u", NUMBER(step),
         samples->edit_count, limits->edits_max);
    MUST(named <= limits->named_max, "step %llu: %u named tokens, of %u", NUMBER(step), named,
         limits->named_max);
    MUST(samples->mask_count <= samples->count, "step %llu: %u masks for %u draws", NUMBER(step),
         samples->mask_count, samples->count);
    MUST(samples->mask_count == 0 || samples->mask_words == (gpu->program.vocab + 31) / 32,
         "step %llu: masks of %u words", NUMBER(step), samples->mask_words);
    check_drawn_rows(step, samples);
    for (uint32_t i = 0; i < samples->count; i++) check_draw(gpu, samples, i);
    check_asks(gpu, step, samples);
}

/* ---- copies ---- */

static struct gpu_tiles copy_tiles(struct plain_heap *heap, const struct gpu_tiles *from) {
    struct gpu_tiles tiles = *from;
    tiles.items = plain_copy(heap, from->items, from->count, sizeof *from->items);
    tiles.rows = plain_copy(heap, from->rows, from->row_count, sizeof *from->rows);
    return tiles;
}

static struct gpu_attention copy_attention(struct plain_heap *heap,
                                           const struct gpu_attention *from) {
    struct gpu_attention attention = *from;
    attention.prefixes = copy_tiles(heap, &from->prefixes);
    attention.tiles = copy_tiles(heap, &from->tiles);
    attention.decode = plain_copy(heap, from->decode, from->decode_count, sizeof *from->decode);
    attention.merges = plain_copy(heap, from->merges, from->merge_count, sizeof *from->merges);
    return attention;
}

static void copy_step(const struct gpu *gpu, struct plain_step *to, const struct gpu_step *from) {
    struct plain_heap *heap = &to->heap;
    uint32_t count = gpu->limits.group_count, rows = from->row_count;
    struct gpu_group *groups = plain_copy(heap, from->groups, count, sizeof *groups);
    for (uint32_t i = 0; i < count; i++) {
        const struct gpu_group *group = &from->groups[i];
        groups[i].slots = plain_copy(heap, group->slots, rows, sizeof *group->slots);
        groups[i].seen = plain_copy(heap, group->seen, group->seen ? rows : 0, sizeof *group->seen);
        groups[i].pages = plain_copy(heap, group->pages, group->page_count, sizeof *group->pages);
        groups[i].all = copy_attention(heap, &group->all);
        groups[i].kept = copy_attention(heap, &group->kept);
    }
    to->in = *from;
    to->in.tokens = plain_copy(heap, from->tokens, rows, sizeof *from->tokens);
    to->in.positions = plain_copy(heap, from->positions, rows, sizeof *from->positions);
    to->in.places = plain_copy(heap, from->places, from->places ? rows : 0, sizeof *from->places);
    to->in.pools = plain_copy(heap, from->pools, from->pool_count, sizeof *from->pools);
    to->in.wanted = plain_copy(heap, from->wanted, from->wanted_count, sizeof *from->wanted);
    to->in.groups = groups;
    to->in.copies = plain_copy(heap, from->copies, from->copy_count, sizeof *from->copies);
    to->in.states = plain_copy(heap, from->states, from->state_count, sizeof *from->states);
    to->is_drawn = plain_new(heap, from->wanted_count, sizeof *to->is_drawn);
}

/* Checks and copies the draws of one call. */
static void take_samples(struct gpu *gpu, struct plain_step *step, const struct gpu_samples *from) {
    struct plain_heap *heap = &step->heap;
    check_samples(gpu, step, from);
    size_t mask_words = (size_t)from->mask_count * from->mask_words;
    struct plain_draws *draws = plain_new(heap, 1, sizeof *draws);
    struct gpu_samples *to = &draws->in;
    *to = *from;
    if (step->draws_last)
        step->draws_last->next = draws;
    else
        step->draws = draws;
    step->draws_last = draws;
    step->ask_count += from->ask_count;
    step->named_count += from->named_count;
    to->rows = plain_copy(heap, from->rows, from->count, sizeof *from->rows);
    to->draws = plain_copy(heap, from->draws, from->count, sizeof *from->draws);
    to->masks = plain_copy(heap, from->masks, mask_words, sizeof *from->masks);
    to->edits = plain_copy(heap, from->edits, from->edit_count, sizeof *from->edits);
    to->asks = plain_copy(heap, from->asks, from->ask_count, sizeof *from->asks);
    to->named = plain_copy(heap, from->named, from->named_count, sizeof *from->named);
    for (uint32_t i = 0; i < to->count; i++) step->is_drawn[to->rows[i]] = true;
    for (uint32_t i = 0; i < to->count; i++)
        if (to->draws[i].slot >= 0) gpu->has_token[to->draws[i].slot] = true;
}

/* ---- calls ---- */

enum err plain_submit(struct gpu *gpu, const struct gpu_step *step,
                      const struct gpu_samples *samples, bool is_nan, struct error *error) {
    (void)error;
    MUST(gpu->step_count < gpu->limits.steps_max, "step %llu: %u steps are under way", NUMBER(step),
         gpu->step_count);
    MUST(step->number > gpu->number_last, "step %llu behind step %llu", NUMBER(step),
         (unsigned long long)gpu->number_last);
    plain_check_step(gpu, step);
    struct plain_step *to = &gpu->steps[(gpu->step_first + gpu->step_count++) % GPU_STEPS_MAX];
    *to = (struct plain_step){.number = step->number, .is_nan = is_nan};
    gpu->number_last = step->number;
    copy_step(gpu, to, step);
    if (samples) take_samples(gpu, to, samples);
    return OK;
}

enum err plain_late(struct gpu *gpu, const struct gpu_samples *samples, bool is_nan,
                    struct error *error) {
    (void)error;
    MUST(gpu->step_count > 0, "sample of step %llu, and none is under way", NUMBER(samples));
    struct plain_step *step = &gpu->steps[(gpu->step_first + gpu->step_count - 1) % GPU_STEPS_MAX];
    MUST(samples->number == step->number, "sample of step %llu, and %llu was submitted last",
         NUMBER(samples), NUMBER(step));
    step->is_nan |= is_nan;
    take_samples(gpu, step, samples);
    return OK;
}
