/* SPDX-License-Identifier: Apache-2.0 */
#include "rows_of.h"

extern "C" {
#include "gpu/cuda/products.h"
#include "gpu/cuda/scaled.h"
}

static const char *const ending_names[] = {"scaled", "silu", "gelu_tanh"};

struct scaled_case {
    uint32_t rows, outputs, inputs;
};

/* Whole and broken tiles of 128 rows, of 160, 192 and 256 outputs, of 128 codes; more tiles than a
 * cluster has in one turn; more stages than the ring has. */
static const struct scaled_case cases[] = {
    {1, 16, 64},      {3, 256, 128},    {17, 272, 192},   {64, 128, 320},   {128, 512, 64},
    {129, 400, 128},  {130, 768, 448},  {256, 256, 80},   {257, 2064, 128}, {300, 1040, 1072},
    {385, 256, 1408}, {513, 1280, 128}, {90, 4096, 256},  {257, 160, 1024}, {200, 576, 896},
    {256, 2560, 64},  {128, 3072, 64},  {130, 320, 1616},
};

struct codes_of {
    void *at;
    std::vector<float> values;
};

static struct codes_of random_codes(struct rng *rng, size_t count) {
    struct codes_of codes = {NULL, random_floats(rng, count, 40.0f)};
    std::vector<uint8_t> bytes(count);
    for (size_t i = 0; i < count; i++) {
        codes.values[i] = fmaxf(-127, fminf(127, roundf(codes.values[i])));
        bytes[i] = (uint8_t)(int8_t)codes.values[i];
    }
    codes.at = gpu_copy(bytes);
    return codes;
}

/* A call over random codes and scales, and what y is to be. */
struct scaled_made {
    struct cuda_scaled call;
    uint32_t width; /* width of y */
    std::vector<float> want;
};

static double ended(enum cuda_ending ending, double gate, double up) {
    const double inner = 0.797884560802865 * (gate + 0.044715 * gate * gate * gate);
    return up * (ending == CUDA_END_SILU ? gate / (1 + exp(-gate)) : gate / (1 + exp(-2 * inner)));
}

static struct scaled_made make(struct rng *rng, const struct scaled_case *shape,
                               enum cuda_ending ending) {
    const size_t rows = shape->rows, outputs = shape->outputs, inputs = shape->inputs;
    const size_t width = ending == CUDA_END_SCALED ? outputs : outputs / 2;
    const struct codes_of in = random_codes(rng, rows * inputs);
    const struct codes_of weights = random_codes(rng, outputs * inputs);
    std::vector<float> row_scale = random_floats(rng, rows, 0.5f);
    for (float &scale : row_scale) scale = fabsf(scale) + 0.5f;
    const std::vector<uint16_t> columns =
        random_bf16(rng, outputs, 1.5f / (1600 * sqrtf((float)inputs)));
    auto value = [&](size_t row, size_t column) {
        double sum = 0;
        for (size_t i = 0; i < inputs; i++)
            sum += (double)in.values[row * inputs + i] * weights.values[column * inputs + i];
        return sum * row_scale[row] * bf16_to_f32(columns[column]);
    };
    struct scaled_made made = {{ending, shape->outputs, shape->inputs, shape->rows, weights.at,
                                in.at, gpu_copy(row_scale), gpu_copy(columns), NULL},
                               (uint32_t)width,
                               std::vector<float>(rows * width)};
    for (size_t i = 0; i < rows * width; i++) {
        const double first = value(i / width, i % width);
        made.want[i] = (float)(ending == CUDA_END_SCALED
                                   ? first
                                   : ended(ending, first, value(i / width, width + i % width)));
    }
    made.call.y = gpu_take<uint16_t>(rows * width);
    return made;
}

