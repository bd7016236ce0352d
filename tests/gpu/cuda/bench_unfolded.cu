/* SPDX-License-Identifier: Apache-2.0 */

/* Times of prompts of latent layers in both forms, whole: what the absorbed form needs around its
 * attention (the product of each head with q, and of its result), and what the unfolded form needs
 * before its own (the rows of entries, and their product). Shares are of a form's own operations,
 * so that only microseconds compare the two. Samples of both results are compared. */

#include "rows_of.h"

#include "gpu/cuda/attention_unfolded.h"

extern "C" {
#include "gpu/cuda/products.h"
}

#define RANK 512u
#define DIM (RANK + CUDA_UNFOLDED_TURNED)
#define HEAD CUDA_UNFOLDED_STILL
#define CHUNK 2048u /* rows of a product, as in steps */
#define WORKSPACE_BYTES (32u << 20)
#define SAMPLES 48
#define APART_MAX 0.02 /* both round to bf16 twice on the way, each elsewhere */

/* Prompts of `rows` rows behind `cached` tokens each. */
struct unfolded_load {
    uint32_t heads, prompts, cached, rows;
};

struct unfolded_bench {
    struct unfolded_load load;
    struct cuda_products *products;
    uint32_t tokens, each;      /* tokens per prompt; the same rounded up to pages */
    uint16_t *k_b, *v_b, *kv_b; /* (heads, rank, 128), (heads, 128, rank), (heads, 256, rank) */
    uint16_t *still, *q, *attended, *absorbed_y, *rows, *unfolded, *y;
    struct cuda_attention absorbed;
    struct cuda_entry_rows entry_rows;
    struct cuda_unfolded call;
};

/* K and V of all heads in both orders. */
static void take_weights(struct unfolded_bench *b) {
    const uint32_t heads = b->load.heads, count = heads * CUDA_UNFOLDED_HEAD * RANK;
    b->kv_b = gpu_take<uint16_t>(count);
    fill_bf16(b->kv_b, count, 11, 0.044f);
    gpu_settle();
    const std::vector<uint16_t> all = gpu_read(b->kv_b, count);
    std::vector<uint16_t> k((size_t)count / 2), v((size_t)count / 2);
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < HEAD; i++)
            for (uint32_t r = 0; r < RANK; r++) {
                const size_t from = ((size_t)h * 2 * HEAD + i) * RANK + r;
                k[((size_t)h * RANK + r) * HEAD + i] = all[from];
                v[((size_t)h * HEAD + i) * RANK + r] = all[from + (size_t)HEAD * RANK];
            }
    b->k_b = gpu_copy(k), b->v_b = gpu_copy(v);
}

static void take_numbers(struct unfolded_bench *b) {
    const size_t rows = (size_t)b->load.prompts * b->load.rows, heads = b->load.heads;
    const size_t room = rows + CHUNK, slots = (size_t)b->load.prompts * b->each; /* to a bucket */
    uint16_t *entries = gpu_take<uint16_t>(slots * DIM);
    fill_bf16(entries, slots * DIM, 1, 1.0f);
    b->still = gpu_take<uint16_t>(room * heads * HEAD);
    fill_bf16(b->still, room * heads * HEAD, 2, 1.0f);
    b->q = gpu_take<uint16_t>(room * heads * DIM);
    fill_bf16(b->q, room * heads * DIM, 3, 1.0f);
    b->attended = gpu_take<uint16_t>(room * heads * RANK);
    fill_bf16(b->attended, room * heads * RANK, 4, 1.0f);
    b->absorbed_y = gpu_take<uint16_t>(room * heads * HEAD);
    b->y = gpu_take<uint16_t>(room * heads * HEAD);
    b->rows = gpu_take<uint16_t>((slots + CHUNK) * RANK);
    b->unfolded = gpu_take<uint16_t>((slots + CHUNK) * heads * CUDA_UNFOLDED_HEAD);
    b->absorbed.k = b->call.entries = b->entry_rows.entries = entries;
}

