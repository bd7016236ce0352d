/* SPDX-License-Identifier: Apache-2.0 */
#include "experts_world.h"

#include "gpu/cuda/experts_tiles.h"

/* Ways to choose, as models have them. */
enum way { WAY_QWEN3, WAY_PLAIN, WAY_GPT_OSS, WAY_GEMMA, WAY_DEEPSEEK, WAY_BEST, WAY_COUNT };
static const char *const way_names[WAY_COUNT] = {"softmax, renormalised",
                                                 "softmax of all, bf16 logits",
                                                 "top k of logits with a bias",
                                                 "softmax with scales of experts",
                                                 "sigmoid with groups and a bias of the choice",
                                                 "softmax with groups by their best"};

struct route_case {
    uint32_t rows, experts, each, groups, groups_kept;
    float apart; /* deviation of the experts' own part of the logits */
};
static const struct route_case cases[] = {
    {1, 128, 8, 8, 4, 0},  {3, 6, 2, 3, 2, 0},     {17, 32, 4, 4, 1, 0},   {64, 512, 10, 16, 5, 0},
    {33, 40, 6, 5, 3, 3},  {257, 64, 1, 2, 1, 0},  {130, 256, 8, 8, 4, 1}, {500, 4, 2, 2, 1, 0},
    {90, 16, 16, 1, 1, 0}, {403, 128, 8, 8, 4, 2}, {777, 8, 3, 4, 2, 9},   {1, 1, 1, 0, 0, 0},
};

struct choice {
    uint32_t expert;
    double weight;
};

struct route_made {
    struct cuda_route call;
    std::vector<float> logits, bias, choice_bias, expert_scale;
};

static struct route_made make(struct rng *rng, const struct route_case *shape, enum way way) {
    struct route_made made = {};
    const size_t experts = shape->experts, stride = experts + 8, count = shape->rows * stride;
    const std::vector<float> apart = random_floats(rng, experts, shape->apart);
    made.logits = random_floats(rng, count, 1.5f);
    for (size_t i = 0; i < count; i++)
        made.logits[i] += i % stride < experts ? apart[i % stride] : NAN;
    made.bias = random_floats(rng, experts, 0.5f),
    made.choice_bias = random_floats(rng, experts, 0.1f);
    made.expert_scale = random_floats(rng, experts, 1.0f);
    struct cuda_route &call = made.call;
    call.to = take_order(shape->experts, shape->each, shape->rows);
    call.stride = stride, call.is_f32 = way != WAY_PLAIN, call.is_renormalised = way != WAY_PLAIN;
    call.scale = way == WAY_DEEPSEEK ? 2.5f : 1.0f;
    if (way == WAY_PLAIN) {
        std::vector<uint16_t> halves(count);
        for (size_t i = 0; i < count; i++) halves[i] = bf16_from_f32(made.logits[i]);
        made.logits = floats_of_bf16(halves);
        call.logits = gpu_copy(halves);
    } else {
        call.logits = gpu_copy(made.logits);
    }
    if (way == WAY_GPT_OSS) call.bias = gpu_copy(made.bias);
    if (way == WAY_GEMMA) call.expert_scale = gpu_copy(made.expert_scale);
    if (way == WAY_DEEPSEEK) {
        call.scores = CUDA_SCORES_SIGMOID;
        call.choice_bias = gpu_copy(made.choice_bias);
    }
    if (way >= WAY_DEEPSEEK && shape->experts / std::max(shape->groups, 1u) >= 2)
        call.groups = shape->groups, call.groups_kept = shape->groups_kept;
    call.groups_by_best = way == WAY_BEST;
    return made;
}

