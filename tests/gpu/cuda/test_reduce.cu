/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce_world.h"
#include "rows_of.h"

#include <thread>

#define CALLS 5 /* in a row: each buffer of parts is written again */

struct reduce_case {
    uint32_t rows, width, stride, x_stride;
};
static const struct reduce_case cases[] = {
    {0, 64, 64, 64},          {1, 8, 8, 8},          {1, 4096, 4096, 4096},   {3, 96, 104, 100},
    {16, 2048, 2048, 2048},   {5, 2560, 2560, 2560}, {33, 5120, 5128, 5124},  {2, 5128, 5128, 5132},
    {2, 16384, 16384, 16384}, {130, 512, 520, 512},  {257, 1024, 1024, 1024},
};

/* What a rank has of a case: five parts that were made before, and two buffers that hold a part
 * while ranks read it. */
struct rank_room {
    float *x;
    uint16_t *made[CALLS];
    uint16_t *parts[2];
    struct cuda_rows y[CALLS];
    struct cuda_norm norm;
};

struct reduce_world {
    const struct reduce_case *shape;
    enum cuda_code code;
    uint32_t count; /* ranks */
    uint32_t first; /* number of the first call */
    std::vector<float> x, weight, post, bias;
    std::vector<uint16_t> halves; /* weights less 1, or none */
    std::vector<uint16_t> parts[CALLS][CUDA_RANKS_MAX];
    struct rank_room room[CUDA_RANKS_MAX];
};

static void draw_world(struct rng *rng, struct reduce_world *world, bool has_post) {
    const struct reduce_case *shape = world->shape;
    world->x = random_floats(rng, (size_t)shape->rows * shape->x_stride, 2.0f);
    world->weight = random_floats(rng, shape->width, 1.0f);
    if (shape->width > 12032 || rng_below(rng, 2))
        world->halves = random_bf16(rng, shape->width, 1);
    for (size_t i = 0; i < world->halves.size(); i++)
        world->weight[i] = 1.0f + bf16_to_f32(world->halves[i]);
    if (has_post) world->post = random_floats(rng, shape->width, 1.0f);
    if (rng_below(rng, 2)) world->bias = random_floats(rng, shape->width, 0.5f);
    for (auto &call : world->parts)
        for (uint32_t i = 0; i < world->count; i++)
            call[i] = random_bf16(rng, (size_t)shape->rows * shape->stride, 0.5f);
}

static void put_rank(struct reduce_world *world, uint32_t rank) {
    const struct reduce_case *shape = world->shape;
    struct rank_room *room = &world->room[rank];
    const size_t count = (size_t)shape->rows * shape->stride;
    CUDA_MUST(cudaSetDevice((int)rank));
    *room = {};
    room->x = gpu_copy(world->x);
    for (int i = 0; i < CALLS; i++) {
        room->made[i] = gpu_copy(world->parts[i][rank]);
        room->y[i] = take_rows(world->code, shape->rows, shape->stride);
    }
    for (auto &part : room->parts) part = gpu_take<uint16_t>(count);
    struct cuda_norm *norm = &room->norm;
    norm->x = room->x, norm->x_stride = shape->x_stride;
    norm->h.stride = shape->stride;
    norm->h.bias = world->bias.empty() ? NULL : gpu_copy(world->bias);
    norm->post = world->post.empty() ? NULL : gpu_copy(world->post);
    norm->x_scale = 0.75f;
    norm->weight.at = gpu_copy(world->weight);
    if (!world->halves.empty()) norm->weight = {gpu_copy(world->halves), true, 1.0f};
    norm->width = shape->width, norm->rows = shape->rows, norm->epsilon = NORM_EPSILON;
}

/* Calls `run` for each of the first ranks, on a thread of its own whose GPU is that rank's, and
 * waits until all is computed. */
template <class F> static void run_ranks(const struct ranks *ranks, uint32_t count, F run) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < count; i++)
        threads.emplace_back([&run, i] {
            CUDA_MUST(cudaSetDevice((int)i));
            run(i);
        });
    for (std::thread &thread : threads) thread.join();
    ranks_settle(ranks, count);
}

