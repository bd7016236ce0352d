/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/estimate.h"

#include <math.h>

#define USUAL_SHARE 0.95
#define SQUEEZE 4u /* times the spread of the usual lengths, from where the longest are outliers */
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

size_t estimate_histogram(const uint32_t *sorted, size_t count,
                          struct estimate_bin ret_bins[ESTIMATE_BINS]) {
    if (count == 0) return 0;
    uint32_t least = sorted[0], most = sorted[count - 1];
    uint32_t usual = estimate_quantile(sorted, count, USUAL_SHARE) - least;
    if (usual > 0 && (most - least) / SQUEEZE > usual) most = least + 2 * usual;
    uint32_t width = (most - least) / ESTIMATE_BINS + 1;
    size_t bins = (most - least) / width + 1;
    for (size_t i = 0; i < bins; i++)
        ret_bins[i] = (struct estimate_bin){.from = least + (uint32_t)i * width};
    for (size_t i = 0; i < count; i++) {
        size_t bin = (sorted[i] - least) / width;
        ret_bins[bin < bins ? bin : bins - 1].count++;
    }
    return bins;
}

uint32_t estimate_roomy(uint32_t length) {
    uint64_t wanted = (uint64_t)length + ROOM_TOKENS + ROUND_TOKENS - 1;
    uint64_t rounded = wanted / ROUND_TOKENS * ROUND_TOKENS;
    return rounded > UINT32_MAX ? UINT32_MAX : (uint32_t)rounded;
}
