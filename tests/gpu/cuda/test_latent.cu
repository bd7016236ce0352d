/* SPDX-License-Identifier: Apache-2.0 */

/* Entries and queries of latent layers against sums in double. */

#include "rows_of.h"

#include "gpu/cuda/attention.h"
#include "gpu/cuda/latent.h"

#define EPSILON 1e-6f
#define POSITIONS 64
#define ERROR_MAX 0.004 /* bf16 results, and bf16 products with scales */

struct latent_case {
    uint32_t rows, heads, rank, still_dim, turned_dim;
    bool is_kept; /* q is of some rows, in their order */
};

static const struct latent_case cases[] = {
    {0, 16, 512, 128, 64}, {1, 16, 512, 128, 64},       {7, 16, 512, 128, 64, true},
    {9, 4, 64, 48, 32},    {33, 128, 512, 128, 64},     {17, 20, 512, 192, 64, true},
    {8, 3, 256, 96, 32},   {1030, 2, 384, 64, 16, true}};

struct latent_made {
    struct random_product entry, q;
    std::vector<float> norm, cosines, sines;
    std::vector<uint32_t> positions, slots, kept;
    struct cuda_latent_entry entry_call;
    struct cuda_latent_q q_call;
    uint32_t pages;
};

static struct latent_made make(struct rng *rng, const struct latent_case *shape,
                               enum product_form form) {
    struct latent_made m = {};
    const uint32_t dim = shape->rank + shape->turned_dim, pairs = shape->turned_dim / 2;
    const uint32_t width = shape->heads * (shape->still_dim + shape->turned_dim);
    m.entry = random_product(rng, form, shape->rows, dim, dim + 8, 1.5f);
    m.q = random_product(rng, form, shape->rows, width, width + 8, 1.5f);
    m.norm = random_floats(rng, shape->rank, 1.0f);
    for (uint32_t i = 0; i < POSITIONS * pairs; i++) {
        const double angle = 6.283 * rng_unit(rng);
        m.cosines.push_back((float)cos(angle)), m.sines.push_back((float)sin(angle));
    }
    m.pages = shape->rows / 8 + 2;
    std::vector<uint32_t> free_slots;
    for (uint32_t i = 0; i < m.pages * 16; i++) free_slots.push_back(i);
    for (uint32_t row = 0; row < shape->rows; row++) {
        const size_t at = rng_below(rng, free_slots.size());
        m.slots.push_back(free_slots[at]);
        free_slots.erase(free_slots.begin() + (long)at);
        m.positions.push_back((uint32_t)rng_below(rng, POSITIONS));
        if (!shape->is_kept || row % 3 == 1) m.kept.push_back(row);
    }
    const struct cuda_turns turns = {gpu_copy(m.cosines), gpu_copy(m.sines), gpu_copy(m.positions)};
    m.entry_call = {m.entry.product,
                    shape->rows,
                    shape->rank,
                    shape->turned_dim,
                    gpu_copy(m.norm),
                    EPSILON,
                    turns,
                    gpu_copy(m.slots),
                    gpu_take<uint16_t>((size_t)m.pages * 16 * dim)};
    const uint32_t rows = (uint32_t)m.kept.size();
    m.q_call = {m.q.product,
                shape->is_kept ? gpu_copy(m.kept) : NULL,
                rows,
                shape->heads,
                shape->rank,
                shape->still_dim,
                shape->turned_dim,
                turns,
                gpu_take<uint16_t>((size_t)rows * shape->heads * shape->still_dim),
                gpu_take<uint16_t>((size_t)rows * shape->heads * dim)};
    return m;
}

/* Turns the numbers of a part by the angles of a row. */
static void turn(const struct latent_made *m, uint32_t row, double *part, uint32_t count) {
    const uint32_t half = count / 2;
    for (uint32_t i = 0; i < half; i++) {
        const size_t angle = (size_t)m->positions[row] * half + i;
        const double c = m->cosines[angle], s = m->sines[angle], a = part[i], b = part[i + half];
        part[i] = a * c - b * s, part[i + half] = b * c + a * s;
    }
}

/* Adds |got - want|² and |want|². */
static void off(const std::vector<float> &got, size_t at, const double *want, uint32_t count,
                double *squares, double *all) {
    for (uint32_t i = 0; i < count; i++) {
        const double d = (double)got[at + i] - want[i];
        *squares += d * d, *all += want[i] * want[i];
    }
}

