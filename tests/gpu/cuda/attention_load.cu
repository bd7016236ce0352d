/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_load.h"

#include "gpu/plan_decode.h"

#define HALF_SCALES 0x24 /* in both bytes: float16 0.016 */

static std::vector<uint32_t> dealt_pages(struct rng *rng, uint32_t count) {
    std::vector<uint32_t> pages(count);
    for (uint32_t i = 0; i < count; i++) pages[i] = i;
    for (uint32_t i = count; i > 1; i--) std::swap(pages[i - 1], pages[rng_below(rng, i)]);
    return pages;
}

/* Layers over caches of `page_count` pages, with rows of q and y and room for partials. */
static struct attention_load load_of(const struct attention_load_shape *shape, struct rng *rng,
                                     uint32_t page_count, uint32_t rows, uint32_t partials) {
    struct attention_load load = {};
    struct cuda_attention call = {};
    uint32_t heads = shape->kv_heads * shape->group;
    size_t elements = (size_t)page_count * shape->kv_heads * 16 * shape->head_dim;
    size_t bytes = shape->type == CUDA_KV_BF16 ? elements * 2 : elements;
    size_t scale_bytes = (size_t)page_count * shape->kv_heads * 64;
    int layers = std::min(4, cold_copies(2 * bytes));
    call.type = shape->type, call.kv_heads = shape->kv_heads, call.head_dim = shape->head_dim;
    call.page_heads = call.scale_heads = shape->kv_heads, call.head_count = heads,
    call.scale = 1 / sqrtf((float)shape->head_dim);
    call.q_stride = call.y_stride = (size_t)heads * shape->head_dim;
    void *q = gpu_take<uint16_t>(rows * call.q_stride);
    fill_bf16(q, rows * call.q_stride, 5, 1);
    call.q = q, call.y = gpu_take<uint16_t>(rows * call.y_stride);
    call.partial_o = gpu_take<float>((size_t)partials * heads * shape->head_dim);
    call.partial_ml = gpu_take<float>((size_t)partials * heads * 2);
    for (int i = 0; i < layers; i++) {
        void *k = gpu_take_bytes(bytes), *v = gpu_take_bytes(bytes);
        void *scales = gpu_take_bytes(scale_bytes);
        CUDA_MUST(cudaMemsetAsync(scales, HALF_SCALES, scale_bytes, stream));
        for (void *pool : {k, v}) {
            if (shape->type == CUDA_KV_BF16)
                fill_bf16(pool, elements, (uint64_t)i * 2 + 7, 1);
            else
                fill_e4m3(pool, elements, (uint64_t)i * 2 + 7, 60);
        }
        call.k = k, call.v = v, call.scales = scales;
        call.pages = gpu_copy(dealt_pages(rng, page_count));
        load.layers.push_back(call);
    }
    return load;
}

/* Cuts and sorts `items`; the merges of what was cut. */
static std::vector<gpu_merge_item> planned(std::vector<gpu_decode_item> *items, uint32_t kv_heads,
                                           uint32_t *ret_partials) {
    uint32_t room = (uint32_t)items->size() * 2 + 4 * (uint32_t)card.multiProcessorCount;
    std::vector<gpu_decode_item> cut(room);
    std::vector<gpu_merge_item> merges(items->size());
    struct plan_decode_shape plan_shape = {0, kv_heads, (uint32_t)card.multiProcessorCount,
                                           CUDA_SPLIT_TOKENS};
    struct plan_decode plan = {};
    plan.items = cut.data(), plan.item_room = room;
    plan.merges = merges.data(), plan.merge_room = (uint32_t)items->size();
    plan.partial_room = room;
    plan_decode_fill(&plan, items->data(), (uint32_t)items->size(), &plan_shape);
    cut.resize(plan.item_count), merges.resize(plan.merge_count);
    *items = cut, *ret_partials = plan.partial_count;
    return merges;
}

