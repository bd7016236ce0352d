/* SPDX-License-Identifier: Apache-2.0 */

/* The KV cache and attention. Each table's cache is full of NaN but for what kv_store wrote, its
 * block table is shuffled, and entries that must not be read are not block numbers. ref works on
 * the same keys and values (rounded to the cache's type first, so both see the same numbers);
 * tolerance 2e-5 of the largest value. With a cache of bf16, queries are rounded first as well; the
 * kernel rounds each weight by 2^-9 of it at most, so the weights of a row, which sum to 1, move
 * its result by 2^-8 of the largest value. With one of 8 bits, a weight moves by half of a 255th
 * (avx2: 127th) of the largest of its 64 keys, up or down, so sums of many keys move by less. What
 * a group gives must be bitwise what its items give one by one. */

#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_MAX 300
#define BLOCKS 24

static enum tensor_type cache_type; /* what the caches that are checked have */

struct shape {
    uint32_t kv_heads;
    uint32_t group;
    uint32_t head_dim;
    float softcap;
    bool has_sinks;
    bool has_bias;
};

/* Below all scores, among them and above them, by the head. */
static const float sinks[] = {-30.0f, 0.5f, 4.0f, -1.0f, 40.0f, 0.0f, 2.0f, -4.0f, 1.0f};

/* A bias by distance, of up to nine heads. */
#define BIAS_ZERO (BLOCKS * KV_BLOCK_TOKENS - 1)
#define BIAS_STRIDE (2 * (size_t)BLOCKS * KV_BLOCK_TOKENS)
static float bias[9 * BIAS_STRIDE];

/* Numbers from -2 to 2, other ones at each distance. */
static void fill_bias(void) {
    struct rng rng = {11};
    for (size_t i = 0; i < COUNT_OF(bias); i++)
        bias[i] = (float)rng_below(&rng, 4001) / 1000.0f - 2.0f;
}

/* One sequence of `length` tokens in a cache. */
struct sequence {
    struct shape shape;
    uint32_t length;
    struct kv_cache cache;
    uint32_t blocks[BLOCKS];
    float *q;
    float *k;
    float *v;
    size_t q_stride;
    size_t kv_stride;
};

static void poison_cache(const struct sequence *sequence) {
    size_t bytes = BLOCKS * kv_block_bytes(&sequence->cache);
    memset(sequence->cache.k, 0xff, bytes); /* NaN in all types */
    memset(sequence->cache.v, 0xff, bytes);
}

