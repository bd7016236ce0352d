/* SPDX-License-Identifier: Apache-2.0 */

/* Attention of the GPU against sums in double, over shapes at the edges of pages, stages, tiles
 * and windows. */

#include "attention_world.h"

extern "C" {
#include "gpu/plan_decode.h"
}

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])
/* bf16 results and weights are off by 2^-9 at most and 0.0017 to 0.003 on the whole. */
#define ERROR_MAX 0.005
/* For a single row. Seed 1795477028: 0.0066 where E4M3 times its scale becomes bf16 as it is
 * unpacked (sm_90a), 0.0021 where it does not. */
#define ROW_ERROR_MAX 0.02
/* The same where a head has fewer than 64 numbers. The fewer there are, the more often values
 * nearly cancel, and what is left is short against its error. Six seeds with all shapes, E4M3 on
 * sm_90a: 16 numbers 0.025, 32 numbers 0.0145. */
#define ROW_ERROR_MAX_SMALL 0.04
/* Keys become bf16 as they are unpacked, which moves a score by 0.0016 on average (2^-9 of its
 * terms, base 2). One key may have most of the weight of a short prefix: six times that, for 80
 * sums. */
#define LOG_ERROR_MAX 0.01

static const char *name_of(const struct attention_shape *shape, char text[96]) {
    if (shape->turned_dim > 0)
        (void)snprintf(text, 96, "entries of %u + %u, %u heads, window %u", shape->head_dim,
                       shape->turned_dim, shape->group, shape->window);
    else
        (void)snprintf(text, 96, "%s head %u, group %u of %u, window %u, cap %g%s",
                       shape->type == CUDA_KV_BF16 ? "bf16" : "e4m3", shape->head_dim, shape->group,
                       shape->kv_heads, shape->window, shape->softcap,
                       shape->has_sinks ? ", sinks" : "");
    return text;
}

static double row_error_max(const struct attention_shape *shape) {
    return shape->head_dim < 64 ? ROW_ERROR_MAX_SMALL : ROW_ERROR_MAX;
}

static void report_error(double error, double worst, const char *what,
                         const struct attention_shape *shape) {
    char text[96];
    report(error <= ERROR_MAX && worst <= row_error_max(shape),
           "%s: %s: off by %.5f, a row by %.5f", what, name_of(shape, text), error, worst);
}

/* A whole item for each row, over all its keys. */
static std::vector<gpu_decode_item> whole_items(const struct attention_world *world) {
    std::vector<gpu_decode_item> items;
    for (uint32_t row = 0; row < world->rows.size(); row++)
        items.push_back({row, world->rows[row].position, 0, world->rows[row].position + 1,
                         world->tables[world->rows[row].sequence], 0, 0, GPU_NONE});
    return items;
}

static void decode(const struct attention_world *world, const std::vector<gpu_decode_item> &items) {
    struct cuda_decode_items call = {gpu_copy(items), (uint32_t)items.size()};
    MUST_BE_OK(cuda_attention_decode(&world->call, &call, stream, error));
    gpu_settle();
}

static void tiles(const struct attention_world *world, const std::vector<gpu_tile_item> &items,
                  const std::vector<uint32_t> *rows) {
    struct cuda_tile_items call = {gpu_copy(items), (uint32_t)items.size(),
                                   rows ? gpu_copy(*rows) : NULL};
    MUST_BE_OK(cuda_attention_tiles(&world->call, &call, stream, error));
    gpu_settle();
}

/* Decodes what `items` are after the plan for so many multiprocessors; how many merges it took. */
static uint32_t decode_planned(const struct attention_world *world,
                               const std::vector<gpu_decode_item> &items, uint32_t multiprocessors,
                               uint32_t partial_first) {
    std::vector<gpu_decode_item> room(items.size() * 8 + 64);
    std::vector<gpu_merge_item> merges(items.size() + 1);
    struct plan_decode_shape shape = {world->shape.window, world->shape.kv_heads, multiprocessors,
                                      CUDA_SPLIT_TOKENS};
    struct plan_decode plan = {};
    plan.items = room.data(), plan.item_room = (uint32_t)room.size();
    plan.merges = merges.data(), plan.merge_room = (uint32_t)merges.size();
    plan.partial_first = partial_first, plan.partial_room = world->partial_room - partial_first;
    plan_decode_fill(&plan, items.data(), (uint32_t)items.size(), &shape);
    room.resize(plan.item_count), merges.resize(plan.merge_count);
    decode(world, room);
    struct cuda_merge_items call = {gpu_copy(merges), (uint32_t)merges.size()};
    MUST_BE_OK(cuda_attention_merge(&world->call, &call, stream, error));
    gpu_settle();
    return plan.merge_count;
}

