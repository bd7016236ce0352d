/* SPDX-License-Identifier: Apache-2.0 */

/* Prompts of latent layers by unfolded keys and values, against sums in double. The times of both
 * forms are in bench_unfolded.cu. */

#include "rows_of.h"

#include "gpu/cuda/attention_unfolded.h"

#define DIM (512u + CUDA_UNFOLDED_TURNED) /* numbers of an entry */
#define STILL CUDA_UNFOLDED_STILL
#define TURNED CUDA_UNFOLDED_TURNED
#define VALUE CUDA_UNFOLDED_VALUE
#define ERROR_MAX 0.005 /* bf16 results and weights */
#define SCALE 0.0721688f
#define NAN_BF16 0x7fc1

/* A prompt of `tokens` tokens, of which those from `from` on are rows; keys count from `begin`. */
struct prompt {
    uint32_t tokens, from, begin;
};

struct unfolded_world {
    uint32_t heads, rows;
    std::vector<struct prompt> prompts;
    std::vector<uint32_t> firsts;       /* per prompt: the row of token 0 in `unfolded` */
    std::vector<uint32_t> tables;       /* per prompt: where its page table begins */
    std::vector<uint32_t> pages, order; /* `order`: items' rows in a list, or none */
    std::vector<uint32_t> row_prompt, positions;
    std::vector<uint16_t> still, queries, unfolded, entries; /* queries: (rows, heads, DIM) */
    struct cuda_unfolded call;
};

/* Numbers of tokens that an item may look at; the rest stays NaN. */
static void fill_tokens(struct rng *rng, struct unfolded_world *world, size_t p) {
    const struct prompt *prompt = &world->prompts[p];
    const size_t each = (size_t)world->heads * CUDA_UNFOLDED_HEAD;
    for (uint32_t t = prompt->begin; t < prompt->tokens; t++) {
        const std::vector<uint16_t> own = random_bf16(rng, each, 1.0f);
        std::copy(own.begin(), own.end(),
                  world->unfolded.begin() + (ptrdiff_t)((world->firsts[p] + t) * each));
        const std::vector<uint16_t> turned = random_bf16(rng, TURNED, 1.0f);
        const size_t slot = world->pages[world->tables[p] + t / 16] * 16 + t % 16;
        std::copy(turned.begin(), turned.end(),
                  world->entries.begin() + (ptrdiff_t)(slot * DIM + DIM - TURNED));
    }
}

/* Pages are dealt at random, and page 0 belongs to nobody; it stands where no item may look. */
static void deal_pages(struct rng *rng, struct unfolded_world *world) {
    uint32_t tokens = 0, count = 1;
    for (const struct prompt &prompt : world->prompts) count += (prompt.tokens + 15) / 16;
    std::vector<uint32_t> free_pages;
    for (uint32_t i = 1; i < count; i++) free_pages.push_back(i);
    for (const struct prompt &prompt : world->prompts) {
        world->tables.push_back((uint32_t)world->pages.size());
        world->firsts.push_back(tokens);
        for (uint32_t page = 0; page < (prompt.tokens + 15) / 16; page++, tokens += 16) {
            const size_t at = rng_below(rng, free_pages.size());
            world->pages.push_back(page * 16 + 15 < prompt.begin ? 0 : free_pages[at]);
            free_pages.erase(free_pages.begin() + (ptrdiff_t)at);
        }
    }
    world->unfolded.assign((size_t)tokens * world->heads * CUDA_UNFOLDED_HEAD, NAN_BF16);
    world->entries.assign((size_t)count * 16 * DIM, NAN_BF16);
}

static struct unfolded_world world_of(struct rng *rng, uint32_t heads,
                                      const std::vector<struct prompt> &prompts) {
    struct unfolded_world world = {};
    world.heads = heads, world.prompts = prompts;
    deal_pages(rng, &world);
    for (size_t p = 0; p < prompts.size(); p++) {
        fill_tokens(rng, &world, p);
        for (uint32_t t = prompts[p].from; t < prompts[p].tokens; t++)
            world.row_prompt.push_back((uint32_t)p), world.positions.push_back(t);
    }
    const uint32_t rows = world.rows = (uint32_t)world.positions.size();
    world.still = random_bf16(rng, (size_t)rows * heads * STILL, 1.0f);
    world.queries = random_bf16(rng, (size_t)rows * heads * DIM, 1.0f);
    world.call = {heads,
                  SCALE,
                  gpu_copy(world.still),
                  gpu_copy(world.queries) + DIM - TURNED,
                  DIM,
                  gpu_copy(world.unfolded),
                  NULL,
                  gpu_copy(world.entries),
                  DIM,
                  gpu_copy(world.positions),
                  gpu_copy(world.pages),
                  gpu_take<uint16_t>((size_t)rows * heads * VALUE),
                  (size_t)heads * VALUE};
    return world;
}

/* Items of at most `rows_max` rows, which begin with the first row of each prompt. With a list of
 * rows an item's are in the opposite order. */
