/* SPDX-License-Identifier: Apache-2.0 */

/* The checks of attention on a machine without a card: emulated [--one-in N] [--seed N]. TAP. */

#include "../harness.h"

#include <ctime>

#include "kernels/cuda/attention_of.cuh"

/* No products of warpgroups here. */
bool cuda_has_groups(void) {
    return false;
}
enum err cuda_tiles_grouped(const struct cuda_attention *, const struct cuda_tile_items *,
                            cuda_stream, struct error *) {
    abort();
}

void harness_open(uint64_t seed);
void check_attention(void);

int main(int count, char **words) {
    uint64_t seed = (uint64_t)time(NULL);
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--seed") == 0) seed = strtoull(words[i + 1], 0, 0);
        if (strcmp(words[i], "--one-in") == 0) check_one_in = strtoull(words[i + 1], 0, 0);
    }
    harness_open(seed);
    check_attention();
    return report_end();
}