static void store(const struct kernels *kernels, const struct sequence *sequence) {
    uint32_t slots[LENGTH_MAX];
    for (uint32_t i = 0; i < sequence->length; i++)
        slots[i] = sequence->blocks[i / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + i % KV_BLOCK_TOKENS;
    struct kv_store call = {.cache = &sequence->cache,
                            .k = sequence->k,
                            .k_stride = sequence->kv_stride,
                            .v = sequence->v,
                            .v_stride = sequence->kv_stride,
                            .slots = slots,
                            .rows = sequence->length};
    uint32_t heads = sequence->shape.kv_heads;
    poison_cache(sequence);
    kernels->kv_store(&call, 0, heads / 2);
    kernels->kv_store(&call, heads / 2, heads / 2);
    kernels->kv_store(&call, heads / 2, heads);
}

/* Rounds the heads of rows to whole steps of each head's largest element / 127, and back. */
static void round_to_steps(const struct shape *shape, float *x, size_t rows, uint32_t heads,
                           size_t stride) {
    for (size_t h = 0; h < rows * heads; h++) {
        float *head = x + h / heads * stride + h % heads * shape->head_dim, largest = 0;
        for (uint32_t i = 0; i < shape->head_dim; i++) largest = fmaxf(largest, fabsf(head[i]));
        for (uint32_t i = 0; i < shape->head_dim; i++)
            head[i] = rintf(head[i] * (127 / largest)) * (largest / 127);
    }
}

/* Rounds numbers to the type of a cache, and back. */
static void round_to(enum tensor_type type, float *x, size_t count) {
    for (size_t i = 0; type != TENSOR_KV_INT8 && i < count; i++)
        x[i] = type == TENSOR_BF16 ? bf16_to_f32(bf16_from_f32(x[i]))
                                   : half_to_f32(half_from_f32(x[i]));
}

static struct sequence make_sequence(struct rng *rng, enum tensor_type type, struct shape shape,
                                     uint32_t length) {
    struct sequence sequence = {.shape = shape, .length = length};
    sequence.q_stride = (size_t)shape.kv_heads * shape.group * shape.head_dim + 5;
    sequence.kv_stride = (size_t)shape.kv_heads * shape.head_dim + 3;
    sequence.q = make_random(rng, length * sequence.q_stride);
    sequence.k = make_random(rng, length * sequence.kv_stride);
    sequence.v = make_random(rng, length * sequence.kv_stride);
    round_to(type, sequence.k, length * sequence.kv_stride);
    round_to(type, sequence.v, length * sequence.kv_stride);
    if (type == TENSOR_BF16) round_to(type, sequence.q, length * sequence.q_stride);
    if (type == TENSOR_KV_INT8) {
        const uint32_t heads = shape.kv_heads;
        round_to_steps(&shape, sequence.q, length, heads * shape.group, sequence.q_stride);
        round_to_steps(&shape, sequence.k, length, heads, sequence.kv_stride);
        round_to_steps(&shape, sequence.v, length, heads, sequence.kv_stride);
    }
    for (uint32_t i = 0; i < BLOCKS; i++) sequence.blocks[i] = i;
    for (uint32_t i = BLOCKS - 1; i > 0; i--) {
        uint32_t j = (uint32_t)rng_below(rng, i + 1);
        uint32_t block = sequence.blocks[i];
        sequence.blocks[i] = sequence.blocks[j];
        sequence.blocks[j] = block;
    }
    return sequence;
}

static void open_cache(struct sequence *sequence, enum tensor_type type) {
    sequence->cache = (struct kv_cache){
        .type = type, .kv_heads = sequence->shape.kv_heads, .head_dim = sequence->shape.head_dim};
    size_t bytes = BLOCKS * kv_block_bytes(&sequence->cache);
    sequence->cache.k = make_bytes(bytes);
    sequence->cache.v = make_bytes(bytes);
}

static void close_cache(struct sequence *sequence) {
    free(sequence->cache.k);
    free(sequence->cache.v);
}

static void drop_sequence(struct sequence *sequence) {
    free(sequence->q);
    free(sequence->k);
    free(sequence->v);
}

/* Queries first..first+count-1, with the block table cut down to the blocks that they may read. */
static void attend(const struct kernels *kernels, const struct sequence *sequence, uint32_t first,
                   uint32_t count, uint32_t window, bool causal, float *y) {
    uint32_t blocks[BLOCKS];
    uint32_t key_end = causal ? first + count : sequence->length;
    if (!causal && window > 0 && count > 0 && first + count - 1 + window < key_end)
        key_end = first + count - 1 + window;
    uint32_t key_begin = window && first + 1 > window ? first + 1 - window : 0;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        bool is_read = i >= key_begin / KV_BLOCK_TOKENS && i * KV_BLOCK_TOKENS < key_end;
        blocks[i] = is_read ? sequence->blocks[i] : UINT32_MAX / 2;
    }
    struct attention call = {.cache = &sequence->cache,
                             .q = sequence->q,
                             .q_stride = sequence->q_stride,
                             .y = y,
                             .y_stride = sequence->q_stride,
                             .head_count = sequence->shape.kv_heads * sequence->shape.group,
                             .scale = 1 / sqrtf((float)sequence->shape.head_dim),
                             .softcap = sequence->shape.softcap,
                             .window = window,
                             .causal = causal,
                             .sinks = sequence->shape.has_sinks ? sinks : NULL,
                             .bias = sequence->shape.has_bias ? bias : NULL,
                             .bias_stride = BIAS_STRIDE,
                             .bias_zero = BIAS_ZERO};
    struct attention_item item = {.row = first,
                                  .row_count = count,
                                  .position = first,
                                  .key_count = sequence->length,
                                  .blocks = blocks};
    uint32_t heads = sequence->shape.kv_heads;
    struct attention_group group = {.items = &item, .item_count = 1};
    kernels->attention(&call, &group, 0, 0);
    kernels->attention(&call, &group, 0, heads / 2);
    kernels->attention(&call, &group, heads / 2, heads);
}

