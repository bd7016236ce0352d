/* SPDX-License-Identifier: Apache-2.0 */

/* The checks of attention on a machine without a card: emulated [--seed N]. TAP. */

#include "../harness.h"

#include <ctime>

int report_end(void);
void harness_open(uint64_t seed);
void check_attention(void);

int main(int count, char **words) {
    uint64_t seed = count == 3 ? strtoull(words[2], 0, 0) : (uint64_t)time(NULL);
    harness_open(seed);
    check_attention();
    return report_end();
}
