/* SPDX-License-Identifier: Apache-2.0 */

/* The reference is kernels/draw.h's definition written down as a loop: it sorts all tokens by
 * likelihood, marks what is kept, and walks ids. Tokens must be equal, not close. */

#include "harness.h"

extern "C" {
#include "gpu/cuda/sample.h"
}

struct sample_case {
    uint32_t rows, vocab;
    size_t stride;
    std::vector<float> logits; /* (rows, stride) */
    std::vector<struct gpu_draw> draws;
    std::vector<uint32_t> drawn, masks, summed;
    uint32_t bare_count; /* the first of `drawn`; without any, all rows are summed */
    std::vector<struct draw_edit> edits;
};

/* ---- the reference ---- */

static void wants_edited(const struct sample_case *c, uint32_t row, std::vector<float> *v) {
    const struct gpu_draw *draw = &c->draws[row];
    uint32_t words = (c->vocab + 31) / 32;
    for (uint32_t i = 0; i < c->vocab; i++) (*v)[i] = draw_clean(c->logits[row * c->stride + i]);
    std::vector<float> free = *v; /* without what is held back */
    std::vector<bool> is_held(c->vocab);
    for (uint32_t i = 0; i < draw->edit_count; i++) {
        const struct draw_edit *edit = &c->edits[draw->edit_begin + i];
        if (edit->kind == DRAW_HOLD)
            is_held[edit->token] = true;
        else
            free[edit->token] = draw_edited(free[edit->token], edit->kind, edit->value);
    }
    bool has_some = false;
    for (uint32_t i = 0; i < c->vocab; i++) {
        free[i] = draw_clean(free[i]);
        if (draw->mask >= 0 && !(c->masks[draw->mask * words + i / 32] >> i % 32 & 1))
            free[i] = -INFINITY;
        has_some |= !is_held[i] && free[i] > -INFINITY;
    }
    for (uint32_t i = 0; i < c->vocab; i++) (*v)[i] = is_held[i] && has_some ? -INFINITY : free[i];
}

static int32_t wants_token(const struct sample_case *c, uint32_t row) {
    const struct gpu_draw *draw = &c->draws[row];
    std::vector<float> v(c->vocab);
    wants_edited(c, row, &v);
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (v[i] > -INFINITY) order.push_back(i);
    if (order.empty())
        return draw->factor > 0 || draw->mask >= 0 || draw->edit_count ? draw->fallback : 0;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return v[a] > v[b]; });
    if (draw->factor == 0) return (int32_t)order[0];
    float max = v[order[0]], least = draw_least(max, draw->offset);
    while (v[order.back()] < least) order.pop_back();
    if (draw->top_k > 0 && draw->top_k < order.size()) order.resize(draw->top_k);
    uint64_t total = 0, sum = 0;
    for (uint32_t i : order) total += draw_weight(v[i], max, draw->factor);
    if (draw->top_p > 0 && draw->top_p < 1) {
        uint64_t enough = draw_enough(draw->top_p, total);
        size_t kept = 0;
        while (sum < enough) sum += draw_weight(v[order[kept++]], max, draw->factor);
        order.resize(kept), total = sum;
    }
    std::sort(order.begin(), order.end());
    uint64_t wanted = draw_wanted(rng_at(draw->seed, draw->counter), total);
    sum = 0;
    for (uint32_t i : order) {
        sum += draw_weight(v[i], max, draw->factor);
        if (sum > wanted) return (int32_t)i;
    }
    return -1;
}

/* ---- random rows ---- */

enum look {
    LOOK_NORMAL,
    LOOK_ROUNDED,
    LOOK_FLAT,
    LOOK_EQUAL,
    LOOK_PEAKED,
    LOOK_REGIONS,
    LOOK_BROKEN,
    LOOK_NONE,
    LOOK_COUNT
};
static const char *const look_names[] = {"normal",
                                         "of bf16, many equal",
                                         "nearly flat",
                                         "all equal",
                                         "peaked",
                                         "low at the beginning of each warp's part",
                                         "with NaN and infinities",
                                         "all -inf or NaN"};