static bool rows_agree(const struct sequence *sequence, const float *a, const float *b,
                       float tolerance) {
    size_t width = sequence->q_stride - 5;
    for (uint32_t r = 0; r < sequence->length; r++) {
        for (size_t i = 0; i < width; i++) {
            size_t at = r * sequence->q_stride + i;
            if (!(fabsf(a[at] - b[at]) <= tolerance)) {
                note("query %u element %zu is %.9g, not %.9g", r, i, (double)a[at], (double)b[at]);
                return false;
            }
        }
        for (size_t i = width; i < sequence->q_stride; i++) /* the rows between are unchanged */
            if (!isnan(a[r * sequence->q_stride + i])) return false;
    }
    return true;
}

/* By how much a row's result may be off, as a share of the largest value. */
static float weight_error(const struct kernels *kernels) {
    if (cache_type == TENSOR_KV_INT8 && !kernels->keeps_blocks)
        return strcmp(kernels->name, "avx2") == 0 ? 0x1p-6f : 0x1p-7f;
    return cache_type == TENSOR_BF16 ? 0x1p-8f : 2e-5f;
}

static bool attention_is_right(struct rng *rng, const struct kernels *kernels, struct shape shape,
                               uint32_t length, uint32_t window, bool causal) {
    struct sequence sequence = make_sequence(rng, cache_type, shape, length);
    size_t count = length * sequence.q_stride;
    float *expected = make_floats(count);
    float *whole = make_floats(count);
    float *cut = make_floats(count);
    poison(expected, count);
    poison(whole, count);
    poison(cut, count);

    open_cache(&sequence, TENSOR_F32);
    store(kernels_at(0), &sequence);
    attend(kernels_at(0), &sequence, 0, length, window, causal, expected);
    close_cache(&sequence);
    open_cache(&sequence, cache_type);
    store(kernels, &sequence);
    attend(kernels, &sequence, 0, length, window, causal, whole);
    for (uint32_t first = 0; first < length;) {
        uint32_t some = (uint32_t)rng_below(rng, length < 9 ? 3 : 40);
        if (some > length - first) some = length - first;
        attend(kernels, &sequence, first, some, window, causal, cut);
        first += some;
    }
    close_cache(&sequence);

    bool is_ok = rows_agree(&sequence, whole, expected, 12 * weight_error(kernels));
    bool is_same = same_floats(whole, cut, count);
    if (!is_same) note("cutting the prompt changes bits");
    free(expected);
    free(whole);
    free(cut);
    drop_sequence(&sequence);
    return is_ok && is_same;
}

/* Every stored element is where the layout says, and no other was touched. */
static bool store_is_right(struct rng *rng, const struct kernels *kernels, struct shape shape) {
    struct sequence sequence = make_sequence(rng, cache_type, shape, 37);
    struct sequence reference = sequence;
    open_cache(&sequence, cache_type);
    open_cache(&reference, cache_type);
    store(kernels, &sequence);
    store(kernels_at(0), &reference);
    size_t bytes = BLOCKS * kv_block_bytes(&sequence.cache);
    bool is_ok = memcmp(sequence.cache.k, reference.cache.k, bytes) == 0 &&
                 memcmp(sequence.cache.v, reference.cache.v, bytes) == 0;
    close_cache(&sequence);
    close_cache(&reference);
    drop_sequence(&sequence);
    return is_ok;
}

/* ---- groups ---- */

#define HERD_MAX 40
#define OWN_BLOCKS 8

/* Sequences whose first blocks are the same, each with some queries at its end. */
struct herd {
    struct kv_cache cache;
    uint32_t count;
    uint32_t shared_blocks;
    struct attention_item items[HERD_MAX];
    uint32_t tables[HERD_MAX][BLOCKS];
    struct attention call;
    float *q;
    size_t q_count;
};

