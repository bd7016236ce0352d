/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/estimate.h"

#include <math.h>

#define FIRST_BIN 64u
#define ROOM_TOKENS 500u
#define ROUND_TOKENS 128u

/* Two-sided 95 % points of Student's distribution for 1 to 30 degrees of freedom, from any printed
 * table. */
static const double t_points[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                  2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                  2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                  2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
#define T_LIMIT 1.960

uint32_t estimate_quantile(const uint32_t *sorted, size_t count, double share) {
    if (count == 0) return 0;
    double rank = ceil(share * (double)count);
    size_t at = rank < 1 ? 0 : (size_t)rank - 1;
    return sorted[at < count ? at : count - 1];
}

double estimate_t(size_t freedom) {
    return freedom <= sizeof t_points / sizeof *t_points ? t_points[freedom - 1] : T_LIMIT;
}

struct interval estimate_widened(struct interval interval, double down, double up) {
    if (!interval.is_known || interval.mean <= 0) return interval;
    double high = hypot(log(interval.high / interval.mean), log(up));
    if (interval.low > 0) {
        double low = hypot(log(interval.low / interval.mean), log(down));
        interval.low = interval.mean * exp(-low);
    }
    interval.high = interval.mean * exp(high);
    return interval;
}

struct interval estimate_scaled(struct interval interval, double factor) {
    return (struct interval){interval.low * factor, interval.mean * factor, interval.high * factor,
                             interval.is_known};
}

uint32_t estimate_bin_start(size_t bin) {
    return bin == 0 ? 0 : FIRST_BIN << (bin - 1);
}

void estimate_histogram(const uint32_t *lengths, size_t count, uint64_t ret_bins[ESTIMATE_BINS]) {
    for (size_t i = 0; i < ESTIMATE_BINS; i++) ret_bins[i] = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bin = 0;
        while (bin + 1 < ESTIMATE_BINS && lengths[i] >= estimate_bin_start(bin + 1)) bin++;
        ret_bins[bin]++;
    }
}

uint32_t estimate_roomy(uint32_t length) {
    uint64_t wanted = (uint64_t)length + ROOM_TOKENS + ROUND_TOKENS - 1;
    uint64_t rounded = wanted / ROUND_TOKENS * ROUND_TOKENS;
    return rounded > UINT32_MAX ? UINT32_MAX : (uint32_t)rounded;
}
