/* SPDX-License-Identifier: Apache-2.0 */

/* The checks of kernels on a machine without a card: emulated FAMILY [--one-in N] [--seed N]
 * [--major N]. TAP. FAMILY is attention, or rows: norm, gate, quantise and unpack. With major 9
 * tiles are those with products of warpgroups and norms have their ring, else those of other
 * cards. */

#include "../harness.h"

#include <ctime>

void harness_open(uint64_t seed);
void check_attention(void);

int main(int count, char **words) {
    uint64_t seed = (uint64_t)time(NULL);
    const bool is_rows = count > 1 && strcmp(words[1], "rows") == 0;
    for (int i = 2; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--seed") == 0) seed = strtoull(words[i + 1], 0, 0);
        if (strcmp(words[i], "--one-in") == 0) check_one_in = strtoull(words[i + 1], 0, 0);
        if (strcmp(words[i], "--major") == 0) emulated_major = atoi(words[i + 1]);
    }
    harness_open(seed);
    if (!is_rows) check_attention();
    for (auto check : {check_norm, check_gate, check_quantise, check_unpack})
        if (is_rows) check();
    return report_end();
}
