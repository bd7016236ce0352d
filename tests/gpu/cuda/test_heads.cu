/* SPDX-License-Identifier: Apache-2.0 */
#include "rows_of.h"

#include <cuda_fp16.h>

#define EPSILON 1e-6f
#define POSITIONS 64

struct heads_case {
    uint32_t rows, heads, kv_heads, head_dim, rotary_dim;
    bool has_norm, norms_v;
    uint32_t spare; /* heads for which a page has room beside */
};

static const struct heads_case cases[] = {
    {0, 4, 2, 64, 64, true},
    {1, 1, 1, 8, 8, false},
    {3, 4, 2, 64, 64, false},
    {17, 32, 8, 128, 128, true},
    {15, 8, 4, 256, 256, true},
    {5, 14, 2, 64, 64, false},
    {16, 12, 4, 80, 80, true},
    {4, 6, 6, 96, 96, false},
    {3, 4, 2, 128, 32, true},
    {6, 5, 1, 40, 20, true},
    {2, 3, 3, 104, 6, false},
    {2, 40, 10, 128, 0, true},
    {9, 32, 8, 64, 64, true},
    {9, 8, 2, 128, 128, true, true, 2},
    {1030, 8, 2, 64, 64, true, false, 6},
    {7, 8, 4, 64, 64, false},
    {11, 28, 4, 128, 128, false},
    {3, 2, 2, 128, 128, true},
    {5, 5, 1, 128, 128, true},
    {4, 5, 1, 256, 256, false},
    {3, 44, 4, 64, 64, true},
    {2, 64, 8, 128, 128, true},
    {1024, 8, 4, 64, 64, true},
    {9, 4, 2, 32, 32, false},
    {18, 8, 8, 32, 32, true},
    {5, 3, 1, 16, 16, false},
    {1027, 4, 2, 128, 128, true},
    {1025, 9, 1, 128, 128, false},
    {1030, 3, 1, 256, 256, true},
    {9, 8, 2, 256, 256, true, true, 2},
    {1029, 4, 2, 128, 128, true, true, 1},
    {5, 4, 2, 64, 64, true, true},
    {3, 4, 1, 80, 40, true, true, 3},
    {7, 8, 0, 256, 256, true, true, 4},
    {4, 5, 0, 128, 128, true, false, 1},
};

/* Pages of bf16 and split pairs alone. */
static const struct heads_case wide_cases[] = {
    {0, 2, 1, 512, 512, true, true},     {1, 2, 1, 512, 512, true, true, 1},
    {7, 8, 2, 512, 512, true, true},     {33, 32, 4, 512, 512, true, true, 4},
    {3, 5, 1, 512, 0, true, true},       {9, 4, 2, 512, 512, false, false, 3},
    {5, 16, 0, 512, 512, true, true, 1}, {1026, 8, 2, 512, 512, true, true},
};

struct heads_made {
    struct cuda_heads call;
    struct random_product in;
    std::vector<float> q_norm, k_norm, cosines, sines;
    std::vector<uint32_t> positions, slots;
    uint32_t pages;
};