/* The calls of one rank, behind copies that are its products. */
static void run_rank(const struct reduce_world *world, const struct ranks *ranks, uint32_t rank) {
    const struct rank_room *room = &world->room[rank];
    const size_t bytes = (size_t)world->shape->rows * world->shape->stride * 2;
    for (int i = 0; i < CALLS; i++) {
        struct cuda_reduce call = {};
        call.norm = room->norm, call.norm.y = room->y[i];
        call.meeting.ranks = world->count, call.meeting.rank = rank,
        call.meeting.number = world->first + (uint32_t)i;
        call.blocks_max = i % 2 ? 3 : 0;
        for (uint32_t k = 0; k < world->count; k++)
            call.meeting.parts[k] = world->room[k].parts[i % 2],
            call.meeting.words[k] = ranks->words[k];
        CUDA_MUST(cudaMemcpyAsync(room->parts[i % 2], room->made[i], bytes,
                                  cudaMemcpyDeviceToDevice, ranks->streams[rank]));
        MUST_BE_OK(cuda_reduce(&call, ranks->streams[rank], error));
    }
}

/* Sums of the parts of all ranks, and the bias. */
static std::vector<double> sums_of(const struct reduce_world *world, int call) {
    const size_t width = world->shape->width, stride = world->shape->stride;
    std::vector<double> sums(world->shape->rows * width);
    for (size_t i = 0; i < sums.size(); i++) {
        for (uint32_t k = 0; k < world->count; k++)
            sums[i] += bf16_to_f32(world->parts[call][k][i / width * stride + i % width]);
        if (!world->bias.empty()) sums[i] += world->bias[i % width];
    }
    return sums;
}

static bool is_residual(const struct reduce_world *world, const std::vector<double> &want) {
    const size_t width = world->shape->width, stride = world->shape->x_stride;
    std::vector<float> got = gpu_read(world->room[0].x, world->x.size());
    for (size_t i = 0; i < want.size(); i++) {
        const double value = got[i / width * stride + i % width];
        if (fabs(value - want[i]) <= 1e-5 * (fabs(want[i]) + 8)) continue;
        note("residual %zu: %g, not %g", i, value, want[i]);
        return false;
    }
    return true;
}

/* Whether every rank has the bits of the first. */
static bool are_alike(const struct reduce_world *world) {
    const struct reduce_case *shape = world->shape;
    const size_t bytes = shape->rows * shape->stride * code_bytes(world->code);
    const std::vector<float> x = gpu_read(world->room[0].x, world->x.size());
    for (uint32_t rank = 1; rank < world->count; rank++) {
        const std::vector<float> other = gpu_read(world->room[rank].x, world->x.size());
        if (memcmp(x.data(), other.data(), x.size() * sizeof(float)) != 0) return false;
        for (int i = 0; i < CALLS; i++)
            if (gpu_read((uint8_t *)world->room[0].y[i].codes, bytes) !=
                gpu_read((uint8_t *)world->room[rank].y[i].codes, bytes))
                return false;
    }
    return true;
}

static bool check_case(struct rng *rng, struct ranks *ranks, const struct reduce_case *shape,
                       uint32_t count, enum cuda_code code, bool has_post) {
    if (rng_below(rng, check_one_in) != 0) return true;
    struct reduce_world world = {};
    world.shape = shape, world.code = code, world.count = count;
    const uint32_t before = rng_below(rng, 4) == 0 ? UINT32_MAX - 2 : 0; /* they may wrap around */
    world.first = before + 1;
    draw_world(rng, &world, has_post);
    take_words(ranks, count, before);
    for (uint32_t i = 0; i < count; i++) put_rank(&world, i);
    run_ranks(ranks, count, [&](uint32_t rank) { run_rank(&world, ranks, rank); });
    std::vector<double> x(shape->rows * (size_t)shape->width), y(x.size());
    for (size_t i = 0; i < x.size(); i++)
        x[i] = world.x[i / shape->width * shape->x_stride + i % shape->width];
    bool is_well = true;
    for (int i = 0; i < CALLS && is_well; i++) {
        norm_wants(&x, sums_of(&world, i), has_post ? world.post.data() : NULL, 0.75f, false,
                   world.weight, shape->rows, shape->width, &y);
        is_well = are_rows(&world.room[0].y[i], shape->rows, shape->width, y);
    }
    is_well = is_well && is_residual(&world, x) && are_alike(&world);
    if (!is_well) note("%u ranks, rows %u, width %u", count, shape->rows, shape->width);
    gpu_release();
    return is_well;
}