/* Experts by falling choice, those of dropped groups last. */
static std::vector<uint32_t> sorted(const struct cuda_route &call,
                                    const std::vector<double> &choice) {
    const uint32_t experts = call.to.experts, groups = std::max(call.groups, 1u);
    const uint32_t size = experts / groups;
    std::vector<double> best(groups);
    std::vector<uint32_t> by(groups), all(experts);
    for (uint32_t g = 0; g < groups && call.groups > 0; g++) {
        std::vector<double> of(choice.begin() + g * size, choice.begin() + (g + 1) * size);
        std::sort(of.rbegin(), of.rend());
        best[g] = call.groups_by_best ? of[0] : of[0] + of[1];
    }
    for (uint32_t g = 0; g < groups; g++) by[g] = g;
    std::stable_sort(by.begin(), by.end(),
                     [&](uint32_t a, uint32_t b) { return best[a] > best[b]; });
    std::vector<bool> is_kept(groups, call.groups == 0);
    for (uint32_t i = 0; i < call.groups_kept; i++) is_kept[by[i]] = true;
    for (uint32_t e = 0; e < experts; e++) all[e] = e;
    std::stable_sort(all.begin(), all.end(), [&](uint32_t a, uint32_t b) {
        const bool is_a = is_kept[a / size], is_b = is_kept[b / size];
        return is_a != is_b ? is_a : choice[a] > choice[b];
    });
    return all;
}

static std::vector<struct choice> expected(const struct route_made &made, size_t row) {
    const struct cuda_route &call = made.call;
    const uint32_t experts = call.to.experts, each = call.to.each;
    std::vector<double> s(experts), choice(experts);
    double most = -INFINITY, all = 0, sum = 0;
    for (uint32_t e = 0; e < experts; e++) {
        const float logit = made.logits[row * call.stride + e] + (call.bias ? made.bias[e] : 0);
        choice[e] = s[e] = logit, most = std::max(most, s[e]);
    }
    for (uint32_t e = 0; e < experts; e++) {
        const bool is_softmax = call.scores == CUDA_SCORES_SOFTMAX;
        s[e] = is_softmax ? exp(s[e] - most) : 1 / (1 + exp(-s[e])), all += s[e];
        if (!is_softmax) choice[e] = s[e] + made.choice_bias[e];
    }
    const std::vector<uint32_t> best = sorted(call, choice);
    std::vector<struct choice> ret(each);
    for (uint32_t i = 0; i < each; i++) sum += s[best[i]];
    for (uint32_t i = 0; i < each; i++) {
        double weight =
            s[best[i]] * call.scale * (call.expert_scale ? made.expert_scale[best[i]] : 1);
        if (call.is_renormalised)
            weight /= sum;
        else if (call.scores == CUDA_SCORES_SOFTMAX)
            weight /= all;
        ret[i] = {best[i], weight};
    }
    return ret;
}

/* Pairs by expert and number, and the tiles over them. */
static bool is_order(const struct cuda_expert_order &to) {
    const size_t pairs = (size_t)to.rows * to.each, most = cuda_expert_tiles_most(&to);
    const std::vector<uint16_t> chosen = gpu_read(to.chosen, pairs);
    const std::vector<struct cuda_expert_tiles> tiles = gpu_read(to.tiles, most + 1);
    std::vector<uint32_t> want(pairs);
    for (uint32_t i = 0; i < pairs; i++) want[i] = i;
    std::stable_sort(want.begin(), want.end(),
                     [&](uint32_t a, uint32_t b) { return chosen[a] < chosen[b]; });
    if (gpu_read(to.order, pairs) != want || tiles[0].count > most) return false;
    uint32_t place = 0, tile = 0, rows = 0;
    for (uint32_t e = 0; e < to.experts; e++) {
        const uint32_t begin = tile, first = place;
        while (place < pairs && chosen[want[place]] == e) place++;
        if (place == first) continue;
        for (rows = 0; tile < tiles[0].count && tiles[1 + tile].expert == e; tile++, rows++)
            if (tiles[1 + tile].first != first || tiles[1 + tile].count != place - first ||
                tiles[1 + tile].begin != begin)
                return false;
        const uint32_t most_rows = cuda_expert_tile_rows();
        if (rows != (place - first + most_rows - 1) / most_rows) return false;
    }
    return tile == tiles[0].count;
}

