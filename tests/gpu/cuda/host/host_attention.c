/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of gpu/cuda/attention.h and sample.h in plain C. A draw takes the most likely
 * token: tests ask for draws in which no other is left. */

#include "gpu/cuda/attention.h"
#include "gpu/cuda/sample.h"

#include "host_kernels.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIM_MAX (CUDA_LATENT_RANK + CUDA_LATENT_TURNED)

uint32_t cuda_tile_rows(uint32_t group) {
    return 128 / group;
}

/* Sums over some keys of a row and head. */
struct sums {
    float m, l, o[CUDA_HEAD_WIDE];
};

/* A key or value of a slot as numbers. */
static void cached(const struct cuda_attention *call, bool is_value, uint32_t slot, uint32_t head,
                   float *ret_values) {
    const size_t run = (size_t)(slot / 16) * call->page_heads + head;
    const uint32_t dim = call->head_dim + call->turned_dim;
    const size_t at = (run * 16 + slot % 16) * dim;
    const void *pool = is_value && call->turned_dim == 0 ? call->v : call->k;
    const uint16_t *scales = call->scales;
    const size_t scale_at =
        ((size_t)(slot / 16) * call->scale_heads + head) * 32 + (is_value ? 16 : 0) + slot % 16;
    const float scale = call->type == CUDA_KV_BF16 ? 1 : half_to_f32(scales[scale_at]);
    if (call->type == CUDA_KV_BF16)
        for (uint32_t i = 0; i < dim; i++)
            ret_values[i] = host_from_bf16(((const uint16_t *)pool)[at + i]);
    else
        for (uint32_t i = 0; i < call->head_dim; i++)
            ret_values[i] = host_from_e4m3(((const uint8_t *)pool)[at + i]) * scale;
}

static void merge(struct sums *sums, float m, float l, const float *o, uint32_t width) {
    const float most = fmaxf(sums->m, m);
    const float own = l > 0 ? expf(m - most) : 0, before = sums->l > 0 ? expf(sums->m - most) : 0;
    for (uint32_t i = 0; l > 0 && i < width; i++) sums->o[i] = sums->o[i] * before + o[i] * own;
    for (uint32_t i = 0; !(l > 0) && i < width; i++) sums->o[i] *= before;
    sums->l = sums->l * before + (l > 0 ? l * own : 0);
    sums->m = most;
}

static size_t partial_at(const struct cuda_attention *call, uint32_t partial, uint32_t head) {
    return (size_t)partial * call->head_count + head;
}

static void read_partial(const struct cuda_attention *call, uint32_t partial, uint32_t head,
                         struct sums *sums) {
    const size_t at = partial_at(call, partial, head);
    merge(sums, call->partial_ml[2 * at], call->partial_ml[2 * at + 1],
          call->partial_o + at * call->head_dim, call->head_dim);
}

static void leave(const struct cuda_attention *call, uint32_t row, uint32_t head, uint32_t partial,
                  const struct sums *sums) {
    const uint32_t width = call->head_dim;
    if (partial != GPU_NONE) {
        const size_t at = partial_at(call, partial, head);
        call->partial_ml[2 * at] = sums->m, call->partial_ml[2 * at + 1] = sums->l;
        memcpy(call->partial_o + at * width, sums->o, width * sizeof *sums->o);
        return;
    }
    uint16_t *y = (uint16_t *)call->y + row * call->y_stride + head * width;
    const float all = sums->l + (call->sinks ? expf(call->sinks[head] - sums->m) : 0);
    for (uint32_t i = 0; i < width; i++) y[i] = host_to_bf16(sums->l > 0 ? sums->o[i] / all : 0);
}

static void add_keys(const struct cuda_attention *call, uint32_t row, uint32_t head,
                     uint32_t position, uint32_t begin, uint32_t end, uint32_t pages,
                     struct sums *sums) {
    const uint32_t kv = head / (call->head_count / call->kv_heads), width = call->head_dim;
    const uint32_t dim = width + call->turned_dim;
    const uint16_t *from = (const uint16_t *)call->q + row * call->q_stride + head * dim;
    float q[DIM_MAX], value[DIM_MAX];
    for (uint32_t i = 0; i < dim; i++) q[i] = host_from_bf16(from[i]);
    if (end > position + 1) end = position + 1;
    if (call->window && position + 1 > call->window && begin < position + 1 - call->window)
        begin = position + 1 - call->window;
    for (uint32_t j = begin; j < end; j++) {
        const uint32_t slot = call->pages[pages + j / 16] * 16 + j % 16;
        cached(call, false, slot, kv, value);
        float score = 0;
        for (uint32_t i = 0; i < dim; i++) score += q[i] * value[i];
        score *= call->scale;
        if (call->softcap > 0) score = call->softcap * tanhf(score / call->softcap);
        cached(call, true, slot, kv, value);
        merge(sums, score, 1, value, width);
    }
}

