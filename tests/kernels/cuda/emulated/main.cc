/* SPDX-License-Identifier: Apache-2.0 */

/* The checks of attention on a machine without a card: emulated [--one-in N] [--seed N]
 * [--major N]. TAP. With major 9 tiles are those with products of warpgroups, else those of other
 * cards. */

#include "../harness.h"

#include <ctime>

void harness_open(uint64_t seed);
void check_attention(void);

int main(int count, char **words) {
    uint64_t seed = (uint64_t)time(NULL);
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--seed") == 0) seed = strtoull(words[i + 1], 0, 0);
        if (strcmp(words[i], "--one-in") == 0) check_one_in = strtoull(words[i + 1], 0, 0);
        if (strcmp(words[i], "--major") == 0) emulated_major = atoi(words[i + 1]);
    }
    harness_open(seed);
    check_attention();
    return report_end();
}