static bool check_case(struct rng *rng, const struct scaled_case *shape, enum cuda_ending ending) {
    if (rng_below(rng, check_one_in) != 0) return true;
    const struct scaled_made made = make(rng, shape, ending);
    MUST_BE_OK(cuda_scaled(&made.call, stream, error));
    gpu_settle();
    const std::vector<float> got =
        floats_of_bf16(gpu_read((const uint16_t *)made.call.y, made.want.size()));
    const struct difference off = differ(got.data(), made.want.data(), made.want.size());
    const bool is_well = off.relative <= 0.004;
    if (!is_well)
        note("%u rows of %u x %u: off by %g on the whole, %g at row %zu, column %zu", shape->rows,
             shape->outputs, shape->inputs, off.relative, off.worst, off.worst_at / made.width,
             off.worst_at % made.width);
    gpu_release();
    return is_well;
}

/* A row is what it is alone, whatever rows stand beside it. */
static void check_rows_alone(struct rng *rng, enum cuda_ending ending) {
    const struct scaled_case shape = {300, 272, 192};
    const struct scaled_made made = make(rng, &shape, ending);
    uint16_t *one = gpu_take<uint16_t>(made.width);
    struct cuda_scaled call = made.call;
    MUST_BE_OK(cuda_scaled(&call, stream, error));
    call.in = (const int8_t *)call.in + 277 * shape.inputs, call.row_scale += 277;
    call.rows = 1, call.y = one;
    MUST_BE_OK(cuda_scaled(&call, stream, error));
    gpu_settle();
    report(gpu_read((const uint16_t *)made.call.y + 277 * made.width, made.width) ==
               gpu_read(one, made.width),
           "scaled: a row alone has the same bits, %s", ending_names[ending]);
    gpu_release();
}

/* No row is no launch: a GPU refuses one without blocks. */
static void check_no_rows(struct rng *rng, enum cuda_ending ending) {
    const struct scaled_case shape = {2, 256, 64};
    const struct scaled_made made = make(rng, &shape, ending);
    struct cuda_scaled call = made.call;
    call.rows = 0;
    MUST_BE_OK(cuda_scaled(&call, stream, error));
    gpu_settle();
    const std::vector<uint16_t> y = gpu_read((const uint16_t *)call.y, made.want.size());
    report(std::all_of(y.begin(), y.end(), [](uint16_t one) { return one == 0xffff; }),
           "scaled: no row, nothing written, %s", ending_names[ending]);
    gpu_release();
}

void check_scaled(void) {
    struct rng rng = random_of("scaled");
    struct error error;
    struct cuda_scaled call = {CUDA_END_SCALED, 256, 24, 1, NULL, NULL, NULL, NULL, NULL};
    report(cuda_scaled(&call, stream, &error) == ERR_INVALID,
           "scaled: rows that are no multiple of 16 B are refused");
    for (int ending = 0; ending < 3; ending++) {
        bool is_well = true;
        for (const struct scaled_case &shape : cases)
            is_well &= check_case(&rng, &shape, (enum cuda_ending)ending);
        report(is_well, "scaled: %s", ending_names[ending]);
        check_rows_alone(&rng, (enum cuda_ending)ending);
        check_no_rows(&rng, (enum cuda_ending)ending);
    }
    report(cuda_scaled_pays(CUDA_END_SILU, 19456, 2048) &&
               !cuda_scaled_pays(CUDA_END_SILU, 19456, 16) &&
               !cuda_scaled_pays(CUDA_END_SCALED, 64, 2048),
           "scaled: many rows pay, few rows and few outputs do not");
}

/* ---- times ---- */

#define WORKSPACE_BYTES (32u << 20)

struct scaled_bench {
    struct cuda_products *products;
    struct cuda_scaled call;
    struct cuda_multiply multiply;
    char *weights;
    int copies;
    size_t weight_bytes;
};

static const void *weights_of(const struct scaled_bench *b, int i) {
    return b->weights + (size_t)(i % b->copies) * b->weight_bytes;
}

static void launch_library(const struct scaled_bench *b, int i) {
    struct cuda_multiply call = b->multiply;
    call.weights = weights_of(b, i);
    MUST_BE_OK(cuda_multiply(b->products, &call, stream, error));
}

