/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_texts.h"
#include "gpu/cuda/plugin_walk.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define PUT(block, from, count) block_put(block, from, count, sizeof *(from))
#define PUTS_MAX 32u /* arrays of a group or of a call of sample; each may leave a gap */

static size_t attention_bytes(const struct gpu_limits *limits) {
    const size_t items = limits->items_max;
    return items * (2 * sizeof(struct gpu_tile_item) + sizeof(struct gpu_decode_item) +
                    sizeof(struct gpu_merge_item)) +
           ((size_t)limits->partials_max + limits->rows_max) * sizeof(uint32_t);
}

size_t step_block_bytes(const struct gpu_program *program, const struct gpu_limits *limits) {
    const uint32_t vocab = program->pools ? 0 : program->vocab; /* nothing is drawn */
    const size_t rows = limits->rows_max, wanted = limits->logit_rows_max;
    const size_t mask_bytes = ((size_t)vocab + 31) / 32 * sizeof(uint32_t);
    size_t step = (rows + wanted) * 2 * sizeof(uint32_t) + limits->pages_max * sizeof(uint32_t);
    size_t group = rows * sizeof(uint32_t) + 2 * attention_bytes(limits);
    /* Two calls of draws: the draws and the list of drawn rows come with each, the rest (summed
     * rows, masks, asks) once per row. Further calls use this room again. */
    size_t samples = wanted * (2 * (sizeof(struct gpu_draw) + sizeof(uint32_t)) + sizeof(uint32_t) +
                               mask_bytes + sizeof(struct gpu_ask)) +
                     limits->edits_max * sizeof(struct draw_edit) +
                     limits->named_max * sizeof(int32_t);
    if (limits->state_places > 0) step += limits->sequences_max * sizeof(struct gpu_state_item);
    /* Unfolded rows have fewer items than those that they had before. */
    if (program->latent.rank > 0)
        step += ((size_t)limits->items_max + limits->pages_max) * sizeof(uint32_t);
    size_t gaps = (size_t)(limits->group_count + 3) * PUTS_MAX * 16;
    return step + limits->group_count * group + samples + gaps + texts_block_bytes(program, limits);
}

static void put_tiles(struct block *block, const struct gpu_tiles *from,
                      struct card_tiles *ret_tiles) {
    *ret_tiles =
        (struct card_tiles){.items = PUT(block, from->items, from->count),
                            .count = from->count,
                            .rows = from->rows ? PUT(block, from->rows, from->row_count) : NULL};
}

static void put_attention(struct block *block, const struct gpu_attention *from,
                          struct card_attention *ret_attention) {
    *ret_attention = (struct card_attention){0};
    put_tiles(block, &from->prefixes, &ret_attention->prefixes);
    put_tiles(block, &from->tiles, &ret_attention->tiles);
    ret_attention->decode = PUT(block, from->decode, from->decode_count);
    ret_attention->decode_count = from->decode_count;
    ret_attention->merges = PUT(block, from->merges, from->merge_count);
    ret_attention->merge_count = from->merge_count;
}

static enum err check_step(const struct gpu *gpu, const struct gpu_step *step,
                           struct error *error) {
    const struct gpu_limits *limits = &gpu->limits;
    if (step->row_count <= limits->rows_max && step->wanted_count <= limits->logit_rows_max &&
        step->state_count <= limits->sequences_max && step->pool_count <= limits->sequences_max)
        return OK;
    return err_set(error, ERR_LIMIT, "step %llu has %u rows, %u with logits; a step has %u and %u",
                   (unsigned long long)step->number, step->row_count, step->wanted_count,
                   limits->rows_max, limits->logit_rows_max);
}

/* The part for OP_KEEP and the operations behind it; false when the block is full. */
static bool put_kept(const struct gpu *gpu, struct flight *flight, const struct gpu_step *step) {
    struct block *block = &flight->block;
    struct card_step *to = &flight->step;
    void *host;
    to->wanted_count = step->wanted_count;
    to->wanted = PUT(block, step->wanted, step->wanted_count);
    to->wanted_positions = block_take(block, step->wanted_count * sizeof(uint32_t), &host);
    uint32_t *positions = host;
    for (uint32_t i = 0; positions && i < step->wanted_count; i++)
        positions[i] = step->positions[step->wanted[i]];
    to->nonfinite = block_take(block, sizeof(uint32_t), &host);
    if (host) memset(host, 0, sizeof(uint32_t));
    for (uint32_t i = 0; i < gpu->limits.group_count; i++)
        put_attention(block, &step->groups[i].kept, &to->groups[i].kept);
    flight->step_bytes = block->used;
    return !block->is_full;
}