/* Page tables of all prompts, their pages dealt at random. */
static void take_calls(struct unfolded_bench *b) {
    const uint32_t heads = b->load.heads, count = b->load.prompts * b->each / 16;
    struct rng rng = random_of("unfolded load");
    std::vector<uint32_t> pages, positions;
    for (uint32_t i = 0; i < count; i++) pages.push_back(i);
    for (size_t i = pages.size(); i > 1; i--) std::swap(pages[i - 1], pages[rng_below(&rng, i)]);
    for (uint32_t p = 0; p < b->load.prompts; p++)
        for (uint32_t i = 0; i < b->load.rows; i++) positions.push_back(b->load.cached + i);
    b->absorbed.kv_heads = b->absorbed.page_heads = b->absorbed.scale_heads = 1;
    b->absorbed.head_dim = RANK, b->absorbed.turned_dim = CUDA_UNFOLDED_TURNED;
    b->absorbed.head_count = heads, b->absorbed.scale = b->call.scale = 0.07f;
    b->absorbed.q = b->q, b->absorbed.q_stride = (size_t)heads * DIM;
    b->absorbed.y = b->attended, b->absorbed.y_stride = (size_t)heads * RANK;
    b->absorbed.positions = b->call.positions = gpu_copy(positions);
    b->absorbed.pages = b->call.pages = b->entry_rows.pages = gpu_copy(pages);
    b->entry_rows.page_count = count, b->entry_rows.rank = RANK;
    b->entry_rows.turned_dim = CUDA_UNFOLDED_TURNED, b->entry_rows.y = b->rows;
    b->call.heads = heads, b->call.still = b->still, b->call.turned = b->q + RANK;
    b->call.turned_stride = b->call.entry_dim = DIM, b->call.unfolded = b->unfolded;
    b->call.y = b->y, b->call.y_stride = (size_t)heads * HEAD;
}

/* Items of at most `most` rows, the costly ones first, and where their tokens' rows begin. */
static struct cuda_tile_items items_of(struct unfolded_bench *b, uint32_t most) {
    const struct unfolded_load *load = &b->load;
    std::vector<gpu_tile_item> items;
    std::vector<uint32_t> firsts;
    for (uint32_t last = load->rows; last > 0;) {
        const uint32_t at = (last - 1) / most * most;
        for (uint32_t p = 0; p < load->prompts; p++) {
            items.push_back({p * load->rows + at, last - at, 0, load->cached + last,
                             p * b->each / 16, GPU_NONE, GPU_NONE, 1});
            firsts.push_back(p * b->each);
        }
        last = at;
    }
    b->call.firsts = gpu_copy(firsts);
    return {gpu_copy(items), (uint32_t)items.size(), NULL};
}

/* A product of all rows, as many at a time as a step has. */
static void multiply(struct unfolded_bench *b, struct cuda_multiply call, uint32_t rows,
                     bool is_tuned) {
    const uint32_t batch = std::max(call.batch, 1u);
    const uint16_t *in = (const uint16_t *)call.in;
    uint16_t *sums = (uint16_t *)call.sums;
    call.format = CUDA_FORMAT_BF16;
    for (uint32_t at = 0; at < rows; at += CHUNK) {
        call.rows = std::min(CHUNK, rows - at);
        call.in = in + (size_t)at * batch * call.inputs;
        call.sums = sums + (size_t)at * batch * (call.outputs + call.gap);
        if (is_tuned)
            MUST_BE_OK(cuda_products_tune(b->products, &call, 1, 0, stream, error));
        else
            MUST_BE_OK(cuda_multiply(b->products, &call, stream, error));
    }
}

static void absorb(struct unfolded_bench *b, bool is_tuned) {
    const uint32_t rows = b->load.prompts * b->load.rows, heads = b->load.heads;
    struct cuda_multiply call = {};
    call.outputs = RANK, call.inputs = HEAD, call.weights = b->k_b, call.in = b->still;
    call.sums = b->q, call.batch = heads, call.gap = CUDA_UNFOLDED_TURNED;
    multiply(b, call, rows, is_tuned);
}
static void put_out(struct unfolded_bench *b, bool is_tuned) {
    const uint32_t rows = b->load.prompts * b->load.rows, heads = b->load.heads;
    struct cuda_multiply call = {};
    call.outputs = HEAD, call.inputs = RANK, call.weights = b->v_b, call.in = b->attended;
    call.sums = b->absorbed_y, call.batch = heads;
    multiply(b, call, rows, is_tuned);
}
static void unfold(struct unfolded_bench *b, bool is_tuned) {
    struct cuda_multiply call = {};
    call.outputs = b->load.heads * CUDA_UNFOLDED_HEAD, call.inputs = RANK, call.weights = b->kv_b;
    call.in = b->rows, call.sums = b->unfolded;
    const struct cuda_unfold_heads heads = {b->k_b, b->v_b, b->kv_b, b->load.heads, RANK};
    if (!is_tuned) MUST_BE_OK(cuda_unfold_heads(&heads, stream, error));
    if (!is_tuned) MUST_BE_OK(cuda_entry_rows(&b->entry_rows, stream, error));
    multiply(b, call, b->load.prompts * b->each, is_tuned);
}