HOST_AGAIN_ITEMS(cuda_attention_decode)
enum err cuda_attention_decode(const struct cuda_attention *call,
                               const struct cuda_decode_items *items, cuda_stream stream,
                               struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_attention_decode, call, sizeof *call, items, sizeof *items))
        return OK;
    for (uint32_t n = 0; n < items->item_count; n++)
        for (uint32_t head = 0; head < call->head_count; head++) {
            const struct gpu_decode_item *item = &items->items[n];
            struct sums sums = {.m = -INFINITY};
            for (uint32_t i = 0; i < item->partial_count; i++)
                read_partial(call, item->partial_in + i, head, &sums);
            add_keys(call, item->row, head, item->position, item->begin, item->end, item->pages,
                     &sums);
            leave(call, item->row, head, item->partial_out, &sums);
        }
    return OK;
}

HOST_AGAIN_ITEMS(cuda_attention_tiles)
enum err cuda_attention_tiles(const struct cuda_attention *call,
                              const struct cuda_tile_items *items, cuda_stream stream,
                              struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_attention_tiles, call, sizeof *call, items, sizeof *items))
        return OK;
    for (uint32_t n = 0; n < items->item_count; n++)
        for (uint32_t i = 0; i < items->items[n].row_count; i++)
            for (uint32_t head = 0; head < call->head_count; head++) {
                const struct gpu_tile_item *item = &items->items[n];
                const uint32_t at = item->row + i, row = items->rows ? items->rows[at] : at;
                const uint32_t step = i * item->partial_step;
                struct sums sums = {.m = -INFINITY};
                assert(item->row_count <= cuda_tile_rows(call->head_count / call->kv_heads));
                if (item->partial_in != GPU_NONE)
                    read_partial(call, item->partial_in + step, head, &sums);
                add_keys(call, row, head, call->positions[row], item->begin, item->end, item->pages,
                         &sums);
                leave(call, row, head,
                      item->partial_out == GPU_NONE ? GPU_NONE : item->partial_out + step, &sums);
            }
    return OK;
}

HOST_AGAIN_ITEMS(cuda_attention_merge)
enum err cuda_attention_merge(const struct cuda_attention *call,
                              const struct cuda_merge_items *items, cuda_stream stream,
                              struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_attention_merge, call, sizeof *call, items, sizeof *items))
        return OK;
    for (uint32_t n = 0; n < items->item_count; n++)
        for (uint32_t head = 0; head < call->head_count; head++) {
            struct sums sums = {.m = -INFINITY};
            for (uint32_t i = 0; i < items->items[n].count; i++)
                read_partial(call, items->items[n].first + i, head, &sums);
            leave(call, items->items[n].row, head, GPU_NONE, &sums);
        }
    return OK;
}

/* ---- sampling ---- */

size_t cuda_sample_partial_bytes(uint32_t rows, uint32_t vocab) {
    (void)vocab;
    return rows * sizeof(uint64_t);
}

static uint32_t best_of(const float *logits, uint32_t vocab) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (draw_clean(logits[i]) > draw_clean(logits[best])) best = i;
    return best;
}

static void set_token(const struct cuda_sample *call, uint32_t row, int32_t token) {
    call->tokens[row] = token;
    if (call->draws[row].slot >= 0) call->last_token[call->draws[row].slot] = token;
}