static void attend(struct unfolded_world *world, bool is_listed) {
    const uint32_t most = CUDA_UNFOLDED_ROWS;
    std::vector<gpu_tile_item> items(1); /* the first has no rows */
    std::vector<uint32_t> firsts(1), order;
    uint32_t row = 0;
    for (size_t p = 0; p < world->prompts.size(); p++) {
        const uint32_t rows = world->prompts[p].tokens - world->prompts[p].from;
        for (uint32_t at = 0; at < rows; at += most) {
            const uint32_t count = std::min(most, rows - at);
            const uint32_t end = world->prompts[p].from + at + count;
            items.push_back({row + at, count, world->prompts[p].begin, end, world->tables[p],
                             GPU_NONE, GPU_NONE, 1});
            firsts.push_back(world->firsts[p]);
            for (uint32_t i = count; i > 0; i--) order.push_back(row + at + i - 1);
        }
        row += rows;
    }
    world->call.firsts = gpu_copy(firsts);
    const struct cuda_tile_items call = {gpu_copy(items), (uint32_t)items.size(),
                                         is_listed ? gpu_copy(order) : NULL};
    MUST_BE_OK(cuda_attention_unfolded(&world->call, &call, stream, error));
    gpu_settle();
}

static double score_of(const struct unfolded_world *world, uint32_t row, uint32_t head, uint32_t t,
                       const uint16_t *key) {
    const struct prompt *prompt = &world->prompts[world->row_prompt[row]];
    const size_t at = (size_t)row * world->heads + head;
    const uint32_t page = world->pages[world->tables[world->row_prompt[row]] + t / 16];
    const uint16_t *turned = &world->entries[((size_t)page * 16 + t % 16 + 1) * DIM - TURNED];
    double sum = 0;
    if (t < prompt->begin) return -INFINITY;
    for (uint32_t i = 0; i < STILL; i++)
        sum += (double)bf16_to_f32(world->still[at * STILL + i]) * bf16_to_f32(key[i]);
    for (uint32_t i = 0; i < TURNED; i++)
        sum += (double)bf16_to_f32(world->queries[(at + 1) * DIM - TURNED + i]) *
               bf16_to_f32(turned[i]);
    return sum * SCALE;
}

/* softmax(q k) v of a row and head in double. */
static std::vector<double> reference(const struct unfolded_world *world, uint32_t row,
                                     uint32_t head) {
    const uint32_t p = world->row_prompt[row], seen = world->positions[row] + 1;
    const size_t each = (size_t)world->heads * CUDA_UNFOLDED_HEAD;
    std::vector<double> y(VALUE), scores;
    double most = -INFINITY, all = 0;
    for (uint32_t t = 0; t < seen; t++) {
        const uint16_t *key =
            &world->unfolded[(world->firsts[p] + t) * each + (size_t)head * CUDA_UNFOLDED_HEAD];
        scores.push_back(score_of(world, row, head, t, key));
        most = std::max(most, scores[t]);
    }
    for (uint32_t t = world->prompts[p].begin; t < seen; t++) {
        const uint16_t *value = &world->unfolded[(world->firsts[p] + t) * each +
                                                 (size_t)head * CUDA_UNFOLDED_HEAD + STILL];
        const double weight = exp(scores[t] - most);
        all += weight;
        for (uint32_t i = 0; i < VALUE; i++) y[i] += weight * bf16_to_f32(value[i]);
    }
    for (uint32_t i = 0; i < VALUE; i++) y[i] /= all;
    return y;
}

static void compare(const struct unfolded_world *world, const char *what) {
    const std::vector<float> got = floats_of_bf16(
        gpu_read((const uint16_t *)world->call.y, (size_t)world->rows * world->heads * VALUE));
    double squares = 0, all = 0;
    bool is_number = true;
    for (uint32_t row = 0; row < world->rows; row++)
        for (uint32_t head = 0; head < world->heads; head++) {
            const std::vector<double> want = reference(world, row, head);
            for (uint32_t i = 0; i < VALUE; i++) {
                const float y = got[((size_t)row * world->heads + head) * VALUE + i];
                is_number &= std::isfinite(y);
                squares += (y - want[i]) * (y - want[i]), all += want[i] * want[i];
            }
        }
    const double error = sqrt(squares / std::max(all, 1e-30));
    report(is_number && error <= ERROR_MAX,
           "unfolded, %u heads, %zu prompts, %u rows%s: off by %.5f", world->heads,
           world->prompts.size(), world->rows, what, error);
}

static void check_prompts(struct rng *rng, uint32_t heads,
                          const std::vector<struct prompt> &prompts) {
    for (int is_listed = 0; is_listed < 2; is_listed++) {
        if (rng_below(rng, check_one_in) != 0) continue;
        struct unfolded_world world = world_of(rng, heads, prompts);
        attend(&world, is_listed);
        compare(&world, is_listed ? " in a list" : "");
        gpu_release();
    }
}

