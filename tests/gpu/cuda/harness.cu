/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#define GUARD_BYTES 256
#define GUARD 0xa5

uint64_t run_seed;
uint64_t check_one_in = 1;
cudaStream_t stream;
cudaDeviceProp card;

struct piece {
    unsigned char *at; /* address of the guard before it */
    size_t bytes;      /* without the guards */
};
static std::vector<piece> pieces;

void cuda_must(cudaError_t error, const char *file, int line, const char *what) {
    if (error == cudaSuccess) return;
    (void)printf("Bail out! %s:%d %s: %s\n", file, line, what, cudaGetErrorString(error));
    exit(1);
}

void be_ok(enum err code, const struct error *error, const char *file, int line, const char *what) {
    if (code == OK) return;
    (void)printf("Bail out! %s:%d %s: %s: %s\n", file, line, what, err_name(code), error->text);
    exit(1);
}

void harness_open(uint64_t seed) {
    run_seed = seed;
    CUDA_MUST(cudaSetDevice(0));
    CUDA_MUST(cudaGetDeviceProperties(&card, 0));
    CUDA_MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    (void)printf("# %s, sm_%d%d, %d multiprocessors, L2 %d MiB, seed %llu\n", card.name, card.major,
                 card.minor, card.multiProcessorCount, card.l2CacheSize >> 20,
                 (unsigned long long)seed);
}

/* ---- random numbers ---- */

struct rng random_of(const char *family) {
    struct rng rng = {run_seed};
    for (const char *at = family; *at; at++) rng.state = rng_next(&rng) ^ (unsigned char)*at;
    return rng;
}

float random_normal(struct rng *rng) {
    double size = sqrt(-2.0 * log(1.0 - rng_unit(rng)));
    return (float)(size * cos(6.283185307179586 * rng_unit(rng)));
}

std::vector<float> random_floats(struct rng *rng, size_t count, float deviation) {
    std::vector<float> values(count);
    for (float &value : values) value = random_normal(rng) * deviation;
    return values;
}

std::vector<uint16_t> random_bf16(struct rng *rng, size_t count, float deviation) {
    std::vector<uint16_t> values(count);
    for (uint16_t &value : values) value = bf16_from_f32(random_normal(rng) * deviation);
    return values;
}

/* ---- the GPU ---- */

void *gpu_take_bytes(size_t bytes) {
    piece piece = {NULL, bytes};
    CUDA_MUST(cudaMalloc(&piece.at, bytes + 2 * GUARD_BYTES));
    CUDA_MUST(cudaMemset(piece.at, GUARD, GUARD_BYTES));
    if (bytes > 0) CUDA_MUST(cudaMemset(piece.at + GUARD_BYTES, 0xff, bytes));
    CUDA_MUST(cudaMemset(piece.at + GUARD_BYTES + bytes, GUARD, GUARD_BYTES));
    CUDA_MUST(cudaDeviceSynchronize()); /* `stream` does not wait for the default one */
    pieces.push_back(piece);
    return piece.at + GUARD_BYTES;
}

void gpu_settle(void) {
    CUDA_MUST(cudaGetLastError());
    CUDA_MUST(cudaStreamSynchronize(stream));
}

static bool is_guard_whole(const unsigned char *at) {
    unsigned char guard[GUARD_BYTES];
    CUDA_MUST(cudaMemcpy(guard, at, GUARD_BYTES, cudaMemcpyDeviceToHost));
    for (unsigned char byte : guard)
        if (byte != GUARD) return false;
    return true;
}

void gpu_release(void) {
    gpu_settle();
    for (const piece &piece : pieces) {
        if (!is_guard_whole(piece.at)) report(false, "nothing writes before %zu B", piece.bytes);
        if (!is_guard_whole(piece.at + GUARD_BYTES + piece.bytes))
            report(false, "nothing writes behind %zu B", piece.bytes);
        CUDA_MUST(cudaFree(piece.at));
    }
    pieces.clear();
}

/* ---- comparing ---- */

struct difference differ(const float *got, const float *want, size_t count) {
    struct difference result = {0, 0, 0, 0};
    double off = 0, all = 0;
    bool has_nan = false;
    for (size_t i = 0; i < count; i++) {
        bool are_same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
        if (are_same && !std::isfinite(want[i])) continue; /* the same infinity, or both NaN */
        if (!are_same) result.wrong_bits++;
        double apart = fabs((double)got[i] - (double)want[i]);
        if (!(apart < INFINITY)) has_nan = true;
        if (!(apart <= result.worst)) result.worst = apart, result.worst_at = i;
        off += apart * apart;
        all += (double)want[i] * want[i];
    }
    result.relative = has_nan ? INFINITY : off == 0 ? 0 : sqrt(off / all);
    return result;
}

std::vector<float> floats_of_bf16(const std::vector<uint16_t> &values) {
    std::vector<float> floats(values.size());
    for (size_t i = 0; i < values.size(); i++) floats[i] = bf16_to_f32(values[i]);
    return floats;
}

float e4m3_to_f32(uint8_t value) {
    int exponent = value >> 3 & 15, mantissa = value & 7;
    if ((value & 0x7f) == 0x7f) return NAN;
    float size = exponent ? ldexpf(1.0f + (float)mantissa / 8, exponent - 7)
                          : ldexpf((float)mantissa / 8, -6);
    return value & 0x80 ? -size : size;
}

uint8_t e4m3_from_f32(float value) {
    uint8_t sign = std::signbit(value) ? 0x80 : 0;
    float size = fabsf(value);
    if (std::isnan(value)) return 0x7f;
    if (size >= 448) return sign | 0x7e;
    int exponent;
    (void)frexpf(size, &exponent);               /* size = f · 2^exponent, f in [0.5, 1) */
    int step = std::max(exponent - 1, -6) - 3;   /* exponent of the last mantissa bit */
    long steps = lrintf(ldexpf(size, -step));    /* nearest even */
    if (steps < 8) return sign | (uint8_t)steps; /* zero and subnormal */
    if (steps == 16) steps = 8, step++;
    return sign | (uint8_t)((step + 3 + 7) << 3 | (steps & 7));
}

std::vector<float> floats_of_e4m3(const std::vector<uint8_t> &values) {
    std::vector<float> floats(values.size());
    for (size_t i = 0; i < values.size(); i++) floats[i] = e4m3_to_f32(values[i]);
    return floats;
}