static float random_logit(struct rng *rng, enum look look, uint32_t id) {
    float value = random_normal(rng) * 3;
    switch (look) {
    case LOOK_ROUNDED: return bf16_to_f32(bf16_from_f32(value));
    case LOOK_FLAT: return value * 0.001f;
    case LOOK_EQUAL: return 1.5f;
    case LOOK_PEAKED: return rng_below(rng, 200) == 0 ? value * 5 : value - 20;
    case LOOK_REGIONS: return id / 1024 % 2 ? value : value - 40; /* parts of 2,048 in 32,001 */
    case LOOK_BROKEN: {
        const float broken[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0.0f, -0.0f, 1e-40f};
        return rng_below(rng, 50) == 0 ? broken[rng_below(rng, 8)] : value;
    }
    case LOOK_NONE: return rng_below(rng, 2) ? NAN : -INFINITY;
    default: return value;
    }
}

template <class T, size_t N> static T one_of(struct rng *rng, const T (&choices)[N]) {
    return choices[rng_below(rng, N)];
}

static void add_edits(struct rng *rng, struct sample_case *c, uint32_t row) {
    struct gpu_draw *draw = &c->draws[row];
    draw->edit_begin = (uint32_t)c->edits.size();
    std::vector<uint32_t> tokens;
    for (uint64_t i = rng_below(rng, 60); i > 0; i--)
        tokens.push_back((uint32_t)rng_below(rng, c->vocab));
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    bool is_all_held = rng_below(rng, 8) == 0 && c->vocab < 2000;
    if (is_all_held) {
        tokens.clear();
        for (uint32_t i = 0; i < c->vocab; i++) tokens.push_back(i);
    }
    for (uint32_t token : tokens) {
        auto add = [&](enum draw_edit_kind kind, float value) {
            c->edits.push_back({row, (int32_t)token, kind, value});
        };
        if (rng_below(rng, 6) == 0) add(DRAW_FORBID, 0);
        if (rng_below(rng, 3) == 0) add(DRAW_BIAS, (float)(200 * rng_unit(rng) - 100));
        if (is_all_held || rng_below(rng, 6) == 0) add(DRAW_HOLD, 0);
        if (rng_below(rng, 2) == 0) add(DRAW_REPEAT, (float)(0.5 + rng_unit(rng)));
        if (rng_below(rng, 2) == 0) add(DRAW_SUBTRACT, (float)(4 * rng_unit(rng) - 2));
    }
    draw->edit_count = (uint32_t)c->edits.size() - draw->edit_begin;
}

static void add_mask(struct rng *rng, struct sample_case *c, uint32_t row) {
    uint32_t words = (c->vocab + 31) / 32;
    c->draws[row].mask = (int32_t)(c->masks.size() / words);
    size_t begin = c->masks.size();
    c->masks.resize(begin + words, 0);
    const double densities[] = {0.0005, 0.01, 0.5, 0.99};
    double density = one_of(rng, densities);
    int32_t first = (int32_t)rng_below(rng, c->vocab);
    for (uint32_t i = 0; i < c->vocab; i++)
        if ((int32_t)i == first || rng_unit(rng) < density) {
            c->masks[begin + i / 32] |= 1u << i % 32;
            if ((int32_t)i < first) first = (int32_t)i;
        }
    c->draws[row].fallback = first;
}

/* Lists the rows. Half of those with a temperature and top_p are bare, and lose what bare rows must
 * not have. */
static void make_bare(struct rng *rng, struct sample_case *c) {
    std::vector<uint32_t> others;
    for (uint32_t row = 0; row < c->rows; row++) {
        struct gpu_draw *draw = &c->draws[row];
        const bool can_be = draw->factor > 0 && draw->top_p > 0 && draw->top_p < 1;
        const bool is_bare = can_be && rng_below(rng, 2) == 0;
        if (is_bare) {
            draw->top_k = draw->edit_count = 0, draw->offset = -INFINITY, draw->mask = -1;
            c->drawn.push_back(row);
            continue;
        }
        c->summed.push_back(row);
        if (draw->factor > 0 || draw->mask >= 0 || draw->edit_count > 0) others.push_back(row);
    }
    c->bare_count = (uint32_t)c->drawn.size();
    c->drawn.insert(c->drawn.end(), others.begin(), others.end());
}

