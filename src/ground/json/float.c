/* SPDX-License-Identifier: Apache-2.0 */
#include "json/json.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 9 /* digits that distinguish any two floats */

/* A double carries these exactly, and every whole number of DIGITS_MAX digits: their quotient is
 * rounded only once. */
static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6, 1e7,
                                1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};

/* True if digits · 10^-places, read as a float, is `value`. */
static bool reads_back(double digits, int places, float value) {
    double quotient = digits / powers[places];
    uint64_t bits;
    memcpy(&bits, &quotient, sizeof bits);
    /* In the middle between two floats the rounding to double may have decided; with one digit more
     * the number is not there. */
    if ((bits & 0x1FFFFFFF) == 0x10000000) return false;
    return (float)quotient == value;
}

/* The fewest decimal places, at most `places`, with which the nearest number reads back. */
static int find_places(float value, int places, double *ret_digits) {
    *ret_digits = rint((double)value * powers[places]);
    assert(reads_back(*ret_digits, places, value));
    while (places > 1) {
        double fewer = rint((double)value * powers[places - 1]);
        if (!reads_back(fewer, places - 1, value)) break;
        *ret_digits = fewer;
        places--;
    }
    return places;
}

static void write_digits(struct buf *buf, uint32_t digits, int places) {
    char text[32];
    char *at = text + sizeof text;
    for (int i = 0; i < places; i++, digits /= 10) *--at = (char)('0' + digits % 10);
    *--at = '.';
    do {
        *--at = (char)('0' + digits % 10);
        digits /= 10;
    } while (digits > 0);
    buf_add(buf, at, (size_t)(text + sizeof text - at));
}

/* Writes any float, by trying numbers of digits. */
static void write_slowly(struct buf *buf, float value) {
    char text[32];
    for (int digits = 0; digits < DIGITS_MAX; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    buf_add_text(buf, text);
}

void json_write_float(struct buf *buf, float value) {
    float size = fabsf(value);
    double digits;
    assert(isfinite(value));
    if (signbit(value)) buf_add_byte(buf, '-');
    if (size == 0) {
        buf_add_text(buf, "0.0");
    } else if (size >= 1e-5F && size < 1e6F) {
        int before = -4; /* digits before the point; negative: minus the zeros after it */
        while (before < 7 && (before > 0 ? powers[before] : 1 / powers[-before]) <= (double)size)
            before++;
        int places = find_places(size, DIGITS_MAX - before, &digits);
        write_digits(buf, (uint32_t)digits, places);
    } else {
        write_slowly(buf, size);
    }
}
