/* SPDX-License-Identifier: Apache-2.0 */
#include "experts_world.h"
#include "grouped_world.h"
#include "rows_of.h"

static const char *const ending_names[] = {"down", "silu", "gelu_tanh", "clamped"};

struct experts_case {
    uint32_t experts, each, rows, outputs, inputs;
    float apart; /* deviation of the experts' own part of the logits: some have no row */
};

/* Few rows, more than a tile has, and each width of a tile; whole and broken tiles of weights; rows
 * that are no multiple of a stage, more stages than the ring has, one stage alone. */
static const struct experts_case cases[] = {
    {4, 2, 1, 64, 64, 0},      {8, 2, 3, 256, 128, 2},   {6, 3, 17, 32, 336, 1},
    {3, 1, 60, 288, 80, 0},    {16, 4, 40, 96, 704, 3},  {2, 1, 330, 64, 64, 0},
    {2, 2, 193, 544, 144, 0},  {5, 2, 210, 320, 208, 4}, {1, 1, 400, 32, 64, 0},
    {7, 2, 100, 512, 1040, 1}, {3, 2, 97, 64, 272, 0},   {130, 8, 20, 32, 64, 0},
    {4, 3, 150, 800, 48, 1},   {1, 1, 75, 96, 208, 0},   {2, 2, 112, 64, 1040, 0},
    {1, 1, 141, 288, 400, 0},  {2, 2, 176, 64, 144, 0},  {1, 1, 177, 96, 64, 0},
    {9, 2, 300, 544, 272, 1},
};

struct numbers_of {
    void *at;
    std::vector<float> values;
};

static struct numbers_of random_numbers(struct rng *rng, enum cuda_code code, size_t count,
                                        float deviation) {
    struct numbers_of ret = {NULL, random_floats(rng, count, deviation)};
    std::vector<uint8_t> bytes(code == CUDA_BF16 ? 0 : count);
    std::vector<uint16_t> halves(code == CUDA_BF16 ? count : 0);
    for (size_t i = 0; i < count; i++) {
        float &value = ret.values[i];
        if (code == CUDA_BF16)
            halves[i] = bf16_from_f32(value), value = bf16_to_f32(halves[i]);
        else if (code == CUDA_E4M3)
            bytes[i] = e4m3_from_f32(value), value = e4m3_to_f32(bytes[i]);
        else
            value = fmaxf(-127, fminf(127, roundf(value))), bytes[i] = (uint8_t)(int8_t)value;
    }
    ret.at = code == CUDA_BF16 ? (void *)gpu_copy(halves) : (void *)gpu_copy(bytes);
    return ret;
}

/* A call over random numbers, with its order. */
struct experts_made {
    struct cuda_experts call;
    struct cuda_route route;
    uint32_t width; /* width of y */
    struct numbers_of in, weights;
    std::vector<float> row_scale, bias;
    std::vector<uint16_t> column_scale;
};

static void make_order(struct rng *rng, const struct experts_case *shape, struct cuda_route *ret) {
    std::vector<float> logits = random_floats(rng, (size_t)shape->rows * shape->experts, 1.0f);
    const std::vector<float> apart = random_floats(rng, shape->experts, shape->apart);
    for (size_t i = 0; i < logits.size(); i++) logits[i] += apart[i % shape->experts];
    *ret = route_of(gpu_copy(logits), take_order(shape->experts, shape->each, shape->rows));
    MUST_BE_OK(cuda_route(ret, stream, error));
}

