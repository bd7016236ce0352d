/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_internal.h"

#include <math.h>
#include <string.h>

#define E4M3_MAX 448.0f
#define KV_SCALE_MIN 0x1p-14f /* below it float16 loses bits */
#define LANES 16u             /* partial sums, so that a compiler may use vectors */

size_t plain_form_bytes(enum gpu_form form) {
    return form == GPU_F32 ? 4 : gpu_form_is_bf16(form) ? 2 : 1;
}

uint8_t plain_e4m3_from(float value) {
    if (isnan(value)) return 0x7f;
    uint8_t sign = signbit(value) ? 0x80 : 0;
    float size = fminf(fabsf(value), E4M3_MAX);
    if (size < 0x1p-6f) return sign | (uint8_t)lrintf(size * 0x1p9f);
    int exponent;
    float part = frexpf(size, &exponent); /* 0.5 <= part < 1 */
    long eighths = lrintf(part * 16.0f);  /* 8..16; 16 carries into the exponent */
    return sign | (uint8_t)(((exponent + 6) << 3) + (int)eighths - 8);
}

float plain_e4m3_to(uint8_t code) {
    int exponent = code >> 3 & 15, part = code & 7;
    float size = exponent == 0 ? ldexpf((float)part, -9) : ldexpf((float)(8 + part), exponent - 10);
    if ((code & 0x7f) == 0x7f) size = NAN;
    return code & 0x80 ? -size : size;
}

void plain_round(enum gpu_form form, float *values, uint32_t count) {
    for (uint32_t i = 0; gpu_form_is_bf16(form) && i < count; i++)
        values[i] = bf16_to_f32(bf16_from_f32(values[i]));
}

/* Where a head's elements begin in the cache, and the number of its scale. */
static size_t kv_at(const struct gpu *gpu, struct plain_kv at) {
    const size_t slot = (size_t)at.place * plain_slots(gpu) + at.slot;
    return (slot * gpu_kv_planes(&gpu->program) + at.is_value) * gpu->kv_width +
           (size_t)at.head * at.dim;
}
static size_t scale_at(const struct gpu *gpu, struct plain_kv at) {
    const size_t slot = (size_t)at.place * plain_slots(gpu) + at.slot;
    return (slot * 2 + at.is_value) * gpu->kv_heads_most + at.head;
}

/* The least float16 that is at least `value`. */
static uint16_t half_above(float value) {
    uint16_t half = half_from_f32(value);
    return half_to_f32(half) < value ? (uint16_t)(half + 1) : half;
}

static void put_e4m3(struct gpu *gpu, struct plain_kv at, const float *values) {
    unsigned char *codes = gpu->kv + kv_at(gpu, at);
    float most = 0.0f;
    for (uint32_t i = 0; i < at.dim; i++) most = fmaxf(most, fabsf(values[i]));
    uint16_t scale = half_above(fmaxf(most / E4M3_MAX, KV_SCALE_MIN));
    for (uint32_t i = 0; i < at.dim; i++)
        codes[i] = plain_e4m3_from(values[i] / half_to_f32(scale));
    gpu->kv_scales[scale_at(gpu, at)] = scale;
}

void plain_kv_put(struct gpu *gpu, struct plain_kv at, const float *values) {
    if (gpu->limits.kv_form == GPU_E4M3) {
        put_e4m3(gpu, at, values);
    } else if (gpu->limits.kv_form == GPU_BF16) {
        uint16_t *to = (uint16_t *)gpu->kv + kv_at(gpu, at);
        for (uint32_t i = 0; i < at.dim; i++) to[i] = bf16_from_f32(values[i]);
    } else {
        memcpy((float *)gpu->kv + kv_at(gpu, at), values, at.dim * sizeof *values);
    }
}

const float *plain_kv_get(const struct gpu *gpu, struct plain_kv at,
                          float room[PLAIN_HEAD_DIM_MAX]) {
    const size_t first = kv_at(gpu, at);
    if (gpu->limits.kv_form == GPU_F32) return (const float *)gpu->kv + first;
    if (gpu->limits.kv_form == GPU_BF16) {
        const uint16_t *from = (const uint16_t *)gpu->kv + first;
        for (uint32_t i = 0; i < at.dim; i++) room[i] = bf16_to_f32(from[i]);
    } else {
        float scale = half_to_f32(gpu->kv_scales[scale_at(gpu, at)]);
        for (uint32_t i = 0; i < at.dim; i++) room[i] = plain_e4m3_to(gpu->kv[first + i]) * scale;
    }
    return room;
}

float plain_dot(const float *a, const float *b, uint32_t count) {
    float sums[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (uint32_t lane = 0; lane < LANES; lane++) sums[lane] += a[i + lane] * b[i + lane];
    for (uint32_t lane = 0; i + lane < count; lane++) sums[lane] += a[i + lane] * b[i + lane];
    for (uint32_t width = LANES / 2; width > 0; width /= 2)
        for (uint32_t lane = 0; lane < width; lane++) sums[lane] += sums[lane + width];
    return sums[0];
}
