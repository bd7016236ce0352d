/* SPDX-License-Identifier: Apache-2.0 */

/* Operations on logits, with ties, masked entries and NaN. */

#include "harness.h"

#include "kernels/draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool sums_are_right(struct rng *rng, const struct kernels *kernels, size_t count) {
    float *x = make_random(rng, count);
    for (size_t i = 0; i + 1 < count; i += 3) x[i] = -INFINITY; /* masked */
    double total = 0;
    for (size_t i = 0; i < count; i++) total += exp((double)x[i]);
    bool is_ok = fabs((double)kernels->log_sum_exp(x, count) - log(total)) <= 2e-6;
    free(x);
    return is_ok;
}

/* Weights are near the exponentials, and the same numbers whatever the instructions. */
static bool weights_are_right(struct rng *rng, const struct kernels *kernels, size_t count) {
    static const float temperatures[] = {1e-9f, 0.01f, 0.7f, 1, 3, 100};
    float *x = make_random(rng, count);
    uint32_t *weights = make_bytes(count * sizeof *weights);
    bool is_ok = true;
    for (size_t i = 0; i + 1 < count; i += 3) x[i] = -INFINITY; /* masked */
    for (size_t i = 0; i < COUNT_OF(temperatures); i++) {
        struct weighing how = {.max = x[count - 1], .factor = draw_factor(temperatures[i])};
        for (size_t k = 0; k < count; k++) how.max = x[k] > how.max ? x[k] : how.max;
        how.least = draw_least(how.max, i % 2 ? -INFINITY : -0.5f);
        uint64_t total = kernels->weigh(x, count, &how, weights), sum = 0;
        for (size_t k = 0; k < count; k++) {
            bool is_in = x[k] >= how.least;
            double expected = exp((double)(x[k] - how.max) * (double)how.factor) * 0x1p31;
            is_ok = is_ok && weights[k] == (is_in ? draw_weight(x[k], how.max, how.factor) : 0);
            is_ok =
                is_ok && (!is_in || fabs((double)weights[k] - expected) <= 2e-6 * expected + 0.75);
            sum += weights[k];
        }
        is_ok = is_ok && sum == total;
    }
    free(x);
    free(weights);
    return is_ok;
}

/* By sorting: the slow way. */
static bool is_top(const float *x, size_t count, const struct scored *top, size_t top_count) {
    for (size_t i = 0; i < top_count; i++) {
        float value = isnan(x[top[i].index]) ? -INFINITY : x[top[i].index];
        if (top[i].value != value) return false;
        size_t ahead = 0; /* how many stand before it */
        for (size_t j = 0; j < count; j++) {
            float other = isnan(x[j]) ? -INFINITY : x[j];
            if (other > value || (other == value && j < top[i].index)) ahead++;
        }
        if (ahead != i) return false;
    }
    return true;
}

static bool order_is_right(struct rng *rng, const struct kernels *kernels, size_t count) {
    static const size_t ks[] = {0, 1, 2, 5, 40, 1000};
    float *x = make_floats(count);
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)rng_below(rng, 50) - 60; /* many ties, all negative */
        if (rng_below(rng, 8) == 0) x[i] = -INFINITY;
        if (rng_below(rng, 8) == 0) x[i] = NAN;
    }
    bool is_ok = true;
    for (size_t i = 0; i < COUNT_OF(ks); i++) {
        struct scored *top = make_bytes(ks[i] * sizeof *top);
        size_t top_count = kernels->top_k(x, count, ks[i], top);
        is_ok = is_ok && top_count == (ks[i] < count ? ks[i] : count) &&
                is_top(x, count, top, top_count);
        if (top_count > 0 && top[0].value > -INFINITY)
            is_ok = is_ok && kernels->argmax(x, count) == top[0].index;
        free(top);
    }
    for (size_t i = 0; i < count; i++) x[i] = i % 2 ? NAN : -INFINITY;
    is_ok = is_ok && kernels->argmax(x, count) == 0;
    free(x);
    return is_ok;
}

void check_logits(const struct kernels *kernels) {
    static const size_t counts[] = {1, 2, 15, 16, 17, 64, 255, 1023, 1024, 1025, 5000};
    struct rng rng = {4};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        report(sums_are_right(&rng, kernels, counts[i]), "%s log_sum_exp %zu", kernels->name,
               counts[i]);
        report(weights_are_right(&rng, kernels, counts[i]), "%s weigh %zu", kernels->name,
               counts[i]);
        report(order_is_right(&rng, kernels, counts[i]), "%s argmax, top_k %zu", kernels->name,
               counts[i]);
    }
}
