/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* draw: which token a row of logits gives at a temperature, defined so that a loop over ids and
 * a thousand threads give the same one from the same bits.
 *
 * 1. A logit that is NaN counts as -inf, one above FLT_MAX as FLT_MAX. -inf is never taken.
 * 2. A token's weight is e^(-(max - logit) / temperature) as a whole number of parts of 2^-31, the
 *    nearest (draw_weight). It is made with IEEE operations of one rounding each and no others, so
 *    every processor gives the same number; and whole numbers add up to the same sum in any order.
 *    It is within 2e-6 of the exponential or 0.75 parts, and 0 below 3.4e-10 of the most likely
 *    token's.
 * 3. Tokens stand in order of likelihood: the higher logit first, the lower id among equals. min_p
 *    leaves the tokens whose logit is at least max + temperature · ln(min_p) (draw_least); top_k
 *    the first k of those; top_p the shortest beginning of what is left then that weighs at least
 *    top_p of all of it (draw_enough), and never less than one token. So what is kept are all
 *    tokens above a least logit, and of those that equal it so many of the lowest ids.
 * 4. The draw walks the kept tokens in order of their ids: the first at which the weights so far
 *    exceed u · total (draw_wanted), where u = rng_unit_at(seed, counter) has 53 bits.
 *
 * Compiles as C17 and as CUDA C++; the same functions run on either side.
 *
 * Thread: any; pure.
 * Memory: none. */

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define DRAW_FN __host__ __device__ static inline
#else
#define DRAW_FN static inline
#endif

#define DRAW_NEAR 21.8f  /* 0.73 parts; what is further from the most likely weighs nothing */
#define DRAW_ONE_BITS 31 /* the most likely token weighs 2^31 parts */

DRAW_FN float draw_clean(float logit) {
    if (logit <= FLT_MAX) return logit;
    return logit > FLT_MAX ? FLT_MAX : -INFINITY;
}

/* NaN or above FLT_MAX: a number that no sound model gives. */
DRAW_FN bool draw_is_broken(float logit) {
    return !(logit <= FLT_MAX);
}

/* The order of cleaned logits as that of whole numbers; -0 equals 0. */
DRAW_FN uint32_t draw_key(float logit) {
    uint32_t bits;
    float value = logit + 0.0f;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

#define DRAW_KEY_NONE 0x007fffffu /* key of -inf: below that of every token that may be taken */

/* 1 / temperature as draw_weight wants it. */
DRAW_FN float draw_factor(float temperature) {
    return 1.0f / (temperature > 1e-6f ? temperature : 1e-6f);
}

/* One rounding, and no fusing with what comes next. */
DRAW_FN float draw_times(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

/* 1 + 2^-f / 2 for -1/2 <= f <= 1/2: a polynomial, off by 2e-7 of 2^-f, and 1.5 at 0. */
DRAW_FN float draw_power(float f) {
    float p = -0.5f * 1.321867225e-03f;
    p = fmaf(p, f, 0.5f * 9.671698324e-03f);
    p = fmaf(p, f, -0.5f * 5.550893024e-02f);
    p = fmaf(p, f, 0.5f * 2.402223796e-01f);
    p = fmaf(p, f, -0.5f * 6.931468844e-01f);
    return fmaf(p, f, 1.5f);
}

/* The weight of a token that is x = (max - logit) / temperature from the most likely one,
 * 0 <= x < DRAW_NEAR. Nothing here converts between floats and whole numbers, which runs at an
 * eighth of the rate, and nothing branches: bits of sums with a constant do. */
DRAW_FN uint32_t draw_weight_at(float x) {
    const float to_whole = 12582912.0f; /* 1.5 · 2^23: adding it rounds to a whole number */
    float shifted = fmaf(x, 1.44269504f, to_whole);
    float power = draw_power(fmaf(x, 1.44269504f, to_whole - shifted));
    uint32_t whole, bits;
    memcpy(&whole, &shifted, sizeof whole);
    memcpy(&bits, &power, sizeof bits);
    whole &= 31u;
    /* 2^31 · 2^-f · 2^-whole, to the nearest. */
    return ((bits << 9) + (1u << whole >> 1)) >> whole;
}

/* `logit` is cleaned and at most `max`. */
DRAW_FN uint32_t draw_weight(float logit, float max, float factor) {
    float x = draw_times(max - logit, factor);
    uint32_t weight = draw_weight_at(x < DRAW_NEAR ? x : DRAW_NEAR);
    return x < DRAW_NEAR ? weight : 0;
}

/* What a logit must at least be for min_p; made once, by the host: offset = T · ln(min_p). */
DRAW_FN float draw_offset(float temperature, float min_p) {
    return min_p > 0.0f ? temperature * logf(min_p) : -INFINITY;
}

DRAW_FN float draw_least(float max, float offset) {
    float least = max + offset;
    return least > -FLT_MAX ? least : -FLT_MAX;
}

/* The weight that top_p asks for, of `total` > 0: 1 to total. */
DRAW_FN uint64_t draw_enough(float top_p, uint64_t total) {
    double enough = ceil((double)top_p * (double)total);
    if (!(enough >= 1.0)) return 1;
    return enough < (double)total ? (uint64_t)enough : total;
}

/* u · total, rounded down; `bits` is rng_at(seed, counter). */
DRAW_FN uint64_t draw_wanted(uint64_t bits, uint64_t total) {
    bits &= ~(uint64_t)0x7ff;
#ifdef __CUDA_ARCH__
    return __umul64hi(bits, total);
#else
    return (uint64_t)((__uint128_t)bits * total >> 64);
#endif
}

/* What is done to a logit between the model and the draw, in this order for one token. */
enum draw_edit_kind {
    DRAW_FORBID,   /* becomes -inf: a bad word */
    DRAW_BIAS,     /* += value */
    DRAW_HOLD,     /* becomes -inf unless that leaves no token at all: min_tokens */
    DRAW_REPEAT,   /* /= value when above 0, else *= value */
    DRAW_SUBTRACT, /* -= value: draw_subtrahend, computed by the host */
};

struct draw_edit {
    uint32_t row;
    int32_t token;
    enum draw_edit_kind kind;
    float value;
};

/* The value of DRAW_SUBTRACT for a token that was generated `count` times, at least once. */
DRAW_FN float draw_subtrahend(float presence, float frequency, uint32_t count) {
    return presence + draw_times(frequency, (float)count);
}

/* One edit but DRAW_HOLD; one operation each. */
DRAW_FN float draw_edited(float logit, enum draw_edit_kind kind, float value) {
    switch (kind) {
    case DRAW_FORBID: return -INFINITY;
    case DRAW_BIAS: return logit + value;
    case DRAW_REPEAT: return logit > 0.0f ? logit / value : draw_times(logit, value);
    case DRAW_SUBTRACT: return logit - value;
    default: return logit;
    }
}