static struct heads_made make(struct rng *rng, const struct heads_case *shape,
                              enum product_form form, bool is_e4m3, bool interleaved) {
    struct heads_made m = {};
    uint32_t columns = (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
    m.in = random_product(rng, form, shape->rows, columns, columns + 8, 1.5f);
    m.q_norm = random_floats(rng, shape->head_dim, 1.0f);
    m.k_norm = random_floats(rng, shape->head_dim, 1.0f);
    uint32_t pairs = shape->rotary_dim / 2;
    for (uint32_t i = 0; i < POSITIONS * pairs; i++) {
        double angle = 6.283 * rng_unit(rng);
        m.cosines.push_back((float)cos(angle)), m.sines.push_back((float)sin(angle));
    }
    m.pages = shape->rows / 8 + 2;
    std::vector<uint32_t> free_slots;
    for (uint32_t i = 0; i < m.pages * 16; i++) free_slots.push_back(i);
    for (uint32_t row = 0; row < shape->rows; row++) {
        m.positions.push_back((uint32_t)rng_below(rng, POSITIONS));
        size_t at = rng_below(rng, free_slots.size());
        m.slots.push_back(free_slots[at]);
        free_slots.erase(free_slots.begin() + (long)at);
    }
    const uint32_t page_heads = shape->kv_heads + shape->spare;
    size_t kv_count = (size_t)m.pages * page_heads * 16 * shape->head_dim;
    struct cuda_heads *call = &m.call;
    call->in = m.in.product, call->rows = shape->rows;
    call->heads = shape->heads, call->kv_heads = shape->kv_heads, call->head_dim = shape->head_dim;
    call->page_heads = page_heads, call->scale_heads = page_heads + shape->spare;
    call->norms_v = shape->norms_v;
    if (shape->has_norm) call->q_norm = gpu_copy(m.q_norm), call->k_norm = gpu_copy(m.k_norm);
    call->epsilon = EPSILON;
    if (pairs) call->cosines = gpu_copy(m.cosines), call->sines = gpu_copy(m.sines);
    call->positions = gpu_copy(m.positions), call->slots = gpu_copy(m.slots);
    call->rotary_dim = shape->rotary_dim, call->interleaved = interleaved;
    call->q_stride = (size_t)shape->heads * shape->head_dim + 8;
    call->q = gpu_take<uint16_t>(shape->rows * call->q_stride);
    call->k = gpu_take_bytes(kv_count * (is_e4m3 ? 1 : 2));
    call->v = gpu_take_bytes(kv_count * (is_e4m3 ? 1 : 2));
    if (is_e4m3) call->kv_scales = gpu_take<uint16_t>((size_t)m.pages * call->scale_heads * 32);
    return m;
}

static std::vector<double> head_wants(const struct heads_made *m, uint32_t row, uint32_t head) {
    const struct cuda_heads *call = &m->call;
    uint32_t dim = call->head_dim, half = call->rotary_dim / 2;
    uint32_t columns = (call->heads + 2 * call->kv_heads) * dim;
    const double *from = &m->in.values[(size_t)row * columns + head * dim];
    std::vector<double> v(from, from + dim);
    bool is_q = head < call->heads, is_k = !is_q && head < call->heads + call->kv_heads;
    const bool is_value = !is_q && !is_k;
    if (is_value ? call->norms_v : call->q_norm != NULL) {
        double squares = 0;
        for (double x : v) squares += x * x;
        double factor = 1 / sqrt(squares / dim + EPSILON);
        for (uint32_t i = 0; i < dim; i++)
            v[i] *= factor * (is_value ? 1.0f : is_q ? m->q_norm[i] : m->k_norm[i]);
    }
    if (is_value) return v;
    for (uint32_t i = 0; i < half; i++) {
        uint32_t a = call->interleaved ? 2 * i : i, b = call->interleaved ? 2 * i + 1 : i + half;
        double c = m->cosines[m->positions[row] * half + i],
               s = m->sines[m->positions[row] * half + i];
        double x = v[a], y = v[b];
        v[a] = x * c - y * s, v[b] = x * s + y * c;
    }
    return v;
}

/* One head's numbers in a page: bf16, or e4m3 with the token's scale. */
static bool is_stored(const struct heads_made *m, const std::vector<uint8_t> &pool,
                      const std::vector<uint16_t> &scales, bool is_value, uint32_t head,
                      uint32_t slot, const std::vector<double> &want) {
    uint32_t dim = m->call.head_dim;
    size_t page_head = (size_t)(slot / 16) * m->call.page_heads + head;
    size_t begin = (page_head * 16 + slot % 16) * dim;
    double most = 0, scale = 1;
    for (double x : want) most = std::max(most, fabs(x));
    if (m->call.kv_scales) {
        const size_t scale_head = (size_t)(slot / 16) * m->call.scale_heads + head;
        scale = half_to_f32(scales[scale_head * 32 + (is_value ? 16 : 0) + slot % 16]);
        if (!(scale >= most / 448 * 0.99999 && scale <= std::max(most / 448, 6.2e-5) * 1.002)) {
            note("scale %g for at most %g", scale, most);
            return false;
        }
    }
    for (uint32_t i = 0; i < dim; i++) {
        double got, room;
        if (m->call.kv_scales) {
            got = e4m3_to_f32(pool[begin + i]) * scale;
            room = std::max(fabs(want[i]) * 0x1p-4, scale * 0x1p-10) * 1.001;
        } else {
            uint16_t bits;
            memcpy(&bits, &pool[2 * (begin + i)], 2);
            got = bf16_to_f32(bits), room = bf16_room(want[i]) * 1.02;
        }
        if (fabs(got - want[i]) <= room + 2e-6 * most) continue;
        note("%s head %u, slot %u, element %u: %g, not %g", is_value ? "value" : "key", head, slot,
             i, got, want[i]);
        return false;
    }
    return true;
}

static bool check_case(struct rng *rng, const struct heads_case *shape, enum product_form form,
                       bool is_e4m3, bool interleaved) {
    if (rng_below(rng, check_one_in) != 0) return true;
    struct heads_made m = make(rng, shape, form, is_e4m3, interleaved);
    MUST_BE_OK(cuda_heads(&m.call, stream, error));
    gpu_settle();
    uint32_t dim = shape->head_dim;
    size_t kv_bytes = (size_t)m.pages * m.call.page_heads * 16 * dim * (is_e4m3 ? 1 : 2);
    std::vector<uint16_t> q = gpu_read(m.call.q, shape->rows * m.call.q_stride), scales;
    std::vector<uint8_t> k = gpu_read((uint8_t *)m.call.k, kv_bytes);
    std::vector<uint8_t> v = gpu_read((uint8_t *)m.call.v, kv_bytes);
    if (is_e4m3) scales = gpu_read(m.call.kv_scales, (size_t)m.pages * m.call.scale_heads * 32);
    bool is_well = true;
    for (uint32_t row = 0; row < shape->rows && is_well; row++) {
        for (uint32_t head = 0; head < shape->heads && is_well; head++) {
            std::vector<double> want = head_wants(&m, row, head);
            for (uint32_t i = 0; i < dim && is_well; i++) {
                double got = bf16_to_f32(q[row * m.call.q_stride + head * dim + i]);
                is_well = fabs(got - want[i]) <= bf16_room(want[i]) * 1.02 + 1e-5;
                if (!is_well) note("q row %u, head %u, %u: %g, not %g", row, head, i, got, want[i]);
            }
        }
        for (uint32_t head = 0; head < shape->kv_heads && is_well; head++)
            is_well = is_stored(&m, k, scales, false, head, m.slots[row],
                                head_wants(&m, row, shape->heads + head)) &&
                      is_stored(&m, v, scales, true, head, m.slots[row],
                                head_wants(&m, row, shape->heads + shape->kv_heads + head));
    }
    size_t written = 0; /* poison is 0xff..., which no stored number is */
    for (size_t i = 0; i < kv_bytes; i++) written += k[i] != 0xff;
    size_t wanted = (size_t)shape->rows * shape->kv_heads * dim * (is_e4m3 ? 1 : 2);
    if (is_well && written > wanted)
        is_well = false, note("%zu B written, not %zu", written, wanted);
    if (!is_well)
        note("rows %u, heads %u + %u of %u, %u turn", shape->rows, shape->heads, shape->kv_heads,
             dim, shape->rotary_dim);
    gpu_release();
    return is_well;
}

/* Whether a call of many rows, which has a kernel of its own on some GPUs, and calls of one row
 * leave the same bits: q, k, v and their scales. */
static bool are_alone_the_same(struct rng *rng, const struct heads_case *shape,
                               enum product_form form, bool is_e4m3) {
    if (rng_below(rng, check_one_in) != 0) return true;
    struct heads_made m = make(rng, shape, form, is_e4m3, false);
    const size_t head_bytes = shape->head_dim * (is_e4m3 ? 1 : 2);
    const size_t kv_bytes = (size_t)m.pages * m.call.page_heads * 16 * head_bytes;
    const size_t scale_count = is_e4m3 ? (size_t)m.pages * m.call.scale_heads * 32 : 0;
    MUST_BE_OK(cuda_heads(&m.call, stream, error));
    gpu_settle();
    const std::vector<uint16_t> q = gpu_read(m.call.q, shape->rows * m.call.q_stride);
    const std::vector<uint8_t> k = gpu_read((uint8_t *)m.call.k, kv_bytes);
    const std::vector<uint8_t> v = gpu_read((uint8_t *)m.call.v, kv_bytes);
    const std::vector<uint16_t> scales = gpu_read(m.call.kv_scales, scale_count);
    for (uint32_t row : {0u, 11u, 527u, 528u, 1001u, shape->rows - 1}) {
        struct cuda_heads alone = m.call;
        alone.in.sums = (const uint16_t *)m.call.in.sums + row * m.call.in.stride;
        if (m.call.in.row_scale) alone.in.row_scale = m.call.in.row_scale + row;
        alone.positions = m.call.positions + row, alone.slots = m.call.slots + row;
        alone.q = m.call.q + row * m.call.q_stride, alone.rows = 1;
        MUST_BE_OK(cuda_heads(&alone, stream, error)); /* over what is there: nothing may change */
    }
    gpu_settle();
    const bool is_same = gpu_read(m.call.q, shape->rows * m.call.q_stride) == q &&
                         gpu_read((uint8_t *)m.call.k, kv_bytes) == k &&
                         gpu_read((uint8_t *)m.call.v, kv_bytes) == v &&
                         gpu_read(m.call.kv_scales, scale_count) == scales;
    if (!is_same) note("%u rows, heads of %u", shape->rows, shape->head_dim);
    gpu_release();
    return is_same;
}

static void check_alone(struct rng *rng) {
    static const struct heads_case many[] = {
        {1200, 8, 4, 64, 64, true},
        {1100, 4, 2, 128, 128, true},
        {1063, 4, 2, 128, 128, false},
        {1024, 3, 1, 256, 256, true},
        {1025, 4, 2, 256, 256, true, true, 2},
    };
    for (enum product_form form : {FORM_BF16, FORM_BF16_SCALED})
        for (bool is_e4m3 : {false, true}) {
            bool is_same = true;
            for (const struct heads_case &shape : many)
                is_same &= are_alone_the_same(rng, &shape, form, is_e4m3);
            report(is_same, "heads: a row of many, %s, into pages of %s, is the same row alone",
                   form_names[form], is_e4m3 ? "e4m3" : "bf16");
        }
}

void check_heads(void) {
    struct rng rng = random_of("heads");
    check_alone(&rng);
    for (int form = FORM_BF16; form < FORM_COUNT; form++)
        for (int e4m3 = 0; e4m3 < 2; e4m3++)
            for (int interleaved = 0; interleaved < 2; interleaved++) {
                bool is_well = true;
                for (const struct heads_case &shape : cases)
                    is_well &= check_case(&rng, &shape, (enum product_form)form, e4m3, interleaved);
                report(is_well, "heads: %s, %s pairs, into pages of %s", form_names[form],
                       interleaved ? "adjoining" : "split", e4m3 ? "e4m3" : "bf16");
            }
    for (int form = FORM_BF16; form < FORM_COUNT; form++) {
        bool is_well = true;
        for (const struct heads_case &shape : wide_cases)
            is_well &= check_case(&rng, &shape, (enum product_form)form, false, false);
        report(is_well, "heads of 512: %s", form_names[form]);
    }
}

static void bench_one(uint32_t rows, uint32_t heads, uint32_t kv_heads, uint32_t dim, bool is_e4m3,
                      bool is_scaled, bool has_norm) {
    size_t columns = (size_t)(heads + 2 * kv_heads) * dim, in_count = rows * columns;
    double bytes = (double)in_count * 2 + (double)rows * heads * dim * 2 +
                   (double)rows * 2 * kv_heads * (dim * (is_e4m3 ? 1 : 2) + (is_e4m3 ? 2 : 0));
    int copies = cold_copies((size_t)bytes);
    uint32_t pages =
        (rows + 15) / 16 * copies * 4; /* rows go to places far apart, as decode rows */
    uint16_t *in = gpu_take<uint16_t>(in_count * copies);
    uint16_t *q = gpu_take<uint16_t>((size_t)rows * heads * dim * copies);
    uint8_t *k = gpu_take<uint8_t>((size_t)pages * kv_heads * 16 * dim * (is_e4m3 ? 1 : 2));
    uint8_t *v = gpu_take<uint8_t>((size_t)pages * kv_heads * 16 * dim * (is_e4m3 ? 1 : 2));
    uint16_t *scales = gpu_take<uint16_t>((size_t)pages * kv_heads * 32);
    float *table = gpu_take<float>(2048 * dim), *weight = gpu_take<float>(dim);
    float *row_scale = gpu_take<float>(rows);
    uint16_t *column_scale = gpu_take<uint16_t>(columns);
    uint32_t *positions = gpu_take<uint32_t>(rows);
    fill_bf16(in, in_count * copies, 1, 1.0f), fill_f32(table, 2048 * dim, 2, 1.0f);
    fill_f32(weight, dim, 3, 1.0f), fill_u32(positions, rows, 4, 2048);
    fill_f32(row_scale, rows, 5, 1.0f), fill_bf16(column_scale, columns, 6, 1.0f);
    std::vector<uint32_t> slots((size_t)rows * copies);
    for (size_t i = 0; i < slots.size(); i++)
        slots[i] = (uint32_t)(i * 61 % (pages * 16ull / 61 * 61));
    uint32_t *gpu_slots = gpu_copy(slots);
    double us = time_us([&](int i) {
        size_t at = (size_t)(i % copies);
        struct cuda_heads call = {};
        call.in.sums = in + at * in_count, call.in.stride = columns;
        if (is_scaled) call.in.row_scale = row_scale, call.in.column_scale = column_scale;
        call.rows = rows, call.heads = heads, call.kv_heads = kv_heads, call.head_dim = dim;
        call.page_heads = call.scale_heads = kv_heads;
        if (has_norm) call.q_norm = call.k_norm = weight;
        call.epsilon = EPSILON, call.cosines = table, call.sines = table + 1024 * dim;
        call.positions = positions, call.rotary_dim = dim;
        call.q = q + at * rows * heads * dim, call.q_stride = (size_t)heads * dim;
        call.k = k, call.v = v, call.slots = gpu_slots + at * rows;
        if (is_e4m3) call.kv_scales = scales;
        MUST_BE_OK(cuda_heads(&call, stream, error));
    });
    bench_moved("heads", us, bytes, "%u x (%u+2*%u) x %u %s%s -> %s", rows, heads, kv_heads, dim,
                is_scaled ? "scaled " : "", has_norm ? "norm" : "", is_e4m3 ? "e4m3" : "bf16");
    gpu_release();
}

void bench_heads(void) {
    for (uint32_t rows : {64u, 512u, 1024u, 2048u}) {
        bench_one(rows, 32, 8, 128, false, false, true); /* Qwen3-4B */
        bench_one(rows, 32, 8, 128, true, true, true);
    }
    for (uint32_t rows : {1024u, 2048u}) {
        bench_one(rows, 32, 8, 64, false, false, false);  /* Llama-3.2-1B */
        bench_one(rows, 8, 4, 256, false, false, true);   /* Gemma-3-4B */
        bench_one(rows, 8, 2, 512, false, false, true);   /* Gemma-4-E4B, a layer without window */
        bench_one(rows, 32, 8, 128, false, false, false); /* Llama-3.1-8B */
        bench_one(rows, 32, 8, 128, true, true, false);
        bench_one(rows, 32, 8, 128, false, true, true); /* what scales cost, and what pages do */
        bench_one(rows, 32, 8, 128, true, false, true);
    }
}