/* Weights as codes in groups instead. */
static void make_grouped(struct rng *rng, const struct experts_case *shape, enum tensor_type type,
                         struct experts_made *made) {
    const uint32_t lines = shape->experts * shape->outputs;
    const struct grouped_case is = {type, lines, shape->inputs, 0};
    const std::vector<uint8_t> file = grouped_file(rng, &is);
    const enum grouping kind = grouping_of(type);
    const bool is_gated = made->call.ending != CUDA_EXPERTS_DOWN;
    const struct cuda_grouped weights = {kind, lines, shape->inputs,
                                         gpu_take_bytes(grouped_bytes(kind, lines, shape->inputs))};
    const struct cuda_grouped_fill fill = {
        gpu_copy(file), type, 0, lines, weights, is_gated ? shape->outputs / 2 : 0};
    MUST_BE_OK(cuda_grouped_fill(&fill, stream, error));
    made->weights.values.resize((size_t)lines * shape->inputs);
    for (uint32_t line = 0; line < lines; line++)
        quant_row_to_f32(type, &file[line * tensor_type_row_bytes(type, shape->inputs)],
                         shape->inputs, &made->weights.values[(size_t)line * shape->inputs]);
    made->call.weights = weights.at, made->call.grouping = kind;
}

static struct experts_made make(struct rng *rng, const struct experts_case *shape,
                                enum cuda_expert_ending ending, enum cuda_code code) {
    const bool is_down = ending == CUDA_EXPERTS_DOWN, is_coded = code != CUDA_BF16;
    const size_t pairs = (size_t)shape->rows * shape->each, outputs = shape->outputs;
    const size_t inputs = shape->inputs, in_rows = is_down ? pairs : shape->rows;
    const float size = code == CUDA_INT8 ? 40.0f : code == CUDA_E4M3 ? 60.0f : 1.0f;
    struct experts_made made = {};
    make_order(rng, shape, &made.route);
    made.width = is_down ? shape->outputs : shape->outputs / 2;
    made.in = random_numbers(rng, code, in_rows * inputs, size);
    made.weights = random_numbers(rng, code, shape->experts * outputs * inputs,
                                  is_coded ? size : 1.5f / sqrtf((float)inputs));
    made.bias = random_floats(rng, shape->experts * outputs, 0.5f);
    made.row_scale = random_floats(rng, in_rows, 0.5f);
    for (float &scale : made.row_scale) scale = fabsf(scale) + 0.5f;
    made.column_scale =
        random_bf16(rng, shape->experts * outputs, 1.5f / (size * size * sqrtf((float)inputs)));
    made.call = {ending,          code, shape->outputs, shape->inputs,
                 made.weights.at, NULL, NULL,           made.in.at};
    if (rng_below(rng, 2) == 0 || ending == CUDA_EXPERTS_CLAMPED)
        made.call.bias = gpu_copy(made.bias);
    if (is_coded) {
        made.call.row_scale = gpu_copy(made.row_scale);
        made.call.column_scale = gpu_copy(made.column_scale);
    }
    made.call.limit = 2, made.call.alpha = 1.702f, made.call.by = made.route.to;
    made.call.y = gpu_take<uint16_t>(pairs * made.width);
    return made;
}

static double ended(const struct cuda_experts &call, double gate, double up) {
    const double inner = 0.797884560802865 * (gate + 0.044715 * gate * gate * gate);
    if (call.ending == CUDA_EXPERTS_SILU) return up * gate / (1 + exp(-gate));
    if (call.ending == CUDA_EXPERTS_GELU_TANH) return up * gate / (1 + exp(-2 * inner));
    gate = std::min(gate, (double)call.limit);
    up = std::max(-(double)call.limit, std::min(up, (double)call.limit));
    return (up + 1) * gate / (1 + exp(-(double)call.alpha * gate));
}

static double sum_of(const struct experts_made &made, size_t row, size_t expert, size_t column) {
    const size_t inputs = made.call.inputs, line = expert * made.call.outputs + column;
    const float *a = made.in.values.data() + row * inputs;
    const float *b = made.weights.values.data() + line * inputs;
    double sum = 0;
    for (size_t i = 0; i < inputs; i++) sum += (double)a[i] * b[i];
    if (made.call.row_scale)
        sum *= (double)made.row_scale[row] * bf16_to_f32(made.column_scale[line]);
    return sum + (made.call.bias ? made.bias[line] : 0);
}