static struct sample_case random_case(struct rng *rng, uint32_t rows, uint32_t vocab,
                                      enum look look) {
    struct sample_case c = {rows, vocab, (vocab + 3) / 4 * 4 + 4 * rng_below(rng, 3)};
    const float temperatures[] = {0, 0.2f, 0.7f, 1, 2, 100},
                top_ps[] = {0, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 1};
    const float min_ps[] = {0, 0, 0.05f, 0.9f};
    const uint32_t top_ks[] = {0, 0, 1, 2, 40, 600, 5000};
    c.logits.resize(rows * c.stride, NAN);
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t i = 0; i < vocab; i++)
            c.logits[row * c.stride + i] = random_logit(rng, look, i);
        for (size_t i = vocab; i < c.stride; i++) c.logits[row * c.stride + i] = 1e30f;
        float temperature = one_of(rng, temperatures);
        struct gpu_draw draw = {};
        draw.seed = rng_next(rng), draw.counter = (uint32_t)rng_below(rng, 5000);
        draw.factor = temperature > 0 ? draw_factor(temperature) : 0;
        draw.offset = draw_offset(temperature, one_of(rng, min_ps));
        draw.top_p = one_of(rng, top_ps), draw.top_k = one_of(rng, top_ks);
        draw.mask = -1, draw.slot = (int32_t)row;
        c.draws.push_back(draw);
        if (rng_below(rng, 3) == 0) add_mask(rng, &c, row);
        if (rng_below(rng, 3) == 0) add_edits(rng, &c, row);
    }
    make_bare(rng, &c);
    return c;
}

static struct cuda_sample call_of(const struct sample_case *c) {
    struct cuda_sample call = {};
    call.logits.logits = gpu_copy(c->logits), call.logits.stride = c->stride;
    call.logits.rows = c->rows, call.logits.vocab = call.logits.finished = c->vocab;
    call.stats = gpu_take<struct cuda_stat>(c->rows);
    call.partial = gpu_take_bytes(cuda_sample_partial_bytes(c->rows, c->vocab));
    call.draws = gpu_copy(c->draws);
    call.tokens = gpu_take<int32_t>(c->rows), call.last_token = gpu_take<int32_t>(c->rows);
    call.drawn = gpu_copy(c->drawn), call.drawn_count = (uint32_t)c->drawn.size();
    call.masks = gpu_copy(c->masks), call.mask_words = (c->vocab + 31) / 32;
    call.edits = gpu_copy(c->edits), call.kept = gpu_take<float>(c->edits.size());
    call.bare_count = c->bare_count;
    call.summed = gpu_copy(c->summed), call.summed_count = (uint32_t)c->summed.size();
    call.nonfinite = gpu_copy(std::vector<uint32_t>(1));
    return call;
}

/* Whether all bytes are as gpu_take left them. */
template <class T> static bool is_untouched(const T *at, size_t count) {
    const std::vector<uint8_t> bytes = gpu_read((const uint8_t *)at, count * sizeof(T));
    return std::count(bytes.begin(), bytes.end(), 0xff) == (ptrdiff_t)bytes.size();
}

static bool is_broken(const struct sample_case *c, uint32_t row) {
    const float *logits = &c->logits[row * c->stride];
    return std::any_of(logits, logits + c->vocab, draw_is_broken);
}

/* Rows with broken logits, as counted; statistics of summed rows, and none of the others. */
static bool are_stats(const struct sample_case *c, const struct cuda_sample *call) {
    const std::vector<struct cuda_stat> stats = gpu_read(call->stats, c->rows);
    uint32_t broken = 0;
    for (uint32_t row = 0; row < c->rows; row++) broken += is_broken(c, row);
    const uint32_t counted = gpu_read(call->nonfinite, 1)[0];
    if (counted != broken) {
        note("%u rows are broken, not %u", counted, broken);
        return false;
    }
    for (uint32_t row = 0; row < c->rows; row++) {
        if (std::count(c->drawn.begin(), c->drawn.begin() + c->bare_count, row) > 0) {
            if (is_untouched(&call->stats[row], 1)) continue;
            note("row %u is bare and has statistics", row);
            return false;
        }
        const float *logits = &c->logits[row * c->stride];
        float max = -INFINITY;
        uint32_t best = 0;
        for (uint32_t i = 0; i < c->vocab; i++)
            if (draw_clean(logits[i]) > max) max = draw_clean(logits[i]), best = i;
        double sum = 0;
        for (uint32_t i = 0; i < c->vocab && max > -INFINITY; i++)
            sum += exp((double)draw_clean(logits[i]) - max);
        double lse = max > -INFINITY ? max + log(sum) : -INFINITY;
        const struct cuda_stat *got = &stats[row];
        if (got->max == max && got->best == best &&
            (got->lse == lse || fabs(got->lse - lse) <= 2e-6 + 1e-9 * fabs(lse)))
            continue;
        note("row %u: max %g at %u, lse %g; not %g at %u, %g", row, got->max, got->best, got->lse,
             max, best, lse);
        return false;
    }
    return true;
}

