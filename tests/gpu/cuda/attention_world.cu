/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_world.h"

#define NOBODYS_PAGE 0
#define LOG2_E 1.4426950408889634

static uint32_t key_dim(const struct attention_shape *shape) {
    return shape->head_dim + shape->turned_dim;
}

static uint16_t half_nearest(float value) {
    return half_from_f32(value);
}

/* Page numbers for a sequence: the shared ones, then its own. */
static void deal_pages(struct attention_world *world, struct rng *rng,
                       const std::vector<uint32_t> &lengths, uint32_t shared,
                       uint32_t *ret_page_count) {
    uint32_t shared_pages = shared / CUDA_PAGE_TOKENS, wanted = shared_pages + 4;
    for (uint32_t length : lengths) wanted += (length + 15) / 16;
    std::vector<uint32_t> free_pages;
    for (uint32_t page = 1; page <= wanted; page++) free_pages.push_back(page);
    for (size_t i = free_pages.size(); i > 1; i--)
        std::swap(free_pages[i - 1], free_pages[rng_below(rng, i)]);
    std::vector<uint32_t> common(free_pages.end() - shared_pages, free_pages.end());
    free_pages.resize(free_pages.size() - shared_pages);
    for (uint32_t length : lengths) {
        world->tables.push_back((uint32_t)world->pages.size());
        world->tokens.emplace_back();
        for (uint32_t i = 0; i < (length + 15) / 16; i++) {
            uint32_t page = i < shared_pages ? common[i] : free_pages.back();
            if (i >= shared_pages) free_pages.pop_back();
            world->pages.push_back(page);
        }
        for (uint32_t i = 0; i < length; i++)
            world->tokens.back().push_back(
                world->pages[world->tables.back() + i / 16] * CUDA_PAGE_TOKENS + i % 16);
        world->pages.push_back(NOBODYS_PAGE); /* no item may look behind a table */
    }
    *ret_page_count = wanted + 1;
}

/* One token's head into the pool: bf16, or e4m3 with a scale; `ret` is what was stored. */
static void store(const struct attention_shape *shape, struct rng *rng, bool is_key, size_t slot,
                  uint32_t head, std::vector<uint8_t> *pool, std::vector<uint16_t> *scales,
                  float *ret) {
    uint32_t dim = key_dim(shape);
    size_t page = slot / CUDA_PAGE_TOKENS * (shape->kv_heads + shape->spare_heads) + head;
    size_t scales_of_page = slot / CUDA_PAGE_TOKENS * (shape->kv_heads + 2 * shape->spare_heads);
    size_t at = page * CUDA_PAGE_TOKENS * dim + slot % CUDA_PAGE_TOKENS * dim;
    float deviation = is_key ? 1.0f : 0.5f + (float)rng_unit(rng);
    if (shape->type == CUDA_KV_BF16) {
        for (uint32_t i = 0; i < dim; i++) {
            uint16_t bits = bf16_from_f32(random_normal(rng) * deviation);
            memcpy(&(*pool)[(at + i) * 2], &bits, 2);
            ret[i] = bf16_to_f32(bits);
        }
        return;
    }
    /* Now and then so large a scale that most elements are subnormal. */
    float scale = deviation / (rng_below(rng, 8) ? 64.0f : 0.02f);
    uint16_t bits = half_nearest(scale);
    scale = half_to_f32(bits);
    (*scales)[(scales_of_page + head) * 32 + (is_key ? 0 : 16) + slot % CUDA_PAGE_TOKENS] = bits;
    for (uint32_t i = 0; i < dim; i++) {
        uint8_t code = e4m3_from_f32(random_normal(rng) * deviation / scale);
        (*pool)[at + i] = code;
        ret[i] = e4m3_to_f32(code) * scale;
    }
}

