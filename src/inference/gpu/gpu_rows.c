/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_rows.h"

#include "base/log.h"
#include "base/min_max.h"

#define TRIALS 2 /* trials for a number of rows; the faster counts */
/* Work before the trials: it takes an H100 to its limit of power. Steps of a small model do not, so
 * a few of them are enough. */
#define HEAT_NS 500000000u
#define HEAT_STEPS 64u

/* Rows per second; 0: unknown. */
static enum err speed_of(const struct gpu_table *table, struct gpu *gpu, uint32_t rows,
                         double *ret_speed, struct error *error) {
    uint64_t least_ns = UINT64_MAX, ns = 0;
    enum err err = OK;
    for (int i = 0; i < TRIALS && err == OK; i++) {
        err = table->trial(gpu, rows, &ns, error);
        least_ns = min_u64(least_ns, ns);
        if (ns == 0) break;
    }
    *ret_speed = least_ns > 0 ? 1e9 * rows / (double)least_ns : 0;
    if (err == OK) log_debug("event=device_trial rows=%u ms=%.3f", rows, 1e-6 * (double)least_ns);
    return err;
}

/* Computes steps of `rows` until the GPU is as slow as under load. */
static enum err heat(const struct gpu_table *table, struct gpu *gpu, uint32_t rows,
                     struct error *error) {
    uint64_t busy_ns = 0, ns = 1; /* 0: it has no clock */
    enum err err = OK;
    for (uint32_t i = 0; i < HEAT_STEPS && busy_ns < HEAT_NS && ns > 0 && err == OK; i++) {
        err = table->trial(gpu, rows, &ns, error);
        busy_ns += ns;
    }
    return err;
}

enum err gpu_rows_enough(const struct gpu_table *table, struct gpu *gpu, uint32_t most,
                         uint32_t *ret_rows, struct error *error) {
    double speeds[GPU_ROWS_TRIED_MAX], best = 0;
    uint32_t count = 0;
    *ret_rows = most;
    if (most <= GPU_ROWS_LEAST) return OK;
    enum err err = heat(table, gpu, most, error);
    /* The largest first: a GPU without a clock then computes no other. */
    if (err == OK) err = speed_of(table, gpu, most, &best, error);
    for (uint32_t rows = GPU_ROWS_LEAST;
         err == OK && best > 0 && rows < most && count < GPU_ROWS_TRIED_MAX; rows += GPU_ROWS_UNIT)
        err = speed_of(table, gpu, rows, &speeds[count++], error);
    if (err != OK) return err_prefix(error, "trying steps");
    for (uint32_t i = 0; i < count; i++)
        if (speeds[i] > best) best = speeds[i];
    for (uint32_t i = 0; i < count && *ret_rows == most; i++)
        if (speeds[i] >= GPU_ROWS_SHARE * best) *ret_rows = GPU_ROWS_LEAST + i * GPU_ROWS_UNIT;
    return OK;
}
