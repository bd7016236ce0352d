/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

extern "C" {
#include "gpu/cuda/products.h"
}

#define WORKSPACE_BYTES (32u << 20)

static struct cuda_products *products; /* one for the run: opening takes 0.2 s */

static bool is_open(void) {
    static bool is_tried;
    struct error error = {};
    if (!is_tried &&
        cuda_products_open(&products, getenv("CUBLASLT"), WORKSPACE_BYTES, &error) != OK)
        note("%s", error.text);
    is_tried = true;
    return products != NULL;
}

static void fill_format(void *at, size_t count, enum cuda_format format, uint64_t seed,
                        bool is_weight) {
    if (format <= CUDA_FORMAT_BF16_F32)
        fill_bf16(at, count, seed, is_weight ? 0.02f : 1.0f);
    else if (format == CUDA_FORMAT_INT8)
        fill_int8(at, count, seed, 32.0f);
    else
        fill_e4m3(at, count, seed, 4.0f);
}

static double in_value(enum cuda_format format, const std::vector<uint8_t> &bytes, size_t at) {
    if (format == CUDA_FORMAT_INT8) return (int8_t)bytes[at];
    if (format > CUDA_FORMAT_BF16_F32) return e4m3_to_f32(bytes[at]);
    uint16_t bits;
    memcpy(&bits, &bytes[2 * at], 2);
    return bf16_to_f32(bits);
}