static void check_entry(const struct latent_case *shape, const struct latent_made *m,
                        const char *form) {
    const uint32_t rank = shape->rank, dim = rank + shape->turned_dim;
    double squares = 0, all = 0;
    MUST_BE_OK(cuda_latent_entry(&m->entry_call, stream, error));
    gpu_settle();
    const std::vector<uint16_t> bits = gpu_read(m->entry_call.entries, (size_t)m->pages * 16 * dim);
    const std::vector<float> got = floats_of_bf16(bits);
    std::vector<bool> is_stored((size_t)m->pages * 16);
    for (uint32_t row = 0; row < shape->rows; row++) {
        const double *from = &m->entry.values[(size_t)row * dim];
        std::vector<double> want(from, from + dim);
        double sum = 0;
        for (uint32_t i = 0; i < rank; i++) sum += want[i] * want[i];
        for (uint32_t i = 0; i < rank; i++) want[i] *= m->norm[i] / sqrt(sum / rank + EPSILON);
        turn(m, row, &want[rank], shape->turned_dim);
        off(got, (size_t)m->slots[row] * dim, want.data(), dim, &squares, &all);
        is_stored[m->slots[row]] = true;
    }
    const double error = squares == 0 ? 0 : sqrt(squares / all);
    report(error <= ERROR_MAX, "latent: %u entries of %u + %u, %s: off by %.5f", shape->rows, rank,
           shape->turned_dim, form, error);
    bool is_left = true;
    for (size_t i = 0; i < bits.size(); i++) is_left &= is_stored[i / dim] || bits[i] == 0xffff;
    report(is_left, "slots of no row are left alone");
}

static void check_q(const struct latent_case *shape, const struct latent_made *m,
                    const char *form) {
    const uint32_t each = shape->still_dim + shape->turned_dim, rows = m->q_call.rows;
    const uint32_t rank = shape->rank, dim = rank + shape->turned_dim, heads = shape->heads;
    double squares = 0, all = 0;
    bool is_left = true;
    MUST_BE_OK(cuda_latent_q(&m->q_call, stream, error));
    gpu_settle();
    const std::vector<float> still =
        floats_of_bf16(gpu_read(m->q_call.still, (size_t)rows * heads * shape->still_dim));
    const std::vector<uint16_t> bits = gpu_read(m->q_call.q, (size_t)rows * heads * dim);
    const std::vector<float> q = floats_of_bf16(bits);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t head = 0; head < heads; head++) {
            const double *from = &m->q.values[((size_t)m->kept[row] * heads + head) * each];
            std::vector<double> want(from, from + each);
            const size_t at = (size_t)row * heads + head;
            turn(m, row, &want[shape->still_dim], shape->turned_dim);
            off(still, at * shape->still_dim, want.data(), shape->still_dim, &squares, &all);
            off(q, at * dim + rank, &want[shape->still_dim], shape->turned_dim, &squares, &all);
            for (uint32_t i = 0; i < rank; i++) is_left &= bits[at * dim + i] == 0xffff;
        }
    const double error = squares == 0 ? 0 : sqrt(squares / all);
    report(error <= ERROR_MAX, "latent: %u rows of q, %u heads of %u + %u, %s: off by %.5f", rows,
           heads, shape->still_dim, shape->turned_dim, form, error);
    report(is_left, "what the product of a head writes is left alone");
}

static void check_refusals(void) {
    struct error error = {};
    struct cuda_latent_entry entry = {};
    struct cuda_latent_q q = {};
    entry.rank = 528, entry.turned_dim = 64;
    report(cuda_latent_entry(&entry, stream, &error) == ERR_INVALID, "%s", error.text);
    entry.rank = 512, entry.turned_dim = 24;
    report(cuda_latent_entry(&entry, stream, &error) == ERR_INVALID, "%s", error.text);
    q.still_dim = 12, q.turned_dim = 64;
    report(cuda_latent_q(&q, stream, &error) == ERR_INVALID, "%s", error.text);
}

void check_latent(void) {

    static const enum product_form forms[] = {FORM_BF16, FORM_BF16_SCALED, FORM_INT32_BIAS};

    struct rng rng = random_of("latent");
    check_refusals();
    for (const struct latent_case &shape : cases)
        for (int form = 0; form < 3; form++) {
            if (form > 0 && rng_below(&rng, check_one_in) != 0) continue;
            const struct latent_made made = make(&rng, &shape, forms[form]);
            check_entry(&shape, &made, form_names[forms[form]]);
            check_q(&shape, &made, form_names[forms[form]]);
            gpu_release();
        }
}

/* ---- times ---- */

/* Sequences of as many tokens each, their pages dealt at random, in caches to go round in. */
struct latent_load {
    std::vector<struct cuda_attention> layers;
    std::vector<uint32_t> tables; /* where each sequence's page table begins */
    double bytes;                 /* bytes in entries, queries and results */
};