static const std::vector<uint32_t> edge_lengths = {1,  2,   15,  16,  17,  31, 32,
                                                   33, 255, 256, 257, 400, 777};

static std::vector<attention_row> last_rows(const std::vector<uint32_t> &lengths) {
    std::vector<attention_row> rows;
    for (uint32_t i = 0; i < lengths.size(); i++) rows.push_back({i, lengths[i] - 1});
    return rows;
}

static void check_decode(const struct attention_shape *shape) {
    struct rng rng = random_of("decode");
    double worst, error;
    struct attention_world world =
        attention_world_of(&rng, shape, edge_lengths, 0, last_rows(edge_lengths), 64);
    uint32_t rows = (uint32_t)world.rows.size();
    decode(&world, whole_items(&world));
    error = attention_error(&world, 0, rows, &worst);
    report_error(error, worst, "decode", shape);
    CUDA_MUST(cudaMemsetAsync(world.call.y, 0xff, rows * world.call.y_stride * 2, stream));
    uint32_t merges = decode_planned(&world, whole_items(&world), 1000, 0);
    error = attention_error(&world, 0, rows, &worst);
    report_error(error, worst, "decode cut at 256", shape);
    uint32_t seen = shape->window ? shape->window : 777;
    report((merges > 0) == (seen > 1), "%u rows of %u are cut", merges, rows);
    gpu_release();
}

#define MEMBERS 41

/* Items of rows that share the first tokens, those cut into `parts`: row i of `order` leaves
 * partials parts · i.. */
static std::vector<gpu_tile_item> prefix_items(const struct attention_world *world, uint32_t shared,
                                               uint32_t parts, uint32_t pages) {
    std::vector<gpu_tile_item> items;
    uint32_t most = cuda_tile_rows(world->shape.group);
    for (uint32_t first = 0; first < MEMBERS; first += most)
        for (uint32_t part = 0; part < parts; part++)
            items.push_back({first, std::min(most, MEMBERS - first), part * shared / parts,
                             (part + 1) * shared / parts, pages, GPU_NONE, first * parts + part,
                             parts});
    return items;
}

/* Decodes `items` from `prefixes` with both launches under way at once. */
static void decode_beside(const struct attention_world *world,
                          const std::vector<gpu_tile_item> &prefixes,
                          const std::vector<uint32_t> &order,
                          const std::vector<gpu_decode_item> &items) {
    struct cuda_attention call = world->call;
    struct cuda_tile_items first = {gpu_copy(prefixes), (uint32_t)prefixes.size(), gpu_copy(order)};
    struct cuda_decode_items second = {gpu_copy(items), (uint32_t)items.size()};
    const size_t partials = (size_t)world->partial_room * call.head_count;
    CUDA_MUST(cudaMemsetAsync(call.y, 0xff, MEMBERS * call.y_stride * 2, stream));
    CUDA_MUST(cudaMemsetAsync(call.partial_ml, 0xff, partials * 2 * sizeof(float), stream));
    CUDA_MUST(
        cudaMemsetAsync(call.partial_o, 0xff, partials * call.head_dim * sizeof(float), stream));
    MUST_BE_OK(cuda_attention_tiles(&call, &first, stream, error));
    call.is_next = true;
    MUST_BE_OK(cuda_attention_decode(&call, &second, stream, error));
    gpu_settle();
}