/* Random keys and values for positions begin..end-1 of a block table. */
static void store_tokens(struct rng *rng, const struct kernels *kernels,
                         const struct kv_cache *cache, const uint32_t *table, uint32_t begin,
                         uint32_t end) {
    size_t width = (size_t)cache->kv_heads * cache->head_dim;
    for (uint32_t i = begin; i < end; i++) {
        float *k = make_random(rng, width);
        float *v = make_random(rng, width);
        uint32_t slot = table[i / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + i % KV_BLOCK_TOKENS;
        struct kv_store call = {.cache = cache,
                                .k = k,
                                .k_stride = width,
                                .v = v,
                                .v_stride = width,
                                .slots = &slot,
                                .rows = 1};
        kernels->kv_store(&call, 0, cache->kv_heads);
        free(k);
        free(v);
    }
}

/* Most items are one query behind the shared blocks, as in decode. Some have several queries, or no
 * query, or end inside the shared blocks. */
static struct attention_item make_item(struct rng *rng, uint32_t shared_blocks, bool causal) {
    uint32_t shared = shared_blocks * KV_BLOCK_TOKENS;
    uint32_t most = OWN_BLOCKS * KV_BLOCK_TOKENS;
    struct attention_item item = {.row_count = 1};
    uint32_t kind = (uint32_t)rng_below(rng, 8);
    if (kind == 0) item.row_count = (uint32_t)rng_below(rng, 6);
    if (kind == 1) item.row_count = (uint32_t)rng_below(rng, 40);
    uint32_t end = shared + 1 + (uint32_t)rng_below(rng, most);
    if (kind == 2) end = 1 + (uint32_t)rng_below(rng, shared + 1);
    if (end < item.row_count) end = item.row_count;
    item.position = end - item.row_count;
    if (!causal) item.key_count = end;
    return item;
}

/* Table `own` follows the shared one; entries that must not be read are no block numbers. */
static void fill_table(struct herd *herd, uint32_t i, const uint32_t *shared, const uint32_t *own) {
    struct attention_item *item = &herd->items[i];
    uint32_t window = herd->call.window, end = item->position + item->row_count;
    uint32_t begin = window && item->position + 1 > window ? item->position + 1 - window : 0;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        bool is_read = b >= begin / KV_BLOCK_TOKENS && b * KV_BLOCK_TOKENS < end;
        herd->tables[i][b] = !is_read                  ? UINT32_MAX / 2
                             : b < herd->shared_blocks ? shared[b]
                                                       : own[b - herd->shared_blocks];
    }
    item->blocks = herd->tables[i];
}

