/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_internal.h"

#include <math.h>
#include <string.h>

/* Attention follows the items of the step and nothing else, and checks them as it goes. The keys
 * that a row sees are computed from its position only to be compared with those of its items. A set
 * of keys is known by its size and the sum of its marks; a mark is a random number per position. */

enum { LAUNCH_PREFIXES, LAUNCH_ITEMS, LAUNCH_MERGES };

struct referee {
    struct plain_pass *pass;
    const struct gpu_op *op;
    const struct gpu_group *group;
    uint32_t launch;
};

/* Keys begin..end-1 of a page table for one row, and the row's partials before and behind. */
struct work {
    uint32_t row; /* row in the pass */
    uint32_t begin, end;
    uint32_t pages;
    uint32_t in, in_count;
    uint32_t out; /* or GPU_NONE */
};

/* The gathered attention of one row and head. */
struct gathered {
    float o[PLAIN_HEAD_DIM_MAX];
    float m; /* the highest score, and the sum of e^(score - m) */
    float l;
};

static unsigned long long number_of(const struct referee *r) {
    return (unsigned long long)r->pass->step->number;
}

/* Up to which position a row sees keys; in steps of texts that is not its own. */
static uint32_t seen_of(const struct referee *r, uint32_t row) {
    const uint32_t at = plain_step_row(r->pass, row);
    return r->group->seen ? r->group->seen[at] : r->pass->step->positions[at];
}

/* The end of the keys that a row sees: those of its text, which has neighbouring rows. */
static uint32_t end_of(const struct referee *r, uint32_t row) {
    const struct gpu_step *step = r->pass->step;
    uint32_t at = plain_step_row(r->pass, row);
    const uint32_t seen = seen_of(r, row);
    if (!r->group->seen) return seen + 1;
    while (at + 1 < step->row_count && step->positions[at + 1] == step->positions[at] + 1) at++;
    return seen < step->positions[at] ? seen + 1 : step->positions[at] + 1;
}

/* The first position that a row that sees up to `position` sees. */
static uint32_t first_seen(const struct referee *r, uint32_t position) {
    uint32_t window = r->op->window;
    return window > 0 && position >= window ? position - window + 1 : 0;
}

/* ---- partials ---- */

static float *sums_of(const struct referee *r, uint32_t partial, uint32_t head) {
    const struct gpu_program *program = &r->pass->gpu->program;
    size_t at = (size_t)partial * program->heads + head;
    return r->pass->gpu->partial_sums + at * (program->head_dim + 2);
}

/* Checks that the work may read the partial, and counts its keys in. */
static void take_partial(const struct referee *r, uint32_t index, uint32_t row,
                         struct plain_partial *into) {
    MUST(index < r->pass->gpu->limits.partials_max, "step %llu: partial %u of %u", number_of(r),
         index, r->pass->gpu->limits.partials_max);
    struct plain_partial *partial = &r->pass->gpu->partials[index];
    MUST(partial->state != PARTIAL_NONE, "step %llu: row %u reads partial %u, which nothing left",
         number_of(r), row, index);
    MUST(partial->state == PARTIAL_LEFT, "step %llu: row %u reads partial %u, which was read",
         number_of(r), row, index);
    MUST(partial->row == row, "step %llu: row %u reads partial %u, which is of row %u",
         number_of(r), row, index, partial->row);
    MUST(partial->launch < r->launch, "step %llu: row %u reads partial %u of its own launch",
         number_of(r), row, index);
    partial->state = PARTIAL_READ;
    into->keys += partial->keys;
    into->marks += partial->marks;
}

static void leave_partial(const struct referee *r, uint32_t index, struct plain_partial made) {
    MUST(index < r->pass->gpu->limits.partials_max, "step %llu: partial %u of %u", number_of(r),
         index, r->pass->gpu->limits.partials_max);
    struct plain_partial *partial = &r->pass->gpu->partials[index];
    MUST(partial->state == PARTIAL_NONE, "step %llu: row %u leaves partial %u, which is row %u's",
         number_of(r), made.row, index, partial->row);
    made.state = PARTIAL_LEFT;
    made.launch = r->launch;
    *partial = made;
    if (index >= r->pass->gpu->partials_end) r->pass->gpu->partials_end = index + 1;
}

static void leave_result(const struct referee *r, struct plain_partial made) {
    const uint32_t position = end_of(r, made.row) - 1, first = first_seen(r, seen_of(r, made.row));
    const uint64_t *marks = r->pass->gpu->key_marks;
    struct plain_partial *result = &r->pass->gpu->results[made.row];
    MUST(result->state == PARTIAL_NONE, "step %llu: row %u gets two results", number_of(r),
         made.row);
    MUST(made.keys == position + 1 - first,
         "step %llu: row %u at position %u sees %u keys, and its items have %llu", number_of(r),
         made.row, position, position + 1 - first, (unsigned long long)made.keys);
    MUST(made.marks == marks[position + 1] - marks[first],
         "step %llu: row %u at position %u: its items have keys twice and lack others",
         number_of(r), made.row, position);
    made.state = PARTIAL_LEFT;
    *result = made;
}