static bool check_case(struct rng *rng, uint32_t rows, uint32_t vocab, enum look look) {
    if (rng_below(rng, check_one_in) != 0) return true;
    struct sample_case c = random_case(rng, rows, vocab, look);
    struct cuda_sample call = call_of(&c);
    MUST_BE_OK(cuda_sample_stats(&call, stream, error));
    MUST_BE_OK(cuda_sample_choose(&call, stream, error));
    gpu_settle();
    bool is_well = are_stats(&c, &call);
    std::vector<int32_t> tokens = gpu_read(call.tokens, rows);
    std::vector<int32_t> last = gpu_read(call.last_token, rows);
    std::vector<float> after = gpu_read(call.logits.logits, rows * c.stride);
    for (uint32_t row = 0; row < rows && is_well; row++) {
        const struct gpu_draw *d = &c.draws[row];
        int32_t want = wants_token(&c, row);
        is_well = tokens[row] == want && last[row] == want;
        if (!is_well)
            note("row %u of %u x %u: %d, not %d; factor %g offset %g top_k %u top_p %g mask %d, %u "
                 "edits",
                 row, rows, vocab, tokens[row], want, d->factor, d->offset, d->top_k, d->top_p,
                 d->mask, d->edit_count);
    }
    if (is_well && memcmp(after.data(), c.logits.data(), after.size() * sizeof(float)) != 0)
        is_well = false, note("logits are not as they were");
    gpu_release();
    return is_well;
}

/* ---- log-probabilities ---- */

static bool is_answer(const struct sample_case *c, const struct gpu_ask *ask, int32_t chosen,
                      const struct gpu_answer *got) {
    const float *logits = &c->logits[ask->row * c->stride];
    std::vector<uint32_t> order(c->vocab);
    for (uint32_t i = 0; i < c->vocab; i++) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return draw_clean(logits[a]) > draw_clean(logits[b]);
    });
    int32_t token = ask->token < 0 ? chosen : ask->token;
    uint32_t rank = 1, count = std::min(ask->top_count, c->vocab);
    while ((int32_t)order[rank - 1] != token) rank++;
    bool is_well = got->token == token && got->rank == rank &&
                   got->logit == draw_clean(logits[token]) && got->top_count == count;
    for (uint32_t i = 0; i < count; i++)
        is_well &=
            got->top[i] == (int32_t)order[i] && got->top_logits[i] == draw_clean(logits[order[i]]);
    if (!is_well)
        note("row %u, token %d (%d): rank %u (%u), logit %g, first %d (%u) of %u", ask->row,
             got->token, token, got->rank, rank, got->logit, got->top[0], order[0], count);
    return is_well;
}

static bool check_asks(struct rng *rng, uint32_t vocab, enum look look) {
    if (rng_below(rng, check_one_in) != 0) return true;
    const uint32_t rows = 12;
    struct sample_case c = random_case(rng, rows, vocab, look);
    c.bare_count = 0;
    struct cuda_sample call = call_of(&c);
    std::vector<struct gpu_ask> asks;
    std::vector<int32_t> named;
    for (uint32_t i = 0; i < 9; i++) {
        uint32_t row = (uint32_t)rng_below(rng, rows), count = (uint32_t)rng_below(rng, 40);
        int32_t token = rng_below(rng, 2) ? -1 : (int32_t)rng_below(rng, vocab);
        asks.push_back(
            {row, token, (uint32_t)rng_below(rng, GPU_TOP_MAX + 1), (uint32_t)named.size(), count});
        for (uint32_t k = 0; k < count; k++) named.push_back((int32_t)rng_below(rng, vocab));
    }
    struct cuda_logprobs ask = {};
    ask.logits = call.logits, ask.stats = call.stats, ask.tokens = call.tokens;
    ask.asks = gpu_copy(asks), ask.ask_count = (uint32_t)asks.size();
    ask.answers = gpu_take<struct gpu_answer>(asks.size());
    ask.named = gpu_copy(named), ask.named_logits = gpu_take<float>(named.size());
    MUST_BE_OK(cuda_sample_stats(&call, stream, error));
    MUST_BE_OK(cuda_sample_choose(&call, stream, error));
    MUST_BE_OK(cuda_logprobs(&ask, stream, error));
    gpu_settle();
    std::vector<int32_t> tokens = gpu_read(call.tokens, rows);
    std::vector<struct gpu_answer> answers = gpu_read(ask.answers, asks.size());
    std::vector<struct cuda_stat> stats = gpu_read(call.stats, rows);
    std::vector<float> logits = gpu_read(ask.named_logits, named.size());
    bool is_well = true;
    for (size_t i = 0; i < asks.size(); i++) {
        is_well &= is_answer(&c, &asks[i], tokens[asks[i].row], &answers[i]);
        is_well &= memcmp(&answers[i].lse, &stats[asks[i].row].lse, sizeof(double)) == 0;
        for (uint32_t k = 0; k < asks[i].named_count; k++) {
            uint32_t at = asks[i].named_begin + k;
            is_well &= logits[at] == draw_clean(c.logits[asks[i].row * c.stride + named[at]]);
        }
    }
    gpu_release();
    return is_well;
}