static void fill_cache(struct attention_world *world, struct rng *rng, uint32_t page_count) {
    const struct attention_shape *shape = &world->shape;
    size_t dim = key_dim(shape), heads = shape->kv_heads, page_heads = heads + shape->spare_heads;
    size_t elements = (size_t)page_count * page_heads * CUDA_PAGE_TOKENS * dim;
    size_t element_bytes = shape->type == CUDA_KV_BF16 ? 2 : 1;
    std::vector<uint8_t> k(elements * element_bytes, 0xff), v(k);
    std::vector<uint16_t> scales((size_t)page_count * (page_heads + shape->spare_heads) * 32,
                                 0xffff);
    std::vector<bool> is_stored((size_t)page_count * CUDA_PAGE_TOKENS);
    world->k.resize(elements), world->v.resize(elements);
    for (const std::vector<uint32_t> &slots : world->tokens)
        for (uint32_t slot : slots) {
            if (is_stored[slot]) continue;
            is_stored[slot] = true;
            for (uint32_t head = 0; head < heads; head++) {
                size_t at = (slot * heads + head) * dim;
                store(shape, rng, true, slot, head, &k, &scales, &world->k[at]);
                if (shape->turned_dim == 0)
                    store(shape, rng, false, slot, head, &v, &scales, &world->v[at]);
            }
        }
    world->call.k = gpu_copy(k), world->call.v = shape->turned_dim > 0 ? NULL : gpu_copy(v);
    world->call.scales = gpu_copy(scales);
}

/* The first token that a row sees. */
static uint32_t first_seen(const struct attention_world *world, uint32_t row, uint32_t begin) {
    uint32_t window = world->shape.window, seen = world->rows[row].position + 1;
    return window && seen > window ? std::max(begin, seen - window) : begin;
}

/* Hides the pages that no row sees. */
static void hide_pages(struct attention_world *world) {
    std::vector<bool> is_seen(world->pages.size());
    for (uint32_t row = 0; row < world->rows.size(); row++)
        for (uint32_t i = first_seen(world, row, 0); i <= world->rows[row].position; i++)
            is_seen[world->tables[world->rows[row].sequence] + i / CUDA_PAGE_TOKENS] = true;
    for (size_t i = 0; i < world->pages.size(); i++)
        if (!is_seen[i]) world->pages[i] = NOBODYS_PAGE;
}

struct attention_world attention_world_of(struct rng *rng, const struct attention_shape *shape,
                                          const std::vector<uint32_t> &lengths, uint32_t shared,
                                          const std::vector<attention_row> &rows,
                                          uint32_t partials) {
    struct attention_world world = {};
    uint32_t page_count, heads = shape->kv_heads * shape->group;
    size_t width = (size_t)heads * key_dim(shape), stride = width + 64;
    world.shape = *shape, world.rows = rows, world.partial_room = partials;
    deal_pages(&world, rng, lengths, shared, &page_count);
    fill_cache(&world, rng, page_count);
    hide_pages(&world);
    for (const attention_row &row : rows) world.positions.push_back(row.position);
    std::vector<uint16_t> q(rows.size() * stride, 0xffff);
    for (size_t row = 0; row < rows.size(); row++)
        for (size_t i = 0; i < width; i++) {
            q[row * stride + i] = bf16_from_f32(random_normal(rng) * 1.5f);
            world.q.push_back(bf16_to_f32(q[row * stride + i]));
        }
    world.partial_o = gpu_take<float>((size_t)partials * width);
    world.partial_ml = gpu_take<float>((size_t)partials * heads * 2);
    struct cuda_attention *call = &world.call;
    call->type = shape->type;
    call->page_heads = shape->kv_heads + shape->spare_heads;
    call->scale_heads = call->page_heads + shape->spare_heads;
    call->kv_heads = shape->kv_heads, call->head_dim = shape->head_dim, call->head_count = heads;
    call->turned_dim = shape->turned_dim;
    call->scale = 1 / sqrtf((float)shape->head_dim);
    call->softcap = shape->softcap, call->window = shape->window;
    for (uint32_t i = 0; shape->has_sinks && i < heads; i++)
        world.sinks.push_back(random_normal(rng) * 3);
    if (shape->has_sinks) call->sinks = gpu_copy(world.sinks);
    call->q = gpu_copy(q), call->q_stride = stride;
    call->y = gpu_take<uint16_t>(rows.size() * stride), call->y_stride = stride;
    call->positions = gpu_copy(world.positions), call->pages = gpu_copy(world.pages);
    call->partial_o = world.partial_o, call->partial_ml = world.partial_ml;
    return world;
}