static std::vector<float> expected(const struct experts_made &made) {
    const struct cuda_expert_order &by = made.call.by;
    const size_t pairs = (size_t)by.rows * by.each, width = made.width;
    const std::vector<uint32_t> order = gpu_read(by.order, pairs);
    const std::vector<uint16_t> chosen = gpu_read(by.chosen, pairs);
    std::vector<float> want(pairs * width);
    for (size_t place = 0; place < pairs; place++) {
        const size_t pair = order[place], expert = chosen[pair];
        for (size_t c = 0; c < width; c++) {
            if (made.call.ending == CUDA_EXPERTS_DOWN)
                want[pair * width + c] = (float)sum_of(made, place, expert, c);
            else
                want[place * width + c] =
                    (float)ended(made.call, sum_of(made, pair / by.each, expert, c),
                                 sum_of(made, pair / by.each, expert, width + c));
        }
    }
    return want;
}

static bool check_case(struct rng *rng, const struct experts_case *shape,
                       enum cuda_expert_ending ending, enum cuda_code code, enum tensor_type type) {
    if (rng_below(rng, check_one_in) != 0) return true;
    struct experts_made made = make(rng, shape, ending, code);
    if (type != TENSOR_BF16) make_grouped(rng, shape, type, &made);
    MUST_BE_OK(cuda_experts(&made.call, stream, error));
    gpu_settle();
    const std::vector<float> want = expected(made);
    const std::vector<float> got = floats_of_bf16(gpu_read(made.call.y, want.size()));
    const struct difference off = differ(got.data(), want.data(), want.size());
    const bool is_well = off.relative <= 0.004;
    if (!is_well)
        note("%u rows, %u of %u experts of %u x %u: off by %g on the whole, %g at row %zu, column "
             "%zu",
             shape->rows, shape->each, shape->experts, shape->outputs, shape->inputs, off.relative,
             off.worst, off.worst_at / made.width, off.worst_at % made.width);
    gpu_release();
    return is_well;
}

/* ---- the sum ---- */

/* How the shared expert's rows come: not at all, as numbers, with a factor, or as sums that are
 * still to be scaled. */
enum sharing { NO_SHARED, SHARED, SHARED_GATED, SHARED_SCALED, SHARED_INT32 };

static bool check_sum(struct rng *rng, uint32_t rows, uint32_t each, uint32_t width,
                      enum sharing shared) {
    const uint32_t gate_stride = 16;
    const size_t pairs = (size_t)rows * each, count = (size_t)rows * width;
    struct cuda_experts_sum call = {};
    const std::vector<uint16_t> h = random_bf16(rng, pairs * width, 1.0f);
    const std::vector<uint16_t> other = random_bf16(rng, count, 1.0f),
                                gate = random_bf16(rng, (size_t)rows * gate_stride, 1.0f),
                                column_scale = random_bf16(rng, width, 1.0f);
    const std::vector<float> row_scale = random_floats(rng, rows, 1.0f);
    std::vector<int32_t> sums(count);
    std::vector<float> values = floats_of_bf16(other);
    const std::vector<float> weights = random_floats(rng, pairs, 0.3f);
    std::vector<float> want(count);
    call.by = take_order(32, each, rows), call.h = gpu_copy(h), call.width = width;
    call.by.weights = gpu_copy(weights), call.y = gpu_take<uint16_t>(count);
    for (size_t i = 0; i < count && shared >= SHARED_SCALED; i++) {
        sums[i] = (int32_t)rng_below(rng, 2001) - 1000;
        if (shared == SHARED_INT32) values[i] = (float)sums[i];
        values[i] *= row_scale[i / width] * bf16_to_f32(column_scale[i % width]);
    }
    if (shared != NO_SHARED) call.shared.sums = gpu_copy(other), call.shared.stride = width;
    if (shared == SHARED_INT32)
        call.shared.sums = gpu_copy(sums), call.shared.type = CUDA_SUMS_INT32;
    if (shared >= SHARED_SCALED)
        call.shared.row_scale = gpu_copy(row_scale),
        call.shared.column_scale = gpu_copy(column_scale);
    if (shared > SHARED) call.shared_gate = gpu_copy(gate), call.gate_stride = gate_stride;
    for (size_t i = 0; i < count; i++) {
        const size_t row = i / width;
        double sum = 0;
        for (size_t j = row * each; j < (row + 1) * each; j++)
            sum += (double)weights[j] * bf16_to_f32(h[j * width + i % width]);
        const double part =
            shared > SHARED ? 1 / (1 + exp(-(double)bf16_to_f32(gate[row * gate_stride]))) : shared;
        want[i] = (float)(sum + part * values[i]);
    }
    MUST_BE_OK(cuda_experts_sum(&call, stream, error));
    gpu_settle();
    const std::vector<float> got = floats_of_bf16(gpu_read(call.y, count));
    const struct difference off = differ(got.data(), want.data(), count);
    /* Rounding to bf16 changes a number by 2^-8 of it at most, and many by 2^-9 in the mean. */
    const double most = count < 64 ? 0.004 : 0.003;
    if (off.relative > most)
        note("%u rows of %u, %u each: off by %g", rows, width, each, off.relative);
    gpu_release();
    return off.relative <= most;
}