/* ---- the definition itself ---- */

static void check_weights(void) {
    double worst = 0;
    for (int i = 0; i < 2000000; i++) {
        float x = (float)i * 1.2e-5f; /* to e^-24 */
        double want = exp(-(double)x), got = (double)draw_weight(0.0f - x, 0.0f, 1.0f) * 0x1p-31;
        worst = std::max(worst, (fabs(got - want) - 0.75 * 0x1p-31) / want);
    }
    report(worst <= 3e-6, "sample: weights are exponentials, off by %.1g at most", worst);
}

/* The tokens of rows that are all drawn. */
static std::vector<int32_t> chosen(const struct sample_case *c) {
    struct cuda_sample call = call_of(c);
    MUST_BE_OK(cuda_sample_stats(&call, stream, error));
    MUST_BE_OK(cuda_sample_choose(&call, stream, error));
    gpu_settle();
    std::vector<int32_t> tokens = gpu_read(call.tokens, c->rows);
    gpu_release();
    return tokens;
}

/* Over many draws each token's share is its probability, within five deviations. */
static void check_shares(void) {
    const uint32_t rows = 40000 / (uint32_t)check_one_in, vocab = 8;
    const float temperature = 0.8f;
    struct sample_case c = {rows, vocab, 8};
    const float logits[] = {1.0f, 3.0f, -2.0f, 2.5f, 0.0f, 3.0f, -40.0f, 1.5f};
    for (uint32_t row = 0; row < rows; row++) {
        c.logits.insert(c.logits.end(), logits, logits + 8);
        struct gpu_draw draw = {};
        draw.seed = run_seed + row, draw.counter = 3, draw.factor = draw_factor(temperature);
        draw.offset = -INFINITY, draw.mask = -1, draw.slot = -1;
        c.draws.push_back(draw), c.drawn.push_back(row);
    }
    const std::vector<int32_t> tokens = chosen(&c);
    double total = 0, worst = 0;
    for (float logit : logits) total += exp(logit / temperature);
    for (int token = 0; token < 8; token++) {
        double share = exp(logits[token] / temperature) / total;
        double got = (double)std::count(tokens.begin(), tokens.end(), token);
        worst = std::max(worst, fabs(got - rows * share) / sqrt(rows * share * (1 - share) + 1e-9));
    }
    report(worst < 5, "sample: shares of %u draws are within %.1f deviations", rows, worst);
}

/* Tokens of two weights, in bins next but one to each other. All of one weight lie at one edge of
 * their bin, all of the other at the edge towards them. So sample_nucleus misjudges the share at
 * which one weight ends and the other begins. */
static void check_off_alike(void) {
    const uint32_t rows = 48, vocab = 2801;
    const float bin = DRAW_NEAR / 4095;
    struct sample_case c = {rows, vocab, (vocab + 3) / 4 * 4};
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t i = 0; i < c.stride; i++)
            c.logits.push_back(i == 0 ? 0.0f : i % 2 ? -20.49f * bin : -21.51f * bin);
        struct gpu_draw draw = {};
        draw.seed = run_seed + row, draw.factor = draw_factor(1), draw.offset = -INFINITY;
        draw.top_p = 0.5f + 0.0001f * (float)row, draw.mask = -1, draw.slot = -1;
        c.draws.push_back(draw), c.drawn.push_back(row);
    }
    c.bare_count = rows / 2;
    for (uint32_t row = rows / 2; row < rows; row++) c.summed.push_back(row);
    const std::vector<int32_t> tokens = chosen(&c);
    uint32_t wrong = 0;
    for (uint32_t row = 0; row < rows; row++) wrong += tokens[row] != wants_token(&c, row);
    report(wrong == 0, "sample: the reference's tokens where weights are off their bins alike");
}

