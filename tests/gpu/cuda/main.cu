/* SPDX-License-Identifier: Apache-2.0 */

/* Checks and times the CUDA kernels on the first GPU.
 *
 *   cuda-kernels --check [FAMILY] [--seed N]   TAP; each kernel against a plain C reference
 *   cuda-kernels --bench [FAMILY]              one line a kernel and shape, share of its ceiling
 *
 * Without a GPU: "1..0 # SKIP no CUDA GPU: …" and exit status 0. */

#include "harness.h"

#include <ctime>

/* Everything it knows of; the order is that of the output. */
static const struct {
    const char *name;
    void (*check)(void);
    void (*bench)(void);
} families[] = {
    {"norm", check_norm, bench_norm},
    {"gate", check_gate, bench_gate},
    {"scaled", check_scaled, bench_scaled},
    {"grouped", check_grouped, bench_grouped},
    {"experts", check_experts, bench_experts},
    {"heads", check_heads, bench_heads},
    {"latent", check_latent, bench_latent},
    {"unfolded", check_unfolded, bench_unfolded},
    {"side", check_side, bench_side},
    {"embed", check_embed, bench_embed},
    {"pages", check_pages, bench_pages},
    {"reduce", check_reduce, bench_reduce},
    {"quantise", check_quantise, bench_quantise},
    {"products", check_products, bench_products},
    {"sample", check_sample, bench_sample},
    {"unpack", check_unpack, bench_unpack},
    {"texts", check_texts, bench_texts},
    {"recurrent", check_recurrent, bench_recurrent},
    {"attention", check_attention, bench_attention},
};

void harness_open(uint64_t seed);

static int usage(void) {
    (void)fprintf(stderr, "usage: cuda-kernels --check|--bench [FAMILY] [--seed N]\nfamilies:");
    for (const auto &family : families) (void)fprintf(stderr, " %s", family.name);
    (void)fprintf(stderr, "\n");
    return 2;
}

static bool is_wanted(const char *name, const char *only) {
    return !only || strcmp(name, only) == 0;
}

int main(int count, char **words) {
    bool is_check = false, is_bench = false;
    const char *only = NULL;
    uint64_t seed = (uint64_t)time(NULL);
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--check") == 0)
            is_check = true;
        else if (strcmp(words[i], "--bench") == 0)
            is_bench = true;
        else if (strcmp(words[i], "--seed") == 0 && i + 1 < count)
            seed = strtoull(words[++i], 0, 0);
        else if (words[i][0] != '-' && !only)
            only = words[i];
        else
            return usage();
    }
    if (is_check == is_bench) return usage();
    int cards = 0;
    cudaError_t error = cudaGetDeviceCount(&cards);
    if (error != cudaSuccess || cards == 0) {
        (void)printf("1..0 # SKIP no CUDA device: %s\n", cudaGetErrorString(error));
        return 0;
    }
    harness_open(seed);
    for (const auto &family : families) {
        if (!is_wanted(family.name, only)) continue;
        if (is_check)
            family.check();
        else
            family.bench();
        gpu_release();
    }
    return is_check ? report_end() : 0;
}