static void make_herd(struct rng *rng, const struct kernels *kernels, struct shape shape,
                      uint32_t window, bool causal, struct herd *herd) {
    uint32_t block_count = herd->shared_blocks + herd->count * OWN_BLOCKS;
    uint32_t *numbers = make_bytes(block_count * sizeof *numbers);
    for (uint32_t i = 0; i < block_count; i++) { /* shuffled */
        uint32_t j = (uint32_t)rng_below(rng, i + 1);
        numbers[i] = numbers[j];
        numbers[j] = i;
    }
    herd->cache = (struct kv_cache){
        .type = cache_type, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
    size_t bytes = block_count * kv_block_bytes(&herd->cache);
    herd->cache.k = memset(make_bytes(bytes), 0xff, bytes); /* NaN */
    herd->cache.v = memset(make_bytes(bytes), 0xff, bytes);
    herd->call = (struct attention){.cache = &herd->cache,
                                    .head_count = shape.kv_heads * shape.group,
                                    .scale = 1 / sqrtf((float)shape.head_dim),
                                    .softcap = shape.softcap,
                                    .window = window,
                                    .causal = causal,
                                    .sinks = shape.has_sinks ? sinks : NULL,
                                    .bias = shape.has_bias ? bias : NULL,
                                    .bias_stride = BIAS_STRIDE,
                                    .bias_zero = BIAS_ZERO};
    herd->call.q_stride = herd->call.y_stride = (size_t)herd->call.head_count * shape.head_dim + 5;
    size_t rows = 0;
    uint32_t shared = herd->shared_blocks * KV_BLOCK_TOKENS;
    store_tokens(rng, kernels, &herd->cache, numbers, 0, shared);
    for (uint32_t i = 0; i < herd->count; i++) {
        const uint32_t *own = numbers + herd->shared_blocks + (size_t)i * OWN_BLOCKS;
        herd->items[i] = make_item(rng, herd->shared_blocks, causal);
        herd->items[i].row = rows;
        uint32_t end = herd->items[i].position + herd->items[i].row_count;
        rows += herd->items[i].row_count + i % 3 / 2; /* and rows of no item */
        fill_table(herd, i, numbers, own);
        if (end > shared) store_tokens(rng, kernels, &herd->cache, own, 0, end - shared);
    }
    free(numbers);
    herd->q_count = (rows + 1) * herd->call.q_stride;
    herd->call.q = herd->q = make_random(rng, herd->q_count);
}

/* The herd in groups of `each` items. */
static float *run_herd(const struct kernels *kernels, struct herd *herd, uint32_t each,
                       uint32_t shared_blocks, uint32_t heads_each) {
    float *y = herd->call.y = make_floats(herd->q_count);
    poison(y, herd->q_count);
    for (uint32_t i = 0; i < herd->count; i += each) {
        struct attention_group group = {.items = herd->items + i,
                                        .item_count =
                                            herd->count - i < each ? herd->count - i : each,
                                        .shared_blocks = shared_blocks};
        for (uint32_t head = 0; head < herd->cache.kv_heads; head += heads_each)
            kernels->attention(&herd->call, &group, head, head + heads_each);
    }
    return y;
}

static bool group_is_right(struct rng *rng, const struct kernels *kernels, struct shape shape,
                           uint32_t count, uint32_t shared_blocks, uint32_t window, bool causal) {
    static struct herd herd;
    herd = (struct herd){.count = count, .shared_blocks = shared_blocks};
    make_herd(rng, kernels, shape, window, causal, &herd);
    float *alone = run_herd(kernels, &herd, 1, 0, 1);
    float *together[] = {
        run_herd(kernels, &herd, count, shared_blocks, shape.kv_heads),
        run_herd(kernels, &herd, count, shared_blocks / 2, 1),
        run_herd(kernels, &herd, count, 0, shape.kv_heads),
        run_herd(kernels, &herd, 1 + (uint32_t)rng_below(rng, count), shared_blocks,
                 shape.kv_heads),
    };
    bool is_ok = true;
    for (size_t i = 0; i < COUNT_OF(together); i++) {
        if (!same_floats(alone, together[i], herd.q_count)) {
            note("%u items, %u blocks shared, window %u: way %zu changes bits", count,
                 shared_blocks, window, i);
            is_ok = false;
        }
        free(together[i]);
    }
    size_t written = 0; /* or all would be the same NaN */
    for (size_t i = 0; i < herd.q_count; i++) written += !isnan(alone[i]);
    size_t width = herd.call.q_stride - 5, wanted = 0;
    for (uint32_t i = 0; i < count; i++) wanted += herd.items[i].row_count * width;
    if (written != wanted) is_ok = false;
    free(alone);
    free(herd.q);
    free(herd.cache.k);
    free(herd.cache.v);
    return is_ok;
}

/* The sizes of groups that are checked with heads of 64: all, or each fifth from a drawn one on. */
static uint32_t sizes_apart(uint32_t *ret_first) {
    static uint64_t seed;
    static double share;
    if (share == 0) share = report_share(&seed);
    const uint32_t apart = share < 1 ? 5 : 1;
    *ret_first = 1 + (uint32_t)(seed++ % apart);
    return apart;
}

static void check_groups(struct rng *rng, const struct kernels *kernels, struct shape shape) {
    static const uint32_t windows[] = {1, 63, 64, 65, 100, 200};
    bool is_ok = true;
    uint32_t first = 1, step = shape.head_dim == 64 ? sizes_apart(&first) : 13;
    for (uint32_t count = first; count <= HERD_MAX; count += step) {
        uint32_t shared_blocks = (uint32_t)rng_below(rng, BLOCKS - OWN_BLOCKS + 1);
        bool causal = count % 5 != 4;
        is_ok = group_is_right(rng, kernels, shape, count, shared_blocks, 0, causal) && is_ok;
    }
    report(is_ok, "%s attention, %s, %ux%u heads of %u, groups of 1 to %u", kernels->name,
           kv_type_name(cache_type), shape.kv_heads, shape.group, shape.head_dim, HERD_MAX);
    is_ok = true;
    for (uint32_t blocks = 0; blocks <= 9; blocks++)
        is_ok = group_is_right(rng, kernels, shape, 5, blocks, 0, true) && is_ok;
    report(is_ok, "%s attention, %s, %ux%u heads of %u, 0 to 9 blocks shared", kernels->name,
           kv_type_name(cache_type), shape.kv_heads, shape.group, shape.head_dim);
    is_ok = true;
    for (size_t i = 0; i < COUNT_OF(windows); i++)
        for (int causal = 0; causal < 2; causal++)
            is_ok = group_is_right(rng, kernels, shape, 7, 13, windows[i], causal) && is_ok;
    report(is_ok, "%s attention, %s, %ux%u heads of %u, groups with windows", kernels->name,
           kv_type_name(cache_type), shape.kv_heads, shape.group, shape.head_dim);
}

void check_attention(const struct kernels *kernels, enum tensor_type type) {
    static const struct shape shapes[] = {
        {3, 3, 64, 0, false, false},    {1, 1, 32, 0, false, false},
        {1, 8, 128, 0, false, false},   {1, 2, 256, 0, false, false},
        {2, 2, 80, 0, false, false},    {1, 5, 24, 0, false, false},
        {4, 1, 8, 0, false, false},     {1, 7, 64, 0, false, false},
        {1, 2, 64, 0.7f, false, false}, {2, 1, 24, 50.0f, false, false},
        {3, 3, 64, 0, true, false},     {1, 8, 128, 0, true, false},
        {2, 1, 24, 50.0f, true, false}, {4, 1, 8, 0, false, true},
        {1, 3, 24, 50.0f, false, true}};
    static const uint32_t lengths[] = {1, 15, 16, 17, 64, 65, 255, 256, 257};
    static const uint32_t windows[] = {1, 15, 16, 17, 100};
    struct rng rng = {3};
    cache_type = type;
    fill_bias();
    /* The walk is one text for all tables: a small share checks every other shape of the others. */
    uint64_t seed;
    const bool is_part = report_share(&seed) < 1 && type != TENSOR_F16 && type != TENSOR_F32;
    for (size_t s = is_part ? seed % 2 : 0; s < COUNT_OF(shapes); s += is_part ? 2 : 1) {
        struct shape shape = shapes[s];
        report(store_is_right(&rng, kernels, shape), "%s kv_store, %s, %u heads of %u",
               kernels->name, kv_type_name(cache_type), shape.kv_heads, shape.head_dim);
        for (size_t i = 0; i < COUNT_OF(lengths); i++) {
            bool is_ok = attention_is_right(&rng, kernels, shape, lengths[i], 0, true);
            if (lengths[i] % 16 == 1)
                is_ok = attention_is_right(&rng, kernels, shape, lengths[i], 0, false) && is_ok;
            report(is_ok, "%s attention, %s, %ux%u heads of %u, %u tokens, softcap %g%s%s",
                   kernels->name, kv_type_name(cache_type), shape.kv_heads, shape.group,
                   shape.head_dim, lengths[i], (double)shape.softcap,
                   shape.has_sinks ? ", sinks" : "", shape.has_bias ? ", bias" : "");
        }
        for (size_t i = 0; i < COUNT_OF(windows); i++)
            for (int causal = 0; causal < 2; causal++)
                report(attention_is_right(&rng, kernels, shape, 200, windows[i], causal),
                       "%s attention, %s, %ux%u heads of %u, window %u%s", kernels->name,
                       kv_type_name(cache_type), shape.kv_heads, shape.group, shape.head_dim,
                       windows[i], causal ? "" : " to both sides");
        check_groups(&rng, kernels, shape);
    }
}