/* Thousands of calls without a wait of the host: every rank adds 1 to rows of whole numbers in each
 * call, so that a part that is read too early or too late is seen. */
static bool check_long(struct ranks *ranks, uint32_t count, uint32_t calls) {
    const uint32_t rows = 24, width = 1024;
    const size_t numbers = (size_t)rows * width;
    std::vector<uint16_t> ones(numbers, bf16_from_f32(1.0f));
    std::vector<uint16_t> twos(numbers, bf16_from_f32(2.0f));
    std::vector<float> zeros(numbers, 0.0f), weight(width, 1.0f);
    struct rank_room room[CUDA_RANKS_MAX] = {};
    take_words(ranks, count, 0);
    for (uint32_t i = 0; i < count; i++) {
        CUDA_MUST(cudaSetDevice((int)i));
        room[i].x = gpu_copy(zeros);
        room[i].made[0] = gpu_copy(ones), room[i].made[1] = gpu_copy(twos);
        for (auto &part : room[i].parts) part = gpu_take<uint16_t>(numbers);
        room[i].y[0] = take_rows(CUDA_BF16, rows, width);
        room[i].norm.weight.at = gpu_copy(weight);
        CUDA_MUST(cudaDeviceSynchronize());
    }
    auto run = [&](uint32_t rank) {
        for (uint32_t i = 0; i < calls; i++) {
            struct cuda_reduce call = {};
            call.norm.x = room[rank].x, call.norm.x_stride = width;
            call.norm.h.stride = width, call.norm.y = room[rank].y[0];
            call.norm.weight.at = room[rank].norm.weight.at;
            call.norm.width = width, call.norm.rows = rows, call.norm.epsilon = NORM_EPSILON;
            call.meeting.ranks = count, call.meeting.rank = rank, call.meeting.number = i + 1;
            for (uint32_t k = 0; k < count; k++)
                call.meeting.parts[k] = room[k].parts[i % 2],
                call.meeting.words[k] = ranks->words[k];
            /* In every third call a part is 2, in another rank each time. */
            const uint16_t *made = room[rank].made[i % 3 == 0 && i / 3 % count == rank];
            CUDA_MUST(cudaMemcpyAsync(room[rank].parts[i % 2], made, numbers * 2,
                                      cudaMemcpyDeviceToDevice, ranks->streams[rank]));
            MUST_BE_OK(cuda_reduce(&call, ranks->streams[rank], error));
        }
    };
    run_ranks(ranks, count, run);
    const float want = (float)(calls * count + (calls + 2) / 3);
    size_t wrong = 0;
    for (uint32_t i = 0; i < count; i++)
        for (float value : gpu_read(room[i].x, numbers)) wrong += value != want;
    if (wrong > 0) note("%zu numbers are not %g", wrong, want);
    gpu_release();
    return wrong == 0;
}

/* Two totals in a row, so that a part is written again: every rank has the sums, and the same bits.
 */
