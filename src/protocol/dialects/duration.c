/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/duration.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_MS_MAX 1e15 /* longer is for ever */

bool duration_read(const char *text, double *ret_seconds) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3},
                 {"s", 1},     {"m", 60},    {"h", 3600}};
    const size_t unit_count = sizeof units / sizeof *units;
    bool is_negative = *text == '-';
    double sum = 0;
    if (*text == '-' || *text == '+') text++;
    if (strcmp(text, "0") == 0) text = "0s";
    if (!*text) return false;
    while (*text) {
        char *end;
        size_t unit = 0;
        if ((*text < '0' || *text > '9') && *text != '.') return false;
        double number = strtod(text, &end);
        size_t letters = strcspn(end, "0123456789.+-");
        while (unit < unit_count &&
               (strlen(units[unit].name) != letters || memcmp(units[unit].name, end, letters) != 0))
            unit++;
        if (end == text || unit == unit_count) return false;
        sum += number * units[unit].seconds;
        text = end + letters;
    }
    *ret_seconds = is_negative ? -sum : sum;
    return true;
}

int64_t duration_keep_of(double seconds) {
    if (seconds < 0 || seconds * 1e3 > KEEP_MS_MAX) return KEEP_FOREVER;
    return seconds * 1e3 < 1 ? KEEP_NOT : (int64_t)(seconds * 1e3);
}

bool duration_read_keep(const char *text, int64_t *ret_keep_ms) {
    double seconds;
    char *end;
    if (!duration_read(text, &seconds)) {
        seconds = strtod(text, &end);
        if (!*text || *end || !isfinite(seconds)) return false;
    }
    *ret_keep_ms = duration_keep_of(seconds);
    return true;
}