/* The rows of sequences with `shared` tokens in common: partials of those, then the rest. */
static void check_prefix(const struct attention_shape *shape, uint32_t shared, uint32_t parts) {
    struct rng rng = random_of("prefix");
    std::vector<uint32_t> lengths, order;
    uint32_t shortest = 0; /* with a window it sees most of the prefix: its table hides least */
    for (uint32_t i = 0; i < MEMBERS; i++) {
        lengths.push_back(shared + 1 + (uint32_t)rng_below(&rng, 70));
        order.push_back(MEMBERS - 1 - i);
        if (lengths[i] < lengths[shortest]) shortest = i;
    }
    struct attention_world world =
        attention_world_of(&rng, shape, lengths, shared, last_rows(lengths), MEMBERS * parts + 64);
    std::vector<gpu_decode_item> items = whole_items(&world);
    for (gpu_decode_item &item : items) {
        item.begin = shared;
        item.partial_in = (MEMBERS - 1 - item.row) * parts, item.partial_count = parts;
    }
    tiles(&world, prefix_items(&world, shared, parts, world.tables[shortest]), &order);
    double log_error, worst_log = 0, worst_partial = 0, worst;
    for (uint32_t row : {0, 1, 20, 39, 40}) {
        double error = attention_partial_error(&world, (MEMBERS - 1 - row) * parts, row, 0,
                                               shared / parts, &log_error);
        worst_partial = std::max(worst_partial, error), worst_log = std::max(worst_log, log_error);
    }
    char text[96];
    /* Each partial is of one row, perhaps of one head of 80 sums. */
    report(worst_partial <= row_error_max(shape) && worst_log <= LOG_ERROR_MAX,
           "prefix %u in %u: %s: partials off by %.5f, their logarithms by %.5f", shared, parts,
           name_of(shape, text), worst_partial, worst_log);
    (void)decode_planned(&world, items, 1000, MEMBERS * parts);
    double error = attention_error(&world, 0, MEMBERS, &worst);
    report_error(error, worst, "decode from a prefix", shape);
    for (int i = 0; i < 3; i++) {
        decode_beside(&world, prefix_items(&world, shared, parts, world.tables[shortest]), order,
                      items);
        error = attention_error(&world, 0, MEMBERS, &worst);
        report_error(error, worst, "decode beside its prefix", shape);
    }
    gpu_release();
}

/* Rows from..to-1 of a sequence as tile items over keys begin..end-1. */
static void add_tiles(const struct attention_world *world, uint32_t row, uint32_t count,
                      uint32_t begin, uint32_t end, uint32_t in, uint32_t out,
                      std::vector<gpu_tile_item> *items) {
    uint32_t most = cuda_tile_rows(world->shape.group);
    for (uint32_t i = 0; i < count; i += most)
        items->push_back({row + i, std::min(most, count - i), begin, end,
                          world->tables[world->rows[row].sequence], in == GPU_NONE ? in : in + i,
                          out == GPU_NONE ? out : out + i, 1});
}

/* Pieces of prompts: from the start, from within, one row, many; then again in three parts of keys,
 * of which the second goes on from and leaves the same partial. */
static void check_prefill(const struct attention_shape *shape) {
    static const struct {
        uint32_t begin, end;
    } pieces[] = {{0, 1}, {0, 16}, {0, 33}, {5, 70}, {63, 65}, {100, 230}, {128, 300}};
    struct rng rng = random_of("prefill");
    std::vector<uint32_t> lengths, firsts;
    std::vector<attention_row> rows;
    for (uint32_t i = 0; i < COUNT_OF(pieces); i++) {
        lengths.push_back(pieces[i].end);
        firsts.push_back((uint32_t)rows.size());
        for (uint32_t p = pieces[i].begin; p < pieces[i].end; p++) rows.push_back({i, p});
    }
    uint32_t count = (uint32_t)rows.size();
    struct attention_world world = attention_world_of(&rng, shape, lengths, 0, rows, count);
    std::vector<gpu_tile_item> whole, part[3];
    for (uint32_t i = 0; i < COUNT_OF(pieces); i++) {
        uint32_t piece = pieces[i].end - pieces[i].begin, end = pieces[i].end;
        add_tiles(&world, firsts[i], piece, 0, end, GPU_NONE, GPU_NONE, &whole);
        add_tiles(&world, firsts[i], piece, 0, end / 3, GPU_NONE, firsts[i], &part[0]);
        add_tiles(&world, firsts[i], piece, end / 3, end / 2, firsts[i], firsts[i], &part[1]);
        add_tiles(&world, firsts[i], piece, end / 2, end, firsts[i], GPU_NONE, &part[2]);
    }
    whole.push_back({0, 0, 0, 16, 0, GPU_NONE, GPU_NONE, 1});
    tiles(&world, whole, NULL);
    double worst, error = attention_error(&world, 0, count, &worst);
    report_error(error, worst, "prefill", shape);
    CUDA_MUST(cudaMemsetAsync(world.call.y, 0xff, count * world.call.y_stride * 2, stream));
    for (const std::vector<gpu_tile_item> &items : part) tiles(&world, items, NULL);
    error = attention_error(&world, 0, count, &worst);
    report_error(error, worst, "prefill in three parts", shape);
    gpu_release();
}

