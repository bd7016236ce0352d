/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device_rows.h"

#include "base/least.h"
#include "base/log.h"

#define TRIALS 2 /* of a number of rows; the faster counts */

/* Rows per second; 0: unknown. */
static enum err speed_of(const struct device_table *table, struct device *device, uint32_t rows,
                         double *ret_speed, struct error *error) {
    uint64_t least_ns = UINT64_MAX, ns = 0;
    enum err err = OK;
    for (int i = 0; i < TRIALS && err == OK; i++) {
        err = table->trial(device, rows, &ns, error);
        least_ns = least_u64(least_ns, ns);
        if (ns == 0) break;
    }
    *ret_speed = least_ns > 0 ? 1e9 * rows / (double)least_ns : 0;
    if (err == OK) log_debug("event=device_trial rows=%u ms=%.3f", rows, 1e-6 * (double)least_ns);
    return err;
}

enum err device_rows_enough(const struct device_table *table, struct device *device, uint32_t most,
                            uint32_t *ret_rows, struct error *error) {
    double speeds[DEVICE_ROWS_TRIED_MAX], best = 0;
    uint32_t count = 0;
    enum err err = OK;
    *ret_rows = most;
    if (most <= DEVICE_ROWS_LEAST) return OK;
    /* The largest first: a device without a clock then computes no other. */
    err = speed_of(table, device, most, &best, error);
    for (uint32_t rows = DEVICE_ROWS_LEAST;
         err == OK && best > 0 && rows < most && count < DEVICE_ROWS_TRIED_MAX;
         rows += DEVICE_ROWS_UNIT)
        err = speed_of(table, device, rows, &speeds[count++], error);
    if (err != OK) return err_prefix(error, "trying steps");
    for (uint32_t i = 0; i < count; i++)
        if (speeds[i] > best) best = speeds[i];
    for (uint32_t i = 0; i < count && *ret_rows == most; i++)
        if (speeds[i] >= DEVICE_ROWS_SHARE * best)
            *ret_rows = DEVICE_ROWS_LEAST + i * DEVICE_ROWS_UNIT;
    return OK;
}