HOST_AGAIN(cuda_sample_stats)
enum err cuda_sample_stats(const struct cuda_sample *call, struct CUstream_st *stream,
                           struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_sample_stats, call, sizeof *call, NULL, 0)) return OK;
    const struct cuda_logits *in = &call->logits;
    const bool is_all = call->bare_count == 0;
    assert(is_all || (!in->row_scale && in->softcap == 0));
    for (uint32_t n = 0; n < (is_all ? in->rows : call->summed_count); n++) {
        const uint32_t row = is_all ? n : call->summed[n];
        float *logits = in->logits + row * in->stride;
        bool is_bad = false;
        double sum = 0;
        for (uint32_t i = 0; i < in->finished; i++) {
            int32_t whole;
            memcpy(&whole, &logits[i], sizeof whole);
            if (in->is_int32) logits[i] = (float)whole;
            if (in->row_scale)
                logits[i] *= in->row_scale[row] * host_from_bf16(in->column_scale[i]);
            if (in->softcap > 0) logits[i] = in->softcap * tanhf(logits[i] / in->softcap);
            is_bad |= i < in->vocab && !(logits[i] <= 3e38f);
        }
        const uint32_t best = best_of(logits, in->vocab);
        const float max = draw_clean(logits[best]);
        for (uint32_t i = 0; i < in->vocab; i++)
            sum += exp((double)draw_clean(logits[i]) - (double)max);
        call->stats[row] = (struct cuda_stat){max, best, (double)max + log(sum)};
        if (is_bad && call->nonfinite) ++*call->nonfinite;
        const struct gpu_draw *draw = &call->draws[row];
        if (draw->factor == 0 && draw->mask < 0 && draw->edit_count == 0)
            set_token(call, row, (int32_t)best);
    }
    return OK;
}

HOST_AGAIN(cuda_sample_choose)
enum err cuda_sample_choose(const struct cuda_sample *call, struct CUstream_st *stream,
                            struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_sample_choose, call, sizeof *call, NULL, 0)) return OK;
    const struct cuda_logits *in = &call->logits;
    float *edited = malloc(in->vocab * sizeof *edited);
    for (uint32_t n = 0; n < call->drawn_count; n++) {
        const uint32_t row = call->drawn[n];
        const struct gpu_draw *draw = &call->draws[row];
        memcpy(edited, in->logits + row * in->stride, in->vocab * sizeof *edited);
        for (uint32_t i = 0; i < draw->edit_count; i++) {
            const struct draw_edit *edit = &call->edits[draw->edit_begin + i];
            edited[edit->token] = draw_edited(edited[edit->token], edit->kind, edit->value);
        }
        for (uint32_t i = 0; draw->mask >= 0 && i < in->vocab; i++)
            if (!(call->masks[(size_t)draw->mask * call->mask_words + i / 32] >> i % 32 & 1))
                edited[i] = -INFINITY;
        bool is_bad = false;
        for (uint32_t i = 0; n < call->bare_count && i < in->vocab; i++)
            is_bad |= !(edited[i] <= 3e38f);
        if (is_bad && call->nonfinite) ++*call->nonfinite;
        const uint32_t best = best_of(edited, in->vocab);
        set_token(call, row, draw_clean(edited[best]) > -INFINITY ? (int32_t)best : draw->fallback);
    }
    free(edited);
    return OK;
}

/* Tokens before `token` in order of likelihood. */
static uint32_t before(const float *logits, uint32_t vocab, uint32_t token) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < vocab; i++)
        count += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
    return count;
}

/* The most likely tokens, of equal ones the first. */
static void find_top(const float *logits, uint32_t vocab, struct gpu_answer *answer) {
    uint32_t found = 0;
    for (uint32_t id = 0; id < vocab; id++) {
        uint32_t at = found;
        while (at > 0 && logits[id] > answer->top_logits[at - 1]) at--;
        if (at == answer->top_count) continue;
        if (found < answer->top_count) found++;
        for (uint32_t i = found - 1; i > at; i--) {
            answer->top[i] = answer->top[i - 1];
            answer->top_logits[i] = answer->top_logits[i - 1];
        }
        answer->top[at] = (int32_t)id;
        answer->top_logits[at] = logits[id];
    }
}

HOST_AGAIN(cuda_logprobs)
enum err cuda_logprobs(const struct cuda_logprobs *call, struct CUstream_st *stream,
                       struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_logprobs, call, sizeof *call, NULL, 0)) return OK;
    const struct cuda_logits *in = &call->logits;
    for (uint32_t n = 0; n < call->ask_count; n++) {
        const struct gpu_ask *ask = &call->asks[n];
        struct gpu_answer *answer = &call->answers[n];
        const float *logits = in->logits + ask->row * in->stride;
        const int32_t token = ask->token < 0 ? call->tokens[ask->row] : ask->token;
        *answer = (struct gpu_answer){.token = token,
                                      .logit = draw_clean(logits[token]),
                                      .rank = before(logits, in->vocab, (uint32_t)token) + 1,
                                      .top_count = ask->top_count,
                                      .lse = call->stats[ask->row].lse};
        find_top(logits, in->vocab, answer);
        for (uint32_t i = 0; i < ask->named_count; i++)
            call->named_logits[ask->named_begin + i] =
                draw_clean(logits[call->named[ask->named_begin + i]]);
    }
    return OK;
}