static double out_value(enum cuda_format format, const std::vector<uint8_t> &bytes, size_t at) {
    if (format == CUDA_FORMAT_BF16 || format == CUDA_FORMAT_E4M3) {
        uint16_t bits;
        memcpy(&bits, &bytes[2 * at], 2);
        return bf16_to_f32(bits);
    }
    uint32_t bits;
    memcpy(&bits, &bytes[4 * at], 4);
    if (format == CUDA_FORMAT_INT8) return (int32_t)bits;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* |got - want| / |want| over every row and a sample of columns. */
static double error_of(struct rng *rng, const struct cuda_multiply *call) {
    enum cuda_format format = call->format;
    size_t in_bytes = cuda_format_in_bytes(format), out_bytes = cuda_format_out_bytes(format);
    size_t k = call->inputs;
    std::vector<uint8_t> w = gpu_read((const uint8_t *)call->weights, k * call->outputs * in_bytes);
    std::vector<uint8_t> x = gpu_read((const uint8_t *)call->in, k * call->rows * in_bytes);
    std::vector<uint8_t> y =
        gpu_read((const uint8_t *)call->sums, (size_t)call->rows * call->outputs * out_bytes);
    double off = 0, all = 0;
    for (uint32_t row = 0; row < call->rows; row++)
        for (int sample = 0; sample < 32; sample++) {
            size_t column = rng_below(rng, call->outputs);
            double want = 0;
            for (size_t i = 0; i < k; i++)
                want += in_value(format, w, column * k + i) * in_value(format, x, row * k + i);
            double got = out_value(format, y, row * call->outputs + column);
            off += (got - want) * (got - want), all += want * want;
        }
    return sqrt(off / all);
}

static const char *const format_names[] = {"bf16", "bf16 to f32", "e4m3", "e4m3 to f32", "int8"};
static const double tolerances[] = {0.003, 1e-5, 0.004, 0.003, 0};

static void check_format(struct rng *rng, enum cuda_format format) {
    struct cuda_multiply call = {format, 384, 1024, 0, NULL, NULL, NULL};
    call.weights = gpu_take_bytes(384 * 1024 * 2);
    call.in = gpu_take_bytes(320 * 1024 * 2);
    call.sums = gpu_take_bytes(320 * 384 * 4);
    fill_format((void *)call.weights, 384 * 1024, format, rng_next(rng), true);
    fill_format((void *)call.in, 320 * 1024, format, rng_next(rng), false);
    bool is_well = true;
    for (uint32_t rows : {0u, 1u, 15u, 16u, 17u, 300u}) {
        call.rows = rows;
        if (rows > 0) MUST_BE_OK(cuda_products_tune(products, &call, 1, 0, stream, error));
        CUDA_MUST(cudaMemsetAsync(call.sums, 0xff, 320 * 384 * 4, stream));
        MUST_BE_OK(cuda_multiply(products, &call, stream, error));
        gpu_settle();
        double error = rows ? error_of(rng, &call) : 0;
        if (error <= tolerances[format]) continue;
        is_well = false;
        note("%u rows: error %g", rows, error);
    }
    report(is_well, "products: %s, an error of at most %g", format_names[format],
           tolerances[format]);
    gpu_release();
}

/* Products of heads side by side, with and without a gap behind each, which stays. */
static void check_side_by_side(struct rng *rng) {
    static const struct {
        uint32_t outputs, inputs, batch, gap;
    } shapes[] = {{512, 128, 16, 64}, {128, 512, 16, 0}, {64, 48, 5, 32}, {40, 64, 4, 0}};
    bool is_well = true, is_left = true;
    for (const auto &shape : shapes)
        for (uint32_t rows : {1u, 17u, 300u}) {
            const uint32_t bucket = row_bucket(rows), apart = shape.outputs + shape.gap;
            const size_t in = (size_t)shape.batch * shape.inputs, out = (size_t)shape.batch * apart;
            struct cuda_multiply call = {CUDA_FORMAT_BF16, shape.outputs, shape.inputs, rows};
            call.batch = shape.batch, call.gap = shape.gap;
            call.weights = gpu_take_bytes(in * shape.outputs * 2);
            call.in = gpu_take_bytes(bucket * in * 2), call.sums = gpu_take_bytes(bucket * out * 2);
            fill_bf16((void *)call.weights, in * shape.outputs, rng_next(rng), 0.02f);
            fill_bf16((void *)call.in, bucket * in, rng_next(rng), 1.0f);
            MUST_BE_OK(cuda_products_tune(products, &call, 1, 0, stream, error));
            CUDA_MUST(cudaMemsetAsync(call.sums, 0xff, bucket * out * 2, stream));
            MUST_BE_OK(cuda_multiply(products, &call, stream, error));
            gpu_settle();
            const std::vector<float> x =
                floats_of_bf16(gpu_read((const uint16_t *)call.in, rows * in));
            const std::vector<float> w =
                floats_of_bf16(gpu_read((const uint16_t *)call.weights, in * shape.outputs));
            const std::vector<uint16_t> bits = gpu_read((const uint16_t *)call.sums, rows * out);
            const std::vector<float> y = floats_of_bf16(bits);
            double off = 0, all = 0;
            for (uint32_t row = 0; row < rows; row++)
                for (uint32_t head = 0; head < shape.batch; head++)
                    for (uint32_t i = 0; i < apart; i += i < shape.outputs ? 7 : 1) {
                        const size_t at = row * out + (size_t)head * apart + i;
                        if (i >= shape.outputs) is_left &= bits[at] == 0xffff;
                        if (i >= shape.outputs) continue;
                        const float *a = &x[row * in + (size_t)head * shape.inputs];
                        const float *b = &w[((size_t)head * shape.outputs + i) * shape.inputs];
                        double want = 0;
                        for (uint32_t k = 0; k < shape.inputs; k++) want += (double)a[k] * b[k];
                        off += (y[at] - want) * (y[at] - want), all += want * want;
                    }
            is_well &= sqrt(off / all) <= tolerances[CUDA_FORMAT_BF16];
            gpu_release();
        }
    report(is_well, "products side by side: an error of at most %g", tolerances[CUDA_FORMAT_BF16]);
    report(is_left, "products side by side: the gaps between them stay");
}

/* What was chosen is recalled, gives the same bits, and is ignored when it is damaged. */
static void check_notes(void) {
    const char *text;
    size_t bytes;
    struct cuda_products *again, *other;
    const bool is_told = cuda_products_tell(products, &text, &bytes);
    std::vector<char> notes(text, text + (is_told ? bytes : 0));
    MUST_BE_OK(cuda_products_open(&again, getenv("CUBLASLT"), WORKSPACE_BYTES, error));
    MUST_BE_OK(cuda_products_open(&other, getenv("CUBLASLT"), WORKSPACE_BYTES, error));
    const uint32_t recalled = cuda_products_recall(again, notes.data(), notes.size());
    report(recalled > 0 && !cuda_products_tell(again, &text, &bytes),
           "products: %u choices are recalled, and none is new", recalled);
    struct cuda_multiply call = {CUDA_FORMAT_BF16, 384, 1024, 300, NULL, NULL, NULL};
    call.weights = gpu_take_bytes(384 * 1024 * 2), call.in = gpu_take_bytes(320 * 1024 * 2);
    uint16_t *first = gpu_take<uint16_t>(320 * 384), *second = gpu_take<uint16_t>(320 * 384);
    fill_format((void *)call.weights, 384 * 1024, call.format, 1, true);
    fill_format((void *)call.in, 320 * 1024, call.format, 2, false);
    call.sums = first;
    MUST_BE_OK(cuda_multiply(products, &call, stream, error));
    call.sums = second;
    MUST_BE_OK(cuda_products_tune(again, &call, 1, 0, stream, error));
    MUST_BE_OK(cuda_multiply(again, &call, stream, error));
    gpu_settle();
    report(gpu_read(first, 300 * 384) == gpu_read(second, 300 * 384),
           "products: recalled choices give the same bits");
    struct error error;
    call.inputs = 2048;
    report(cuda_multiply(again, &call, stream, &error) == ERR_NOT_FOUND,
           "products: a shape nobody timed is refused");
    notes[notes.size() / 2] ^= 1;
    report(cuda_products_recall(other, notes.data(), notes.size()) == 0,
           "products: damaged notes are ignored");
    cuda_products_close(again);
    cuda_products_close(other);
    gpu_release();
}

void check_products(void) {
    struct rng rng = random_of("products");
    if (!is_open()) {
        report(true, "products # SKIP no cuBLASLt");
        return;
    }
    for (int format = 0; format < CUDA_FORMAT_COUNT; format++)
        check_format(&rng, (enum cuda_format)format);
    check_side_by_side(&rng);
    check_notes();
}

/* ---- times ---- */

struct timed {
    double us;
    double share; /* share of the best algorithm's speed, all timed by `anew` after the choice */
    struct cuda_chosen chosen;
};

/* `anew` lists the algorithms of a shape in the order of the first time. */
static double share_of_best(struct cuda_products *anew, const struct cuda_multiply *call,
                            uint32_t copies, size_t bytes, uint32_t which) {
    struct cuda_chosen chosen;
    MUST_BE_OK(cuda_products_tune(anew, call, copies, bytes, stream, error));
    (void)cuda_products_chosen(anew, call, &chosen);
    return chosen.us[chosen.which] / chosen.us[which];
}

/* Without `anew` there is no share. Takes and frees memory of its own, for ceiling_product() is
 * asked for inside of benches. */
static struct timed time_shape(enum cuda_format format, uint32_t outputs, uint32_t inputs,
                               uint32_t rows, struct cuda_products *anew) {
    size_t bytes = (size_t)outputs * inputs * cuda_format_in_bytes(format);
    uint32_t copies = (uint32_t)std::min(cold_copies(bytes), 32), bucket = row_bucket(rows);
    struct cuda_multiply call = {format, outputs, inputs, rows, NULL, NULL, NULL};
    char *weights, *in, *sums;
    CUDA_MUST(cudaMalloc(&weights, bytes * copies));
    CUDA_MUST(cudaMalloc(&in, (size_t)bucket * inputs * cuda_format_in_bytes(format)));
    CUDA_MUST(cudaMalloc(&sums, (size_t)bucket * outputs * cuda_format_out_bytes(format)));
    call.weights = weights, call.in = in, call.sums = sums;
    fill_format(weights, (size_t)outputs * inputs * copies, format, 1, true);
    fill_format(in, (size_t)bucket * inputs, format, 2, false);
    MUST_BE_OK(cuda_products_tune(products, &call, copies, bytes, stream, error));
    struct timed timed;
    timed.us = time_us([&](int i) {
        call.weights = weights + (size_t)(i % (int)copies) * bytes;
        MUST_BE_OK(cuda_multiply(products, &call, stream, error));
    });
    (void)cuda_products_chosen(products, &call, &timed.chosen);
    call.weights = weights;
    timed.share = anew ? share_of_best(anew, &call, copies, bytes, timed.chosen.which) : 1;
    CUDA_MUST(cudaFree(weights));
    CUDA_MUST(cudaFree(in));
    CUDA_MUST(cudaFree(sums));
    return timed;
}

double ceiling_product(enum product_kind kind) {
    static double values[3];
    const enum cuda_format formats[] = {CUDA_FORMAT_BF16, CUDA_FORMAT_E4M3, CUDA_FORMAT_INT8};
    if (values[kind] > 0 || !is_open()) return values[kind];
    double us = time_shape(formats[kind], 8192, 8192, 8192, NULL).us;
    values[kind] = 2.0 * 8192 * 8192 * 8192 / us / 1e6;
    (void)printf("# ceiling: product of %s, 8192 x 8192 x 8192, %.0f TFLOP/s\n",
                 format_names[formats[kind]], values[kind]);
    return values[kind];
}

void bench_products(void) {
    static const struct {
        const char *name;
        uint32_t outputs, inputs;
    } shapes[] = {{"qwen3-4b qkv", 6144, 2560},      {"qwen3-4b o", 2560, 4096},
                  {"qwen3-4b gate_up", 19456, 2560}, {"qwen3-4b down", 2560, 9728},
                  {"llama-8b gate_up", 28672, 4096}, {"llama-8b down", 4096, 14336},
                  {"llama-1b qkv", 3072, 2048}};
    static const struct {
        enum cuda_format format;
        enum product_kind kind;
    } formats[] = {{CUDA_FORMAT_BF16, PRODUCT_BF16},
                   {CUDA_FORMAT_E4M3, PRODUCT_E4M3},
                   {CUDA_FORMAT_INT8, PRODUCT_INT8}};
    if (!is_open()) return;
    struct cuda_products *anew;
    MUST_BE_OK(cuda_products_open(&anew, getenv("CUBLASLT"), WORKSPACE_BYTES, error));
    double worst = 1;
    int below = 0;
    for (const auto &format : formats)
        for (const auto &shape : shapes)
            for (uint32_t rows : {64u, 512u, 1024u, 2048u}) {
                struct timed timed =
                    time_shape(format.format, shape.outputs, shape.inputs, rows, anew);
                double flops = 2.0 * shape.outputs * shape.inputs * rows;
                bench_flops("products", timed.us, flops, ceiling_product(format.kind),
                            "%s %s %u: %u of %u, first %.2f, %.1f %% of the best",
                            format_names[format.format], shape.name, rows, timed.chosen.which + 1,
                            timed.chosen.found,
                            timed.chosen.us[0] / timed.chosen.us[timed.chosen.which],
                            100 * timed.share);
                worst = std::min(worst, timed.share);
                below += timed.share < 0.95;
            }
    cuda_products_close(anew);
    note("products: the chosen algorithm has at least %.1f %% of the best one's speed when all are "
         "timed anew; %d shapes below 95 %%",
         100 * worst, below);
}
