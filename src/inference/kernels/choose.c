/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/tables.h"
#include "kernels/ref/ref.h"

#include <assert.h>
#include <string.h>

/* F16C came with the first FMA CPUs of either maker. */
static bool cpu_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool cpu_has_avx512(void) {
    return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

static bool cpu_has_avx512_bf16(void) {
    return cpu_has_avx512() && __builtin_cpu_supports("avx512bf16");
}

static bool any_cpu(void) {
    return true;
}

static const struct {
    const struct kernels *kernels;
    bool (*is_supported)(void);
} tables[] = {
    {&ref_kernels, any_cpu},
    {&avx2_kernels, cpu_has_avx2},
    {&avx512_kernels, cpu_has_avx512},
    {&avx512_bf16_kernels, cpu_has_avx512_bf16},
};

const struct kernels *kernels_at(size_t index) {
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (tables[i].is_supported() && index-- == 0) return tables[i].kernels;
    return NULL;
}

const struct kernels *kernels_choose(const char *name) {
    const struct kernels *best = NULL;
    for (size_t i = 0; kernels_at(i); i++) {
        best = kernels_at(i);
        if (name && strcmp(best->name, name) == 0) return best;
    }
    assert(best);
    return name ? NULL : best;
}