/* |absorbed - unfolded| / |absorbed| of some rows and heads. */
static double apart(const struct unfolded_bench *b) {
    const size_t count = (size_t)b->load.prompts * b->load.rows * b->load.heads;
    struct rng rng = random_of("unfolded samples");
    double squares = 0, all = 0;
    gpu_settle();
    for (int i = 0; i < SAMPLES; i++) {
        const size_t at = rng_below(&rng, count) * HEAD;
        const std::vector<float> want = floats_of_bf16(gpu_read(b->absorbed_y + at, HEAD));
        const std::vector<float> got = floats_of_bf16(gpu_read(b->y + at, HEAD));
        for (uint32_t e = 0; e < HEAD; e++) {
            squares += (want[e] - got[e]) * (want[e] - got[e]), all += want[e] * want[e];
        }
    }
    return sqrt(squares / all);
}

static void tell(const struct unfolded_bench *b, const char *name, double us, double flops) {
    bench_flops(name, us, flops, ceiling_product(PRODUCT_BF16), "%u heads, %u x (%u cached + %u)",
                b->load.heads, b->load.prompts, b->load.cached, b->load.rows);
}

static void bench_form(struct unfolded_bench *b, double pairs) {
    const double of_product = 4.0 * HEAD * RANK * b->load.heads * b->load.prompts * b->tokens;
    tell(b, "unfolding alone", time_us([&](int) { unfold(b, false); }), of_product);
    const struct cuda_tile_items items = items_of(b, CUDA_UNFOLDED_ROWS);
    auto attend = [&](int) {
        MUST_BE_OK(cuda_attention_unfolded(&b->call, &items, stream, error));
    };
    CUDA_MUST(cudaMemsetAsync(
        b->y, 0xff, (size_t)b->load.prompts * b->load.rows * b->load.heads * HEAD * 2, stream));
    const double us = time_us(attend), off = apart(b);
    (void)printf("# unfolded: apart from the absorbed form by %.4f%s\n", off,
                 off <= APART_MAX ? "" : ": WRONG");
    tell(b, "unfolded", us, 640 * pairs);
    tell(b, "  with unfolding", time_us([&](int i) { unfold(b, false), attend(i); }),
         640 * pairs + of_product);
}

static void bench_load(struct cuda_products *products, const struct unfolded_load &load) {
    struct unfolded_bench b = {};
    b.load = load, b.products = products, b.tokens = load.cached + load.rows;
    b.each = (b.tokens + 15) / 16 * 16;
    take_weights(&b), take_numbers(&b), take_calls(&b);
    absorb(&b, true), put_out(&b, true), unfold(&b, true);
    const double pairs =
        (double)load.heads * load.prompts * load.rows * (load.cached + (load.rows + 1) / 2.0);
    const double of_products = 4.0 * HEAD * RANK * load.heads * load.prompts * load.rows;
    const struct cuda_tile_items items = items_of(&b, cuda_tile_rows(load.heads));
    auto attend = [&](int) {
        MUST_BE_OK(cuda_attention_tiles(&b.absorbed, &items, stream, error));
    };
    absorb(&b, false), attend(0), put_out(&b, false), unfold(&b, false);
    tell(&b, "absorbed", time_us(attend), 2176 * pairs);
    tell(&b, "  with its products",
         time_us([&](int i) { absorb(&b, false), attend(i), put_out(&b, false); }),
         2176 * pairs + of_products);
    bench_form(&b, pairs);
    gpu_release();
}

void bench_unfolded(void) {
    struct cuda_products *products;
    if (!cuda_has_unfolded()) return note("unfolded attention is for products of warpgroups");
    MUST_BE_OK(cuda_products_open(&products, getenv("CUBLASLT"), WORKSPACE_BYTES, error));
    for (const struct unfolded_load &load :
         {unfolded_load{16, 2, 0, 777}, unfolded_load{16, 8, 0, 777},
          unfolded_load{16, 4, 300, 477}, unfolded_load{16, 2, 0, 4096},
          unfolded_load{16, 1, 6000, 2048}, unfolded_load{16, 16, 300, 32},
          unfolded_load{128, 2, 0, 777}})
        bench_load(products, load);
    cuda_products_close(products);
}