static struct latent_load load_of(uint32_t heads, uint32_t sequences, uint32_t tokens,
                                  uint32_t rows) {
    const uint32_t dim = CUDA_LATENT_RANK + CUDA_LATENT_TURNED, each = (tokens + 15) / 16;
    const size_t entries = (size_t)sequences * each * 16 * dim;
    struct rng rng = random_of("latent load");
    struct latent_load load = {};
    std::vector<uint32_t> pages, positions;
    for (uint32_t i = 0; i < sequences * each; i++) pages.push_back(i);
    for (size_t i = pages.size(); i > 1; i--) std::swap(pages[i - 1], pages[rng_below(&rng, i)]);
    for (uint32_t i = 0; i < sequences; i++) load.tables.push_back(i * each);
    const uint32_t queries = rows / sequences; /* the last ones of a sequence */
    for (uint32_t i = 0; i < rows; i++) positions.push_back(tokens - queries + i % queries);
    struct cuda_attention call = {};
    call.kv_heads = call.page_heads = call.scale_heads = 1;
    call.head_dim = CUDA_LATENT_RANK, call.turned_dim = CUDA_LATENT_TURNED;
    call.head_count = heads, call.scale = 0.07f;
    call.q_stride = (size_t)heads * dim, call.y_stride = (size_t)heads * CUDA_LATENT_RANK;
    void *q = gpu_take_bytes(rows * call.q_stride * 2);
    fill_bf16(q, rows * call.q_stride, 1, 1.0f);
    call.q = q, call.y = gpu_take_bytes(rows * call.y_stride * 2);
    call.positions = gpu_copy(positions), call.pages = gpu_copy(pages);
    for (int i = 0; i < cold_copies(entries * 2); i++) {
        void *k = gpu_take_bytes(entries * 2);
        fill_bf16(k, entries, 2 + (uint64_t)i, 1.0f);
        call.k = k;
        load.layers.push_back(call);
    }
    load.bytes =
        (double)sequences * tokens * dim * 2 + rows * (call.q_stride + call.y_stride) * 2.0;
    return load;
}

/* A row of each sequence, over all its tokens. */
static void bench_decode(uint32_t heads, uint32_t sequences, uint32_t tokens) {
    const struct latent_load load = load_of(heads, sequences, tokens, sequences);
    std::vector<gpu_decode_item> items;
    for (uint32_t i = 0; i < sequences; i++)
        items.push_back({i, tokens - 1, 0, tokens, load.tables[i], 0, 0, GPU_NONE});
    const struct cuda_decode_items call = {gpu_copy(items), sequences};
    const double us = time_us([&](int i) {
        MUST_BE_OK(
            cuda_attention_decode(&load.layers[i % load.layers.size()], &call, stream, error));
    });
    bench_bytes("latent decode", us, load.bytes, ceiling_read(), "%u heads, %u of %u", heads,
                sequences, tokens);
    gpu_release();
}

/* Prompts from their start: 2 (576 + 512) operations for each head, query and key. */
static void bench_prefill(uint32_t heads, uint32_t prompts, uint32_t tokens) {
    const struct latent_load load = load_of(heads, prompts, tokens, prompts * tokens);
    const uint32_t tile = cuda_tile_rows(heads);
    std::vector<gpu_tile_item> items;
    for (uint32_t i = 0; i < prompts; i++)
        for (uint32_t at = 0; at < tokens; at += tile)
            items.push_back({i * tokens + at, std::min(tile, tokens - at), 0,
                             std::min(at + tile, tokens), load.tables[i], GPU_NONE, GPU_NONE, 1});
    std::reverse(items.begin(), items.end()); /* the costly ones first */
    const struct cuda_tile_items call = {gpu_copy(items), (uint32_t)items.size(), NULL};
    const double us = time_us([&](int i) {
        MUST_BE_OK(
            cuda_attention_tiles(&load.layers[i % load.layers.size()], &call, stream, error));
    });
    bench_flops("latent prefill", us, 2.0 * 1088 * heads * prompts * tokens * (tokens + 1) / 2,
                ceiling_product(PRODUCT_BF16), "%u heads, %u x %u", heads, prompts, tokens);
    gpu_release();
}

void bench_latent(void) {
    bench_decode(16, 512, 1000);
    bench_decode(16, 64, 1000);
    bench_decode(128, 256, 1000);
    bench_prefill(16, 8, 777);
    bench_prefill(16, 2, 4096);
    bench_prefill(128, 4, 777);
}