double attention_reference(const struct attention_world *world, uint32_t row, uint32_t head,
                           uint32_t begin, uint32_t end, std::vector<double> *ret_y) {
    const struct attention_shape *shape = &world->shape;
    const std::vector<float> &values = shape->turned_dim > 0 ? world->k : world->v;
    uint32_t width = shape->head_dim, dim = key_dim(shape), heads = shape->kv_heads * shape->group;
    const std::vector<uint32_t> &slots = world->tokens[world->rows[row].sequence];
    const float *q = &world->q[((size_t)row * heads + head) * dim];
    double largest = -INFINITY, total = 0;
    std::vector<double> scores;
    begin = first_seen(world, row, begin), end = std::min(end, world->rows[row].position + 1);
    for (uint32_t i = begin; i < end; i++) {
        const float *k =
            &world->k[((size_t)slots[i] * shape->kv_heads + head / shape->group) * dim];
        double score = 0;
        for (uint32_t j = 0; j < dim; j++) score += (double)q[j] * k[j];
        score *= world->call.scale;
        if (shape->softcap > 0) score = shape->softcap * tanh(score / shape->softcap);
        scores.push_back(score);
        largest = std::max(largest, score);
    }
    ret_y->assign(width, 0);
    for (uint32_t i = begin; i < end; i++) {
        const float *v = &values[((size_t)slots[i] * shape->kv_heads + head / shape->group) * dim];
        double weight = exp(scores[i - begin] - largest);
        total += weight;
        for (uint32_t j = 0; j < width; j++) (*ret_y)[j] += weight * v[j];
    }
    for (double &y : *ret_y) y = total > 0 ? y / total : 0;
    return total > 0 ? largest * LOG2_E + log2(total) : -INFINITY;
}

/* |got - want| / |want|; want 0 must be got exactly. */
static double off(const float *got, const std::vector<double> &want, double *ret_squares,
                  double *ret_all) {
    double apart = 0, all = 0;
    for (size_t i = 0; i < want.size(); i++) {
        double d = (double)got[i] - want[i];
        apart += d * d, all += want[i] * want[i];
    }
    if (!(apart < INFINITY)) apart = INFINITY;
    *ret_squares += apart, *ret_all += all;
    return apart == 0 ? 0 : all == 0 ? INFINITY : sqrt(apart / all);
}

double attention_error(const struct attention_world *world, uint32_t first, uint32_t count,
                       double *ret_worst) {
    const struct cuda_attention *call = &world->call;
    std::vector<float> y =
        floats_of_bf16(gpu_read((const uint16_t *)call->y, world->rows.size() * call->y_stride));
    std::vector<double> want;
    double squares = 0, all = 0;
    *ret_worst = 0;
    for (uint32_t row = first; row < first + count; row++)
        for (uint32_t head = 0; head < call->head_count; head++) {
            const double log_sum = attention_reference(world, row, head, 0, UINT32_MAX, &want);
            if (world->shape.has_sinks)
                for (double &x : want) x /= 1 + exp2(world->sinks[head] * LOG2_E - log_sum);
            const float *got = &y[row * call->y_stride + (size_t)head * call->head_dim];
            *ret_worst = std::max(*ret_worst, off(got, want, &squares, &all));
        }
    return squares == 0 ? 0 : sqrt(squares / all);
}

double attention_partial_error(const struct attention_world *world, uint32_t partial, uint32_t row,
                               uint32_t begin, uint32_t end, double *ret_log_error) {
    const struct cuda_attention *call = &world->call;
    size_t width = (size_t)call->head_count * call->head_dim;
    std::vector<float> o = gpu_read(call->partial_o + partial * width, width);
    std::vector<float> ml = gpu_read(call->partial_ml + (size_t)partial * call->head_count * 2,
                                     (size_t)call->head_count * 2);
    std::vector<double> want;
    double squares = 0, all = 0;
    *ret_log_error = 0;
    for (uint32_t head = 0; head < call->head_count; head++) {
        double log_sum = attention_reference(world, row, head, begin, end, &want);
        float m = ml[head * 2], l = ml[head * 2 + 1];
        float *got = &o[(size_t)head * call->head_dim];
        for (uint32_t i = 0; l > 0 && i < call->head_dim; i++) got[i] /= l;
        (void)off(got, want, &squares, &all);
        double apart = std::isinf(log_sum) ? (l == 0 ? 0 : INFINITY) : fabs(m + log2(l) - log_sum);
        if (!(apart <= *ret_log_error)) *ret_log_error = std::isnan(apart) ? INFINITY : apart;
    }
    return squares == 0 ? 0 : sqrt(squares / all);
}