static void check_finish(struct rng *rng) {
    const uint32_t rows = 5, vocab = 9001;
    struct sample_case c = random_case(rng, rows, vocab, LOOK_NORMAL);
    c.bare_count = 0;
    std::vector<float> row_scale = random_floats(rng, rows, 1.0f);
    std::vector<uint16_t> column_scale = random_bf16(rng, vocab, 1.0f);
    struct cuda_sample call = call_of(&c);
    call.logits.row_scale = gpu_copy(row_scale);
    call.logits.column_scale = gpu_copy(column_scale);
    call.logits.softcap = 30.0f;
    MUST_BE_OK(cuda_sample_stats(&call, stream, error));
    gpu_settle();
    std::vector<float> got = gpu_read(call.logits.logits, rows * c.stride);
    bool is_well = true;
    for (uint32_t i = 0; i < rows * vocab; i++) {
        size_t at = i / vocab * c.stride + i % vocab;
        double logit =
            (double)c.logits[at] * row_scale[i / vocab] * bf16_to_f32(column_scale[i % vocab]);
        is_well &= fabs(got[at] - 30 * tanh(logit / 30)) <= 1e-5;
    }
    c.logits = got;
    report(is_well && are_stats(&c, &call),
           "sample: 8-bit sums are scaled, capped and written back");
    gpu_release();
}

/* No row, none to be drawn and no ask are no launch: a GPU refuses one without blocks. */
static void check_no_rows(struct rng *rng) {
    const uint32_t rows = 3, vocab = 1000;
    struct sample_case c = random_case(rng, rows, vocab, LOOK_NORMAL);
    struct cuda_sample call = call_of(&c);
    call.logits.rows = call.drawn_count = call.bare_count = 0;
    call.nonfinite = gpu_take<uint32_t>(1);
    struct cuda_logprobs ask = {};
    ask.logits = call.logits, ask.stats = call.stats, ask.tokens = call.tokens;
    ask.answers = gpu_take<struct gpu_answer>(1);
    ask.named_logits = gpu_take<float>(1);
    MUST_BE_OK(cuda_sample_stats(&call, stream, error));
    MUST_BE_OK(cuda_sample_choose(&call, stream, error));
    MUST_BE_OK(cuda_logprobs(&ask, stream, error));
    gpu_settle();
    const std::vector<float> logits = gpu_read(call.logits.logits, rows * c.stride);
    report(memcmp(logits.data(), c.logits.data(), logits.size() * sizeof(float)) == 0 &&
               is_untouched(call.stats, rows) && is_untouched(call.tokens, rows) &&
               is_untouched(call.last_token, rows) && is_untouched(call.kept, c.edits.size()) &&
               is_untouched(call.nonfinite, 1) && is_untouched(ask.answers, 1) &&
               is_untouched(ask.named_logits, 1),
           "sample: no row, nothing written");
    gpu_release();
}

void check_sample(void) {
    struct rng rng = random_of("sample");
    check_no_rows(&rng);
    check_weights();
    for (int look = 0; look < LOOK_COUNT; look++) {
        bool is_well = true;
        for (uint32_t vocab : {1u, 5u, 127u, 1000u, 8192u, 8193u, 32001u})
            is_well &= check_case(&rng, vocab > 10000 ? 24 : 48, vocab, (enum look)look);
        if (look == LOOK_NORMAL || look == LOOK_PEAKED)
            is_well &= check_case(&rng, 6, 151936, (enum look)look);
        report(is_well, "sample: the reference's tokens from logits %s", look_names[look]);
        is_well = true;
        for (uint32_t vocab : {1u, 5u, 1000u, 32001u})
            is_well &= check_asks(&rng, vocab, (enum look)look);
        report(is_well, "sample: logits, ranks and top tokens, %s", look_names[look]);
    }
    check_off_alike();
    check_finish(&rng);
    check_shares();
}