static bool check_total(struct rng *rng, struct ranks *ranks, uint32_t count,
                        const struct reduce_case *shape) {
    struct reduce_world world = {};
    struct cuda_rows y[CUDA_RANKS_MAX][2];
    const size_t numbers = (size_t)shape->rows * shape->stride;
    world.shape = shape, world.code = CUDA_BF16, world.count = count, world.first = 1;
    draw_world(rng, &world, false);
    take_words(ranks, count, 0);
    for (uint32_t i = 0; i < count; i++) {
        put_rank(&world, i);
        for (auto &rows : y[i]) rows = take_rows(CUDA_BF16, shape->rows, shape->stride);
    }
    auto run = [&](uint32_t rank) {
        const struct rank_room *room = &world.room[rank];
        for (uint32_t i = 0; i < 2; i++) {
            struct cuda_total call = {};
            call.meeting.ranks = count, call.meeting.rank = rank, call.meeting.number = i + 1;
            for (uint32_t k = 0; k < count; k++) {
                call.meeting.parts[k] = world.room[k].parts[i];
                call.meeting.words[k] = ranks->words[k];
            }
            call.bias = room->norm.h.bias, call.to = (uint16_t *)y[rank][i].codes;
            call.width = shape->width, call.stride = shape->stride, call.rows = shape->rows;
            CUDA_MUST(cudaMemcpyAsync(room->parts[i], room->made[i], numbers * 2,
                                      cudaMemcpyDeviceToDevice, ranks->streams[rank]));
            MUST_BE_OK(cuda_total(&call, ranks->streams[rank], error));
        }
    };
    run_ranks(ranks, count, run);
    bool is_well = true;
    for (int i = 0; i < 2; i++)
        for (uint32_t rank = 0; rank < count; rank++)
            is_well &= are_rows(&y[rank][i], shape->rows, shape->width, sums_of(&world, i)) &&
                       gpu_read((uint16_t *)y[rank][i].codes, numbers) ==
                           gpu_read((uint16_t *)y[0][i].codes, numbers);
    if (!is_well) note("total: %u ranks, rows %u, width %u", count, shape->rows, shape->width);
    gpu_release();
    return is_well;
}

static bool check_part(struct rng *rng, enum product_form form, size_t rows, size_t width,
                       size_t stride) {
    struct random_product from = random_product(rng, form, rows, width, stride, 1.0f);
    struct cuda_part call = {};
    const struct cuda_rows y = take_rows(CUDA_BF16, rows, stride);
    call.from = from.product;
    call.to = (uint16_t *)y.codes;
    call.width = (uint32_t)width, call.rows = (uint32_t)rows;
    MUST_BE_OK(cuda_part(&call, stream, error));
    gpu_settle();
    const bool is_well = are_rows(&y, rows, width, from.values);
    if (!is_well) note("part: rows %zu, width %zu, stride %zu", rows, width, stride);
    gpu_release();
    return is_well;
}

static void check_parts(struct rng *rng) {
    struct cuda_part odd = {};
    struct error refused = {};
    odd.width = 12, odd.rows = 1;
    for (enum product_form form : {FORM_BF16, FORM_BF16_SCALED, FORM_INT32})
        report(check_part(rng, form, 0, 64, 64) && check_part(rng, form, 1, 8, 8) &&
                   check_part(rng, form, 17, 2048, 2048) && check_part(rng, form, 3, 4096, 4112) &&
                   check_part(rng, form, 33, 5128, 5136) && check_part(rng, form, 2, 16384, 16384),
               "reduce: parts of products of %s", form_names[form]);
    report(cuda_part(&odd, stream, &refused) == ERR_INVALID,
           "reduce: parts of odd widths and of nothing are refused");
}

/* The other rank never says that its part is there, and the host gives up: the call ends, and the
 * residual is as it was. */
static bool check_given_up(struct ranks *ranks) {
    const uint32_t rows = 40, width = 256;
    uint32_t *given_up;
    CUDA_MUST(cudaSetDevice(0));
    CUDA_MUST(cudaHostAlloc((void **)&given_up, sizeof *given_up,
                            cudaHostAllocPortable | cudaHostAllocMapped));
    *given_up = 0;
    take_words(ranks, 2, 0);
    CUDA_MUST(cudaSetDevice(0));
    const std::vector<float> before(rows * width, 3.0f);
    struct cuda_reduce call = {};
    call.norm.x = gpu_copy(before), call.norm.x_stride = call.norm.h.stride = width;
    call.norm.y = take_rows(CUDA_BF16, rows, width);
    call.norm.weight.at = gpu_copy(std::vector<float>(width, 1.0f));
    call.norm.width = width, call.norm.rows = rows, call.norm.epsilon = NORM_EPSILON;
    call.meeting.ranks = 2, call.meeting.number = 1, call.meeting.given_up = given_up;
    for (int i = 0; i < 2; i++) {
        call.meeting.parts[i] = gpu_take<uint16_t>(rows * width);
        call.meeting.words[i] = ranks->words[i];
    }
    std::thread giver([given_up] { __atomic_store_n(given_up, 1u, __ATOMIC_RELEASE); });
    MUST_BE_OK(cuda_reduce(&call, ranks->streams[0], error));
    ranks_settle(ranks, 1);
    giver.join();
    bool is_well = gpu_read(call.norm.x, before.size()) == before;
    struct cuda_total total = {};
    const std::vector<uint16_t> sums(rows * width, 7);
    total.meeting = call.meeting;
    total.meeting.number = 2;
    total.to = gpu_copy(sums), total.width = total.stride = width, total.rows = rows;
    MUST_BE_OK(cuda_total(&total, ranks->streams[0], error));
    ranks_settle(ranks, 1);
    is_well = is_well && gpu_read(total.to, sums.size()) == sums;
    CUDA_MUST(cudaFreeHost(given_up));
    gpu_release();
    return is_well;
}