struct attention_load decode_load(const struct attention_load_shape *shape, uint32_t sequences,
                                  uint32_t shortest, uint32_t longest) {
    struct rng rng = {4242};
    std::vector<uint32_t> lengths;
    std::vector<gpu_decode_item> items;
    uint32_t pages = 0;
    double tokens = 0;
    for (uint32_t i = 0; i < sequences; i++)
        lengths.push_back(shortest + (uint32_t)rng_below(&rng, longest - shortest + 1));
    std::sort(lengths.rbegin(), lengths.rend());
    for (uint32_t i = 0; i < sequences; i++) {
        items.push_back({i, lengths[i] - 1, 0, lengths[i], pages, 0, 0, GPU_NONE});
        pages += (lengths[i] + 15) / 16, tokens += lengths[i];
    }
    uint32_t partials;
    std::vector<gpu_merge_item> merges = planned(&items, shape->kv_heads, &partials);
    struct attention_load load = load_of(shape, &rng, pages, sequences, partials);
    load.decode = {gpu_copy(items), (uint32_t)items.size()};
    load.merges = {gpu_copy(merges), (uint32_t)merges.size()};
    double element = shape->type == CUDA_KV_BF16 ? 2 : 1;
    double token = shape->head_dim * element + (shape->type == CUDA_KV_BF16 ? 0 : 2);
    load.bytes = tokens * shape->kv_heads * 2 * token +
                 4.0 * sequences * shape->kv_heads * shape->group * shape->head_dim;
    return load;
}

struct attention_load prefix_load(const struct attention_load_shape *shape, uint32_t rows,
                                  uint32_t shared, uint32_t parts, uint32_t tile_rows) {
    struct rng rng = {4242};
    std::vector<gpu_tile_item> items;
    struct attention_load load = load_of(shape, &rng, (shared + 15) / 16, rows, rows * parts);
    for (uint32_t first = 0; first < rows; first += tile_rows)
        for (uint32_t part = 0; part < parts; part++)
            items.push_back({first, std::min(tile_rows, rows - first), part * shared / parts,
                             (part + 1) * shared / parts, 0, GPU_NONE, first * parts + part,
                             parts});
    std::vector<uint32_t> positions(rows, shared + 100);
    for (struct cuda_attention &layer : load.layers) layer.positions = gpu_copy(positions);
    load.tiles = {gpu_copy(items), (uint32_t)items.size(), NULL};
    load.flops = 4.0 * rows * shape->kv_heads * shape->group * shape->head_dim * shared;
    return load;
}

struct attention_load prefill_load(const struct attention_load_shape *shape, uint32_t prompts,
                                   uint32_t tokens, uint32_t tile_rows) {
    struct rng rng = {4242};
    uint32_t pages = (tokens + 15) / 16;
    std::vector<gpu_tile_item> items;
    std::vector<uint32_t> positions;
    struct attention_load load = load_of(shape, &rng, prompts * pages, prompts * tokens, 1);
    for (uint32_t i = 0; i < prompts; i++) {
        for (uint32_t p = 0; p < tokens; p++) positions.push_back(p);
        for (uint32_t first = 0; first < tokens; first += tile_rows)
            items.push_back({i * tokens + first, std::min(tile_rows, tokens - first), 0, tokens,
                             i * pages, GPU_NONE, GPU_NONE, 1});
    }
    std::stable_sort(items.begin(), items.end(),
                     [&](const gpu_tile_item &a, const gpu_tile_item &b) {
                         return positions[a.row] > positions[b.row];
                     });
    for (struct cuda_attention &layer : load.layers) layer.positions = gpu_copy(positions);
    load.tiles = {gpu_copy(items), (uint32_t)items.size(), NULL};
    load.flops = 4.0 * prompts * (tokens * (tokens + 1.0) / 2) * shape->kv_heads * shape->group *
                 shape->head_dim;
    return load;
}