/* The same row behind other company and in another item has the same bits. */
static void check_company(struct rng *rng) {
    struct unfolded_world world = world_of(rng, 2, {{100, 0, 0}, {40, 3, 0}});
    const size_t count = (size_t)world.rows * 2 * VALUE;
    attend(&world, false);
    const std::vector<uint16_t> alone = gpu_read((const uint16_t *)world.call.y, count);
    attend(&world, true);
    report(gpu_read((const uint16_t *)world.call.y, count) == alone,
           "unfolded: a row's bits are the same at another place of its item");
    gpu_release();
}

static void check_rows(struct rng *rng, uint32_t pages, uint32_t rank, uint32_t turned_dim) {
    const uint32_t dim = rank + turned_dim, all = pages + 3;
    const std::vector<uint16_t> entries = random_bf16(rng, (size_t)all * 16 * dim, 1.0f);
    std::vector<uint32_t> list;
    for (uint32_t i = 0; i < pages; i++) list.push_back((uint32_t)rng_below(rng, all));
    uint16_t *y = gpu_take<uint16_t>((size_t)pages * 16 * rank);
    const struct cuda_entry_rows call = {
        gpu_copy(entries), gpu_copy(list), pages, rank, turned_dim, y};
    MUST_BE_OK(cuda_entry_rows(&call, stream, error));
    gpu_settle();
    const std::vector<uint16_t> got = gpu_read(y, (size_t)pages * 16 * rank);
    bool is_right = true;
    for (size_t i = 0; i < got.size(); i++) {
        const size_t row = i / rank;
        is_right &= got[i] == entries[(list[row / 16] * 16 + row % 16) * dim + i % rank];
    }
    report(is_right, "entry rows: %u pages of %u + %u", pages, rank, turned_dim);
    gpu_release();
}

static void check_heads(struct rng *rng, uint32_t heads, uint32_t rank) {
    const size_t count = (size_t)heads * STILL * rank;
    const std::vector<uint16_t> k = random_bf16(rng, count, 1.0f),
                                v = random_bf16(rng, count, 1.0f);
    uint16_t *kv = gpu_take<uint16_t>(2 * count);
    const struct cuda_unfold_heads call = {gpu_copy(k), gpu_copy(v), kv, heads, rank};
    MUST_BE_OK(cuda_unfold_heads(&call, stream, error));
    gpu_settle();
    const std::vector<uint16_t> got = gpu_read(kv, 2 * count);
    bool is_right = true;
    for (size_t n = 0; n < got.size(); n++) {
        const size_t head = n / rank / CUDA_UNFOLDED_HEAD, i = n / rank % CUDA_UNFOLDED_HEAD;
        const size_t r = n % rank;
        is_right &= got[n] == (i < STILL ? k[(head * rank + r) * STILL + i]
                                         : v[(head * VALUE + i - STILL) * rank + r]);
    }
    report(is_right, "unfolding %u heads of entries of %u", heads, rank);
    gpu_release();
}

static void check_refusals(void) {
    struct error error = {};
    const struct cuda_unfold_heads heads = {NULL, NULL, NULL, 1, 96};
    report(cuda_unfold_heads(&heads, stream, &error) == ERR_INVALID, "%s", error.text);
    const struct cuda_entry_rows rows = {NULL, NULL, 1, 12, 64, NULL};
    report(cuda_entry_rows(&rows, stream, &error) == ERR_INVALID, "%s", error.text);
    const struct cuda_unfolded call = {};
    const struct cuda_tile_items none = {};
    report(cuda_attention_unfolded(&call, &none, stream, &error) == ERR_INVALID, "%s", error.text);
}

void check_unfolded(void) {
    struct rng rng = random_of("unfolded");
    check_refusals();
    check_rows(&rng, 0, 512, 64), check_rows(&rng, 7, 512, 64), check_rows(&rng, 33, 64, 32);
    check_heads(&rng, 1, 64), check_heads(&rng, 3, 512);
    if (!cuda_has_unfolded()) return note("unfolded attention is for products of warpgroups");
    check_prompts(&rng, 1, {{1, 0, 0}});
    check_prompts(&rng, 3, {{16, 0, 0}, {17, 0, 0}, {33, 31, 0}, {64, 0, 0}, {65, 64, 0}});
    check_prompts(&rng, 2, {{130, 0, 0}, {5, 4, 0}});
    check_prompts(&rng, 1, {{300, 0, 0}});
    check_prompts(&rng, 2, {{200, 150, 0}, {129, 128, 0}, {577, 540, 0}});
    check_prompts(&rng, 2, {{200, 150, 48}, {129, 128, 32}, {90, 70, 64}, {90, 70, 70}});
    check_prompts(&rng, 16, {{50, 0, 0}, {20, 7, 0}});
    check_company(&rng);
    for (int turn = 0; turn < 4; turn++) {
        std::vector<struct prompt> prompts;
        for (uint64_t count = 1 + rng_below(&rng, 4); count > 0; count--) {
            const uint32_t tokens = 1 + (uint32_t)rng_below(&rng, 280);
            prompts.push_back({tokens, (uint32_t)rng_below(&rng, tokens), 0});
        }
        check_prompts(&rng, 1 + (uint32_t)rng_below(&rng, 3), prompts);
    }
}