static void launch_scaled(const struct scaled_bench *b, int i) {
    struct cuda_scaled call = b->call;
    call.weights = weights_of(b, i);
    MUST_BE_OK(cuda_scaled(&call, stream, error));
}

/* Beside cuBLASLt's product of the same shape, which leaves int32 sums: alone, and without a pause.
 */
static void bench_one(struct cuda_products *products, const char *name, enum cuda_ending ending,
                      uint32_t outputs, uint32_t inputs, uint32_t rows) {
    const size_t bucket = row_bucket(rows);
    struct scaled_bench b = {products, {ending, outputs, inputs, rows}};
    b.weight_bytes = (size_t)outputs * inputs;
    b.copies = std::min(cold_copies(b.weight_bytes), 32);
    b.weights = gpu_take<char>(b.weight_bytes * (size_t)b.copies);
    char *in = gpu_take<char>(bucket * inputs);
    float *row_scale = gpu_take<float>(bucket);
    uint16_t *columns = gpu_take<uint16_t>(outputs);
    fill_int8(b.weights, b.weight_bytes * (size_t)b.copies, 1, 32);
    fill_int8(in, bucket * inputs, 2, 32);
    fill_f32(row_scale, bucket, 3, 0.01f), fill_bf16(columns, outputs, 4, 0.01f);
    b.call.weights = b.weights, b.call.in = in, b.call.row_scale = row_scale;
    b.call.column_scale = columns, b.call.y = gpu_take_bytes(bucket * outputs * 2);
    b.multiply = {CUDA_FORMAT_INT8,
                  outputs,
                  inputs,
                  rows,
                  b.weights,
                  in,
                  gpu_take_bytes(bucket * outputs * 4)};
    MUST_BE_OK(cuda_products_tune(products, &b.multiply, (uint32_t)b.copies, b.weight_bytes, stream,
                                  error));
    auto library = [&](int i) { launch_library(&b, i); };
    auto own = [&](int i) { launch_scaled(&b, i); };
    const double library_us = time_us(library), library_steady = steady_us(library);
    const double steady = steady_us(own);
    bench_flops(
        "scaled", time_us(own), 2.0 * outputs * inputs * rows, ceiling_product(PRODUCT_INT8),
        "%s %s %u%s: int32 sums by cuBLASLt %.1f; without a pause %.1f and %.1f", name,
        ending_names[ending], rows, cuda_scaled_pays(ending, outputs, rows) ? "" : " (not used)",
        library_us, steady, library_steady);
    gpu_release();
}

void bench_scaled(void) {
    static const struct {
        const char *name;
        enum cuda_ending ending;
        uint32_t outputs, inputs;
    } shapes[] = {{"qwen3-4b qkv", CUDA_END_SCALED, 6144, 2560},
                  {"qwen3-4b o", CUDA_END_SCALED, 2560, 4096},
                  {"qwen3-4b gate_up", CUDA_END_SILU, 19456, 2560},
                  {"qwen3-4b down", CUDA_END_SCALED, 2560, 9728},
                  {"llama-8b qkv", CUDA_END_SCALED, 6144, 4096},
                  {"llama-8b gate_up", CUDA_END_SILU, 28672, 4096},
                  {"llama-8b down", CUDA_END_SCALED, 4096, 14336},
                  {"llama-1b qkv", CUDA_END_SCALED, 3072, 2048},
                  {"llama-1b gate_up", CUDA_END_SILU, 16384, 2048},
                  {"llama-1b down", CUDA_END_SCALED, 2048, 8192}};
    struct cuda_products *products;
    MUST_BE_OK(cuda_products_open(&products, getenv("CUBLASLT"), WORKSPACE_BYTES, error));
    for (const auto &shape : shapes)
        for (uint32_t rows : {512u, 1024u, 2048u})
            bench_one(products, shape.name, shape.ending, shape.outputs, shape.inputs, rows);
    cuda_products_close(products);
}