/* A row's result does not change with the items beside it, and rows that see nothing become 0. */
static void check_company(const struct attention_shape *shape) {
    struct rng rng = random_of("company");
    struct attention_world world =
        attention_world_of(&rng, shape, edge_lengths, 0, last_rows(edge_lengths), 1);
    size_t count = world.rows.size() * world.call.y_stride;
    std::vector<gpu_decode_item> items = whole_items(&world);
    decode(&world, items);
    std::vector<uint16_t> first = gpu_read((const uint16_t *)world.call.y, count);
    std::reverse(items.begin(), items.end());
    CUDA_MUST(cudaMemsetAsync(world.call.y, 0xff, count * 2, stream));
    for (size_t i = 0; i < items.size(); i++)
        if (i % 2 == 0) decode(&world, {items[i]});
    decode(&world, items);
    std::vector<uint16_t> second = gpu_read((const uint16_t *)world.call.y, count);
    report(first == second, "rows are the same bits in another order");
    gpu_decode_item empty = items[0];
    empty.begin = empty.end = 32;
    CUDA_MUST(cudaMemsetAsync(world.call.y, 0xff, count * 2, stream));
    decode(&world, {empty});
    std::vector<uint16_t> third = gpu_read((const uint16_t *)world.call.y, count);
    bool is_zero = true, is_left = true;
    uint32_t width = world.call.head_count * world.call.head_dim;
    for (uint32_t i = 0; i < width; i++) {
        is_zero &= third[empty.row * world.call.y_stride + i] == 0;
        is_left &= third[items[1].row * world.call.y_stride + i] == 0xffff;
    }
    report(is_zero, "a row that sees nothing becomes 0");
    report(is_left, "rows without an item are left alone");
    gpu_release();
}

static void check_refusals(void) {
    struct error error = {};
    struct cuda_attention call = {};
    struct cuda_decode_items none = {};
    struct cuda_tile_items no_tiles = {};
    call.kv_heads = 2, call.head_count = 8;
    for (uint32_t head_dim : {0, 8, 72, 144}) {
        call.head_dim = head_dim;
        report(cuda_attention_decode(&call, &none, stream, &error) == ERR_INVALID, "%s",
               error.text);
    }
    call.head_dim = CUDA_HEAD_WIDE, call.type = CUDA_KV_E4M3;
    report(cuda_attention_decode(&call, &none, stream, &error) == ERR_INVALID, "%s", error.text);
    call.type = CUDA_KV_BF16, call.turned_dim = 64; /* entries are of one KV head */
    report(cuda_attention_decode(&call, &none, stream, &error) == ERR_INVALID, "%s", error.text);
    call.kv_heads = 1, call.type = CUDA_KV_E4M3;
    report(cuda_attention_tiles(&call, &no_tiles, stream, &error) == ERR_INVALID, "%s", error.text);
    call.type = CUDA_KV_BF16, call.head_count = 129;
    report(cuda_attention_decode(&call, &none, stream, &error) == ERR_INVALID, "%s", error.text);
    call.head_count = 128, call.turned_dim = 80;
    report(cuda_attention_decode(&call, &none, stream, &error) == ERR_INVALID, "%s", error.text);
    call.kv_heads = 2, call.turned_dim = 0;
    call.head_dim = 128, call.type = CUDA_KV_BF16, call.head_count = 34;
    report(cuda_attention_tiles(&call, &no_tiles, stream, &error) == ERR_INVALID, "%s", error.text);
    call.head_count = 8;
    report(cuda_attention_decode(&call, &none, stream, &error) == OK, "no items, no launch");
    report(cuda_attention_tiles(&call, &no_tiles, stream, &error) == OK, "no tiles, no launch");
}

