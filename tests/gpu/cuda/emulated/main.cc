/* SPDX-License-Identifier: Apache-2.0 */

/* The checks of kernels on a machine without a GPU: emulated FAMILY [--one-in N] [--seed N]
 * [--major N]. TAP. FAMILY is attention, sample, scaled, grouped, experts, recurrent, reduce,
 * unfolded, or rows:
 * norm, gate, heads, latent, side, embed, pages, quantise, texts and unpack; norm, heads, latent,
 * side, embed and texts are families of their own as well. With major 9 tiles are those with products of warpgroups
 * and norms have their ring, else those of other GPUs. */

#include "../harness.h"

#include <ctime>

void harness_open(uint64_t seed);
void check_attention(void);

static void check_rows(void) {
    for (auto check : {check_norm, check_gate, check_heads, check_latent, check_side, check_embed,
                       check_pages, check_quantise, check_texts, check_unpack})
        check();
}

static const struct {
    const char *name;
    void (*check)(void);
} families[] = {
    {"attention", check_attention}, {"rows", check_rows},       {"sample", check_sample},
    {"scaled", check_scaled},       {"norm", check_norm},       {"heads", check_heads},
    {"embed", check_embed},         {"texts", check_texts},     {"experts", check_experts},
    {"recurrent", check_recurrent}, {"grouped", check_grouped}, {"side", check_side},
    {"latent", check_latent},       {"reduce", check_reduce},
    {"unfolded", check_unfolded}};

int main(int count, char **words) {
    uint64_t seed = (uint64_t)time(NULL);
    for (int i = 2; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--seed") == 0) seed = strtoull(words[i + 1], 0, 0);
        if (strcmp(words[i], "--one-in") == 0) check_one_in = strtoull(words[i + 1], 0, 0);
        if (strcmp(words[i], "--major") == 0) emulated_major = atoi(words[i + 1]);
    }
    check_one_in = (uint64_t)((double)check_one_in / report_share(&seed));
    harness_open(seed);
    for (const auto &family : families)
        if (count > 1 && strcmp(words[1], family.name) == 0) family.check();
    return report_end();
}