/* ---- all steps ---- */

struct layer {
    uint32_t experts, each, width, inner;
    const void *gate_up, *down;
    const uint16_t *gate_up_scale, *down_scale;
    enum cuda_code code;
};

static std::vector<uint16_t> run_layer(const struct layer *layer, const float *logits,
                                       const void *x, const float *row_scale, uint32_t rows) {
    const struct cuda_expert_order by = take_order(layer->experts, layer->each, rows);
    const size_t pairs = (size_t)rows * layer->each;
    struct cuda_route route = route_of(logits, by);
    struct cuda_experts up = {CUDA_EXPERTS_SILU, layer->code, 2 * layer->inner, layer->width,
                              layer->gate_up};
    struct cuda_experts down = {CUDA_EXPERTS_DOWN, layer->code, layer->width, layer->inner,
                                layer->down};
    struct cuda_experts_sum sum = {by};
    up.in = x, up.by = down.by = by, up.y = gpu_take<uint16_t>(pairs * layer->inner),
    down.in = up.y;
    up.row_scale = row_scale, up.column_scale = layer->gate_up_scale,
    down.column_scale = layer->down_scale;
    down.y = gpu_take<uint16_t>(pairs * layer->width);
    sum.h = down.y, sum.y = gpu_take<uint16_t>((size_t)rows * layer->width),
    sum.width = layer->width;
    MUST_BE_OK(cuda_route(&route, stream, error));
    MUST_BE_OK(cuda_experts(&up, stream, error));
    if (layer->code != CUDA_BF16) {
        struct cuda_quantise codes = {up.y, layer->inner,
                                      take_rows(layer->code, pairs, layer->inner), layer->inner,
                                      (uint32_t)pairs};
        MUST_BE_OK(cuda_quantise(&codes, stream, error));
        down.in = codes.y.codes, down.row_scale = codes.y.scale;
    }
    MUST_BE_OK(cuda_experts(&down, stream, error));
    MUST_BE_OK(cuda_experts_sum(&sum, stream, error));
    gpu_settle();
    return gpu_read(sum.y, (size_t)rows * layer->width);
}

/* A row is what it is alone, whatever rows stand beside it: in the first tile of an expert or in a
 * later one, of any width. */