static void check_shape(struct rng *draw, const struct attention_shape *shape) {
    if (rng_below(draw, check_one_in) != 0) return;
    check_decode(shape);
    check_prefix(shape, shape->head_dim == 96 ? 16 : 208, 1 + shape->group % 3);
    check_prefill(shape);
}

/* Entries of latent layers: the sizes of DeepSeek's models and smaller ones, heads that fill blocks
 * of 16 and that do not. All 128 heads of V3 decode alone: tiles then have one row. */
static void check_entries(struct rng *draw) {
    static const struct {
        uint32_t rank, turned_dim, heads, window;
    } sizes[] = {{512, 64, 16, 0}, {512, 64, 20, 0}, {64, 32, 4, 0},
                 {256, 32, 40, 7}, {512, 64, 1, 17}, {384, 16, 10, 0}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct attention_shape shape = {CUDA_KV_BF16, sizes[i].rank, 1, sizes[i].heads,
                                        sizes[i].window};
        shape.turned_dim = sizes[i].turned_dim;
        if (i > 0 && i != 2)
            check_shape(draw, &shape);
        else
            check_decode(&shape), check_prefix(&shape, 48, 2), check_prefill(&shape);
        if (i == 0) check_company(&shape);
    }
    struct attention_shape all = {CUDA_KV_BF16, 512, 1, 128};
    all.turned_dim = 64;
    check_decode(&all);
    if (rng_below(draw, check_one_in) == 0) check_prefix(&all, 32, 1);
}

void check_attention(void) {
    static const uint32_t head_dims[] = {16, 32, 64, 80, 96, 112, 128, 256};
    static const uint32_t groups[] = {1, 4, 5, 8, 16};
    static const uint32_t windows[] = {0, 1, 7, 16, 17, 100};
    struct rng draw = random_of("shapes");
    check_refusals();
    for (enum cuda_kv_type type : {CUDA_KV_BF16, CUDA_KV_E4M3}) {
        uint32_t turn = type == CUDA_KV_E4M3;
        for (uint32_t head_dim : head_dims)
            for (uint32_t group : groups) {
                uint32_t window = turn % 3 == 0 ? 0 : windows[turn % COUNT_OF(windows)];
                struct attention_shape shape = {type,         head_dim,
                                                1 + turn % 3, group,
                                                window,       turn % 4 == 1 ? 20.0f : 0.0f,
                                                turn % 5 < 2, turn % 7 < 3};
                check_shape(&draw, &shape);
                turn++;
            }
        for (uint32_t window : windows) {
            struct attention_shape shape = {type, 64, 2, 4, window, 0, window == 16};
            check_shape(&draw, &shape);
        }
        struct attention_shape shape = {type, 128, 2, 4, 0, 0};
        check_company(&shape);
    }
    for (uint32_t turn = 0; turn < 2 * COUNT_OF(groups); turn++) {
        struct attention_shape shape = {CUDA_KV_BF16,
                                        CUDA_HEAD_WIDE,
                                        1 + turn % 3,
                                        groups[turn / 2],
                                        turn % 2 ? windows[turn % 6] : 0,
                                        turn % 4 == 1 ? 20.0f : 0.0f,
                                        turn % 5 < 2,
                                        turn % 7 < 3};
        check_shape(&draw, &shape);
    }
    struct attention_shape wide = {CUDA_KV_BF16, CUDA_HEAD_WIDE, 2, 4, 0, 0};
    if (rng_below(&draw, check_one_in) == 0) check_company(&wide);
    check_entries(&draw);
}