static bool is_refused(struct cuda_reduce call) {
    struct error error = {OK, false, ""};
    return cuda_reduce(&call, stream, &error) == ERR_INVALID && error.text[0];
}

static bool is_refused(struct cuda_total call) {
    struct error error = {OK, false, ""};
    return cuda_total(&call, stream, &error) == ERR_INVALID && error.text[0];
}

static void check_refusals(void) {
    struct cuda_reduce call = {};
    uint16_t *part = gpu_take<uint16_t>(64);
    call.norm.x = gpu_take<float>(64), call.norm.x_stride = 64, call.norm.h.stride = 64;
    call.norm.y = take_rows(CUDA_BF16, 1, 64);
    call.norm.weight.at = gpu_take<float>(64);
    call.norm.width = 64, call.norm.rows = 0, call.meeting.ranks = 2;
    call.meeting.parts[0] = call.meeting.parts[1] = part;
    struct cuda_reduce odd = call, wide = call, alone = call, away = call;
    odd.norm.width = 60, wide.norm.width = 16392, alone.meeting.ranks = 1,
    away.meeting.parts[1] = part + 1;
    MUST_BE_OK(cuda_reduce(&call, stream, error)); /* no row, nothing to launch */
    report(is_refused(odd) && is_refused(wide) && is_refused(alone) && is_refused(away),
           "reduce: odd widths, one rank and odd addresses are refused");
    struct cuda_total total = {};
    total.meeting = call.meeting, total.to = part, total.width = total.stride = 64;
    struct cuda_total narrow = total, uneven = total, nowhere = total, lone = total;
    narrow.stride = 56, uneven.width = 60, nowhere.to = NULL, lone.meeting.ranks = 1;
    MUST_BE_OK(cuda_total(&total, stream, error));
    report(is_refused(narrow) && is_refused(uneven) && is_refused(nowhere) && is_refused(lone),
           "reduce: totals of odd widths, to nowhere and of one rank are refused");
    gpu_release();
}

void check_reduce(void) {
    struct rng rng = random_of("reduce");
    struct ranks *ranks = all_ranks();
    check_refusals();
    check_parts(&rng);
    if (ranks->count < 2) note("reduce: one GPU, or none that reach each other: not checked");
    for (uint32_t count = 2; count <= ranks->count; count++)
        for (int code = 0; code < 3; code++)
            for (bool has_post : {false, true}) {
                bool is_well = true;
                for (const struct reduce_case &shape : cases)
                    is_well &=
                        check_case(&rng, ranks, &shape, count, (enum cuda_code)code, has_post);
                report(is_well, "reduce: parts of %u GPUs%s to %s", count,
                       has_post ? ", normed," : "", code_names[code]);
            }
    for (uint32_t count = 2; count <= ranks->count; count++) {
        bool is_well = true;
        for (const struct reduce_case &shape : cases)
            is_well &= check_total(&rng, ranks, count, &shape);
        report(is_well, "reduce: totals of %u GPUs", count);
    }
    if (ranks->count > 1)
        report(check_given_up(ranks), "reduce: a rank that waits in vain ends when the host gives "
                                      "up");
    const uint32_t calls = check_one_in > 1 ? 30 : 3000;
    for (uint32_t count = 2; count <= ranks->count; count++)
        report(check_long(ranks, count, calls),
               "reduce: %u GPUs, %u calls in a row, no part is read early or late", count, calls);
}