enum err step_put(struct gpu *gpu, struct flight *flight, const struct gpu_step *step,
                  struct error *error) {
    enum err err = check_step(gpu, step, error);
    if (err != OK) return err;
    struct block *block = &flight->block;
    struct card_step *to = &flight->step;
    block->used = block->sent = 0;
    block->is_full = false;
    to->row_count = step->row_count;
    to->tokens = PUT(block, step->tokens, step->row_count);
    to->positions = PUT(block, step->positions, step->row_count);
    for (uint32_t i = 0; i < gpu->limits.group_count; i++) {
        const struct gpu_group *from = &step->groups[i];
        struct card_group *group = &to->groups[i];
        group->slots = PUT(block, from->slots, step->row_count);
        group->pages = PUT(block, from->pages, from->page_count);
        put_attention(block, &from->all, &group->all);
    }
    unfold_put(gpu, block, step, to);
    recurrent_put(gpu, flight, step);
    texts_put(gpu, flight, step);
    if (put_kept(gpu, flight, step)) return OK;
    return err_set(error, ERR_LIMIT, "step %llu has more pages or items than the limits say",
                   (unsigned long long)step->number);
}

/* A launch per page, so that the copies are made in their order. */
static enum err copy_pages(const struct gpu *gpu, const struct gpu_step *step,
                           struct error *error) {
    enum err err = OK;
    for (uint32_t i = 0; i < step->copy_count && err == OK; i++) {
        const struct gpu_page_copy copy = step->copies[i];
        assert(copy.from < gpu->page_count && copy.to < gpu->page_count);
        err = cuda_copy_page(&gpu->pages, copy.from, copy.to, gpu->compute, error);
    }
    return err;
}

enum err step_await(const struct gpu *gpu, const struct flight *flight, const char *what,
                    struct error *error) {
    cudaError_t code = flight->is_careful ? cudaStreamSynchronize(gpu->compute) : cudaSuccess;
    return code == cudaSuccess ? OK : card_error(code, error, "%s", what);
}

/* Sends a rank's arrays and makes its copies of pages. */
static enum err begin(struct gpu *gpu, struct flight *flight, const struct gpu_step *step,
                      struct error *error) {
    rank_use(gpu);
    enum err err = block_send(gpu, &flight->block, error);
    if (err != OK) return err;
    cudaError_t code = cudaEventRecord(flight->begun, gpu->compute);
    if (code != cudaSuccess) return card_error(code, error, "starting");
    err = copy_pages(gpu, step, error);
    return err == OK ? step_await(gpu, flight, "arrays and copies of pages", error) : err;
}

/* Enqueues everything; on failure the sentence names the operation. */
static enum err start(struct gpu *gpu, struct flight *flight, const struct gpu_step *step,
                      const struct gpu_samples *samples, struct error *error) {
    struct card_samples drawn = {0};
    enum err err =
        gpu->program.pools ? OK : samples_put(gpu, flight, samples, false, &drawn, error);
    if (err == OK) err = ranks_await_tokens(gpu, error);
    for (uint32_t i = 0; i < gpu->rank_count && err == OK; i++)
        err = rank_error(gpu->ranks[i],
                         begin(gpu->ranks[i], rank_flight(gpu->ranks[i], flight), step, error),
                         error);
    if (err == OK) err = graph_run(gpu, flight, error);
    rank_use(gpu);
    if (err == OK) err = rank_error(gpu, samples_run(gpu, flight, &drawn, false, error), error);
    for (uint32_t i = 0; i < gpu->rank_count && err == OK; i++) {
        rank_use(gpu->ranks[i]);
        err = samples_fetch(gpu->ranks[i], rank_flight(gpu->ranks[i], flight), error);
        err = rank_error(gpu->ranks[i], err, error);
    }
    rank_use(gpu);
    return err;
}

/* Puts a rank's arrays. */
static enum err put_flight(struct gpu *gpu, struct flight *flight, const struct gpu_step *step,
                           const struct gpu *lead, struct error *error) {
    assert(gpu->is_prepared && !flight->is_under_way);
    flight->number = step->number;
    flight->parts_before = lead->parts_summed;
    flight->answer_count = flight->named_count = 0;
    flight->is_careful = lead->submitted < lead->careful_steps;
    return step_put(gpu, flight, step, error);
}

enum err plugin_submit(struct gpu *gpu, const struct gpu_step *step,
                       const struct gpu_samples *samples, struct error *error) {
    struct flight *flight = &gpu->flights[gpu->submitted % gpu->limits.steps_max];
    for (uint32_t i = 0; i < gpu->rank_count; i++) {
        struct gpu *rank = gpu->ranks[i];
        enum err err = put_flight(rank, rank_flight(rank, flight), step, gpu, error);
        if (err != OK) return err;
    }
    gpu->parts_summed += gpu->part_count;
    enum err err = start(gpu, flight, step, samples, error);
    if (err != OK) return err_prefix(error, "step %llu", (unsigned long long)step->number);
    flight->is_under_way = true;
    gpu->submitted++;
    return OK;
}