static bool check_case(struct rng *rng, const struct route_case *shape, enum way way) {
    if (rng_below(rng, check_one_in) != 0) return true;
    const struct route_made made = make(rng, shape, way);
    const size_t each = shape->each, pairs = shape->rows * each;
    MUST_BE_OK(cuda_route(&made.call, stream, error));
    gpu_settle();
    const std::vector<uint16_t> chosen = gpu_read(made.call.to.chosen, pairs);
    const std::vector<float> weights = gpu_read(made.call.to.weights, pairs);
    bool is_well = is_order(made.call.to);
    if (!is_well) note("no order");
    for (size_t row = 0; row < shape->rows && is_well; row++) {
        const std::vector<struct choice> want = expected(made, row);
        for (size_t i = 0; i < each && is_well; i++) {
            const size_t at = row * each + i;
            is_well = chosen[at] == want[i].expert &&
                      fabs(weights[at] - want[i].weight) <= 1e-5 * fabs(want[i].weight);
            if (!is_well)
                note("row %zu, choice %zu: expert %u with %g, not %u with %g", row, i, chosen[at],
                     weights[at], want[i].expert, want[i].weight);
        }
    }
    if (!is_well)
        note("%s: %u rows, %u of %u experts", way_names[way], shape->rows, shape->each,
             shape->experts);
    gpu_release();
    return is_well;
}

/* Equal logits choose the lower number, and infinite ones and NaN leave experts that exist,
 * each of them once. */
static void check_edges(void) {
    const float logits[4][8] = {
        {1, 2, 2, 2, 1, 2, 0, 0},
        {0, 0, 0, 0, 0, 0, 0, 0},
        {NAN, NAN, -NAN, NAN, -NAN, -NAN, NAN, NAN},
        {-INFINITY, -INFINITY, -INFINITY, -INFINITY, 0, -INFINITY, -INFINITY, 3}};
    const struct cuda_expert_order to = take_order(8, 4, 4);
    struct cuda_route call = route_of(gpu_copy(&logits[0][0], 32), to);
    MUST_BE_OK(cuda_route(&call, stream, error));
    gpu_settle();
    const std::vector<uint16_t> got = gpu_read(to.chosen, 16);
    const std::vector<uint16_t> want = {1, 2, 3, 5, 0, 1, 2, 3};
    const std::vector<uint16_t> last(got.begin() + 12, got.end());
    report(std::equal(want.begin(), want.end(), got.begin()) &&
               last == std::vector<uint16_t>({7, 4, 0, 1}),
           "route: of equal logits the lower number");
    std::vector<uint16_t> nan(got.begin() + 8, got.begin() + 12);
    std::sort(nan.begin(), nan.end());
    bool is_well = nan[3] < 8 && is_order(to);
    for (int i = 1; i < 4; i++) is_well &= nan[i] != nan[i - 1];
    report(is_well, "route: NaN leaves experts that exist");
    gpu_release();
}

static void check_refused(void) {
    struct error error;
    struct cuda_route call = route_of(NULL, {CUDA_EXPERTS_MAX + 1, 8, 1, NULL, NULL, NULL, NULL});
    bool is_well = cuda_route(&call, stream, &error) == ERR_INVALID;
    call.to.experts = 64, call.groups = 32, call.groups_kept = 3;
    is_well &= cuda_route(&call, stream, &error) == ERR_INVALID;
    call.groups = 7, call.groups_kept = 7;
    is_well &= cuda_route(&call, stream, &error) == ERR_INVALID;
    call.groups = 0, call.to.each = 17;
    is_well &= cuda_route(&call, stream, &error) == ERR_INVALID;
    call.to.each = 8, call.to.rows = 0;
    is_well &= cuda_route(&call, stream, &error) == OK;
    report(is_well,
           "route: too many experts, groups that hold too few are refused; no row is none");
}

void check_route(void) {
    struct rng rng = random_of("route");
    for (int way = 0; way < WAY_COUNT; way++) {
        bool is_well = true;
        for (const struct route_case &shape : cases)
            is_well &= check_case(&rng, &shape, (enum way)way);
        report(is_well, "route: %s", way_names[way]);
    }
    check_edges();
    check_refused();
}