/* ---- arithmetic ---- */

/* Makes `m` the highest score, if it is higher. */
static void rescale(struct gathered *sum, uint32_t dim, float m) {
    if (!(m > sum->m)) return;
    float factor = sum->l == 0.0f ? 0.0f : expf(sum->m - m);
    sum->m = m;
    sum->l *= factor;
    for (uint32_t i = 0; i < dim; i++) sum->o[i] *= factor;
}

static void add_partial(struct gathered *sum, const float *partial, uint32_t dim) {
    float m = partial[dim], l = partial[dim + 1];
    if (l == 0.0f) return;
    rescale(sum, dim, m);
    float factor = expf(m - sum->m);
    sum->l += l * factor;
    for (uint32_t i = 0; i < dim; i++) sum->o[i] += partial[i] * factor;
}

/* The slot of a key; asserts that it is the key of that position. */
static uint32_t slot_of(const struct referee *r, const struct work *work, uint32_t key) {
    const struct gpu *gpu = r->pass->gpu;
    uint32_t entry = work->pages + key / GPU_PAGE_TOKENS;
    MUST(entry < r->group->page_count, "step %llu: row %u reads page entry %u of %u", number_of(r),
         work->row, entry, r->group->page_count);
    uint32_t page = r->group->pages[entry];
    MUST(page < gpu->ledger.page_count, "step %llu: row %u reads page %u of %u", number_of(r),
         work->row, page, gpu->ledger.page_count);
    uint32_t slot = page * GPU_PAGE_TOKENS + key % GPU_PAGE_TOKENS;
    const struct plain_stamp *stamp =
        &gpu->stamps[(size_t)r->op->kv_place * plain_slots(gpu) + slot];
    MUST(stamp->position_1 > 0, "step %llu: row %u reads key %u in slot %u, which is not written",
         number_of(r), work->row, key, slot);
    MUST(stamp->position_1 == key + 1 && stamp->group == r->op->kv_group,
         "step %llu: row %u reads key %u of group %u in slot %u, which has key %u of group %u",
         number_of(r), work->row, key, r->op->kv_group, slot, stamp->position_1 - 1, stamp->group);
    return slot;
}

/* Elements of what attention leaves of a head: a part of an entry, or as many as a key has. */
static uint32_t value_dim_of(const struct referee *r) {
    const struct gpu_program *program = &r->pass->gpu->program;
    return r->op->kind == OP_LATENT ? program->latent.rank : gpu_head_dim(program, r->op);
}

static void add_key(const struct referee *r, struct gathered *sum, const float *q, uint32_t slot,
                    uint32_t kv_head) {
    const struct gpu *gpu = r->pass->gpu;
    const uint32_t dim = gpu_head_dim(&gpu->program, r->op), values = value_dim_of(r);
    struct plain_kv at = {r->op->kv_place, slot, kv_head, dim, false};
    float room[PLAIN_HEAD_DIM_MAX];
    const float *key = plain_kv_get(gpu, at, room);
    float score = plain_dot(q, key, dim) * r->op->scale;
    if (r->op->softcap > 0.0f) score = r->op->softcap * tanhf(score / r->op->softcap);
    rescale(sum, values, score);
    float weight = expf(score - sum->m);
    at.is_value = r->op->kind != OP_LATENT;
    const float *value = plain_kv_get(gpu, at, room);
    sum->l += weight;
    for (uint32_t i = 0; i < values; i++) sum->o[i] += weight * value[i];
}

static void run_head(const struct referee *r, const struct work *work, uint32_t head) {
    const struct plain_pass *pass = r->pass;
    const struct gpu_program *program = &pass->gpu->program;
    const struct plain_heads heads = plain_heads_of(pass->gpu, r->op);
    const uint32_t dim = value_dim_of(r);
    const bool is_latent = r->op->kind == OP_LATENT;
    struct gathered sum = {.m = -INFINITY};
    for (uint32_t i = 0; i < work->in_count; i++)
        add_partial(&sum, sums_of(r, work->in + i, head), dim);
    const float *q = is_latent ? pass->gpu->queries +
                                     ((size_t)work->row * program->heads + head) * heads.head_dim
                               : pass->wide + (size_t)work->row * heads.stride + (size_t)head * dim;
    for (uint32_t key = work->begin; key < work->end; key++)
        add_key(r, &sum, q, slot_of(r, work, key), head / (program->heads / heads.kv_heads));
    if (work->out != GPU_NONE) {
        float *to = sums_of(r, work->out, head);
        memcpy(to, sum.o, dim * sizeof *to);
        to[dim] = sum.m;
        to[dim + 1] = sum.l;
        return;
    }
    float *to = pass->attended + ((size_t)work->row * program->heads + head) * dim;
    const float *sinks = r->op->sinks;
    const float all = sum.l + (sinks ? expf(sinks[head] - sum.m) : 0.0f);
    for (uint32_t i = 0; i < dim; i++) to[i] = sum.o[i] / all;
}