static void check_rows_alone(struct rng *rng, enum cuda_code code) {
    const uint32_t rows = 230, width = 96, inner = 64, experts = 3, each = 2;
    const std::vector<float> logits = random_floats(rng, rows * experts, 1.0f);
    const std::vector<float> scale(rows, 0.02f);
    const float size = code == CUDA_BF16 ? 1.0f : 40.0f;
    const size_t bytes = width * code_bytes(code);
    struct layer layer = {experts, each, width, inner, NULL, NULL, NULL, NULL, code};
    layer.gate_up = random_numbers(rng, code, experts * 2 * inner * width, size).at;
    layer.down = random_numbers(rng, code, experts * inner * width, size).at;
    layer.gate_up_scale = gpu_copy(random_bf16(rng, experts * 2 * inner, 0.01f));
    layer.down_scale = gpu_copy(random_bf16(rng, experts * width, 0.01f));
    const char *x = (const char *)random_numbers(rng, code, rows * width, size).at;
    const float *scales = gpu_copy(scale), *all_logits = gpu_copy(logits);
    const std::vector<uint16_t> all = run_layer(&layer, all_logits, x, scales, rows);
    bool is_well = true;
    for (uint32_t row : {0u, 101u, 229u}) {
        const std::vector<float> mine(logits.begin() + row * experts,
                                      logits.begin() + (row + 1) * experts);
        const std::vector<uint16_t> one =
            run_layer(&layer, gpu_copy(mine), x + row * bytes, scales + row, 1);
        is_well &= std::equal(one.begin(), one.end(), all.begin() + row * width);
    }
    report(is_well, "experts: a row alone has the same bits, %s", code_names[code]);
    gpu_release();
}

static void check_refused(struct rng *rng) {
    const struct experts_case shape = {4, 2, 5, 64, 64, 0};
    const struct experts_made made = make(rng, &shape, CUDA_EXPERTS_DOWN, CUDA_BF16);
    struct cuda_experts call = made.call;
    struct error error;
    call.outputs = 48;
    bool is_well = cuda_experts(&call, stream, &error) == ERR_INVALID;
    call.outputs = 64, call.inputs = 60;
    is_well &= cuda_experts(&call, stream, &error) == ERR_INVALID;
    report(is_well,
           "experts: outputs that are no multiple of 32, rows of none of 16 B are refused");
    call = made.call, call.by.rows = 0;
    is_well = cuda_experts(&call, stream, &error) == OK;
    gpu_settle();
    const std::vector<uint16_t> y = gpu_read(call.y, 10 * 64);
    report(is_well && std::all_of(y.begin(), y.end(), [](uint16_t one) { return one == 0xffff; }),
           "experts: no row, nothing written");
    gpu_release();
}

void check_experts(void) {
    struct rng rng = random_of("experts");
    check_route();
    for (int code = 0; code < 3; code++) {
        for (int ending = 0; ending < 4; ending++) {
            bool is_well = true;
            for (const struct experts_case &shape : cases)
                is_well &= check_case(&rng, &shape, (enum cuda_expert_ending)ending,
                                      (enum cuda_code)code, TENSOR_BF16);
            report(is_well, "experts: %s of %s", ending_names[ending], code_names[code]);
        }
        check_rows_alone(&rng, (enum cuda_code)code);
    }
    for (enum tensor_type type : {TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_MXFP4}) {
        bool is_well = true;
        for (int ending = 0; ending < 4; ending++)
            for (const struct experts_case &shape : cases)
                if (shape.inputs % 32 == 0)
                    is_well &=
                        check_case(&rng, &shape, (enum cuda_expert_ending)ending, CUDA_BF16, type);
        report(is_well, "experts: all endings of %s", tensor_type_name(type));
    }
    report(check_sum(&rng, 1, 8, 64, NO_SHARED) && check_sum(&rng, 33, 4, 2880, SHARED) &&
               check_sum(&rng, 257, 10, 72, SHARED_GATED) && check_sum(&rng, 5, 1, 8, NO_SHARED) &&
               check_sum(&rng, 0, 8, 64, NO_SHARED),
           "experts: sums, with a shared expert and its gate");
    report(
        check_sum(&rng, 3, 8, 64, SHARED_SCALED) && check_sum(&rng, 65, 6, 1032, SHARED_SCALED) &&
            check_sum(&rng, 1, 2, 8, SHARED_INT32) && check_sum(&rng, 129, 10, 200, SHARED_INT32),
        "experts: sums with a shared expert that is still to be scaled");
    check_refused(&rng);
}