static void run_work(const struct referee *r, struct work work) {
    const uint64_t *marks = r->pass->gpu->key_marks;
    MUST(work.row < r->pass->row_count, "step %llu: an item of row %u, of %u", number_of(r),
         work.row, r->pass->row_count);
    const uint32_t position = end_of(r, work.row) - 1, first = first_seen(r, seen_of(r, work.row));
    if (work.begin < first) work.begin = first;
    if (work.end > position + 1) work.end = position + 1;
    if (work.end < work.begin) work.end = work.begin;
    struct plain_partial made = {.row = work.row,
                                 .keys = work.end - work.begin,
                                 .marks = marks[work.end] - marks[work.begin]};
    for (uint32_t i = 0; i < work.in_count; i++) take_partial(r, work.in + i, work.row, &made);
    if (work.out == GPU_NONE)
        leave_result(r, made);
    else
        leave_partial(r, work.out, made);
    for (uint32_t head = 0; head < r->pass->gpu->program.heads; head++) run_head(r, &work, head);
}

/* ---- launches ---- */

static void run_tiles(const struct referee *r, const struct gpu_tiles *tiles) {
    const struct gpu_program *program = &r->pass->gpu->program;
    const uint32_t rows_max = PLAIN_TILE_HEADS / (program->heads / program->kv_heads);
    const bool is_prefix = r->launch == LAUNCH_PREFIXES;
    for (uint32_t i = 0; i < tiles->count; i++) {
        const struct gpu_tile_item *item = &tiles->items[i];
        MUST(item->row_count >= 1 && item->row_count <= rows_max,
             "step %llu: tile %u has %u rows, of %u", number_of(r), i, item->row_count, rows_max);
        MUST(item->begin < item->end, "step %llu: tile %u has no keys", number_of(r), i);
        MUST((item->partial_out != GPU_NONE) == is_prefix,
             "step %llu: prefixes leave partials, and tiles leave results", number_of(r));
        MUST(!is_prefix || item->partial_in == GPU_NONE,
             "step %llu: prefix %u continues from a partial", number_of(r), i);
        for (uint32_t j = 0; j < item->row_count; j++) {
            uint32_t at = item->row + j, step = j * item->partial_step;
            MUST(!tiles->rows || at < tiles->row_count, "step %llu: tile %u has row %u of %u",
                 number_of(r), i, at, tiles->row_count);
            run_work(r, (struct work){.row = tiles->rows ? tiles->rows[at] : at,
                                      .begin = item->begin,
                                      .end = item->end,
                                      .pages = item->pages,
                                      .in = item->partial_in + step,
                                      .in_count = item->partial_in != GPU_NONE,
                                      .out = is_prefix ? item->partial_out + step : GPU_NONE});
        }
    }
}

static void run_decode(const struct referee *r, const struct gpu_attention *attention) {
    for (uint32_t i = 0; i < attention->decode_count; i++) {
        const struct gpu_decode_item *item = &attention->decode[i];
        MUST(item->row < r->pass->row_count && item->position == seen_of(r, item->row),
             "step %llu: decode item %u of row %u is at position %u", number_of(r), i, item->row,
             item->position);
        MUST(item->begin < item->end, "step %llu: decode item %u has no keys", number_of(r), i);
        run_work(r, (struct work){.row = item->row,
                                  .begin = item->begin,
                                  .end = item->end,
                                  .pages = item->pages,
                                  .in = item->partial_in,
                                  .in_count = item->partial_count,
                                  .out = item->partial_out});
    }
}

static void run_merges(const struct referee *r, const struct gpu_attention *attention) {
    for (uint32_t i = 0; i < attention->merge_count; i++) {
        const struct gpu_merge_item *item = &attention->merges[i];
        MUST(item->count > 0, "step %llu: merge %u has no partials", number_of(r), i);
        run_work(
            r, (struct work){
                   .row = item->row, .in = item->first, .in_count = item->count, .out = GPU_NONE});
    }
}

void plain_attention(struct plain_pass *pass, const struct gpu_op *op) {
    struct gpu *gpu = pass->gpu;
    const struct gpu_group *group = &pass->step->groups[op->kv_group];
    const struct gpu_attention *attention = pass->is_kept ? &group->kept : &group->all;
    struct referee r = {.pass = pass, .op = op, .group = group, .launch = LAUNCH_PREFIXES};
    memset(gpu->partials, 0, gpu->partials_end * sizeof *gpu->partials);
    gpu->partials_end = 0;
    memset(gpu->results, 0, pass->row_count * sizeof *gpu->results);
    run_tiles(&r, &attention->prefixes);
    r.launch = LAUNCH_ITEMS;
    run_tiles(&r, &attention->tiles);
    run_decode(&r, attention);
    r.launch = LAUNCH_MERGES;
    run_merges(&r, attention);
    for (uint32_t i = 0; i < pass->row_count; i++)
        MUST(gpu->results[i].state != PARTIAL_NONE, "step %llu: row %u gets no result",
             number_of(&r), i);
    for (uint32_t i = 0; i < gpu->partials_end; i++)
        MUST(gpu->partials[i].state != PARTIAL_LEFT,
             "step %llu: partial %u of row %u is never read", number_of(&r), i,
             gpu->partials[i].row);
}
