/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer spellings of a float than this are refused. */
#define SPELLING_BYTES_MAX 400

size_t number_write_int(int64_t integer, char ret_text[NUMBER_TEXT_BYTES]) {
    return (size_t)snprintf(ret_text, NUMBER_TEXT_BYTES, "%lld", (long long)integer);
}

/* Writes the digits (no point) of the shortest spelling; returns the exponent of the first. */
static int shortest_digits(double real, char *ret_digits, size_t *ret_count) {
    char text[NUMBER_TEXT_BYTES];
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, real);
        if (strtod(text, NULL) == real) break;
    }
    char *exponent = strchr(text, 'e');
    size_t count = 1;
    ret_digits[0] = text[0];
    for (char *at = text + 1; at < exponent; at++)
        if (*at != '.') ret_digits[count++] = *at;
    while (count > 1 && ret_digits[count - 1] == '0') count--;
    *ret_count = count;
    return (int)strtol(exponent + 1, NULL, 10);
}

size_t number_write_float(double real, char ret_text[NUMBER_TEXT_BYTES]) {
    if (isnan(real)) return (size_t)snprintf(ret_text, NUMBER_TEXT_BYTES, "nan");
    const char *sign = signbit(real) ? "-" : "";
    if (isinf(real)) return (size_t)snprintf(ret_text, NUMBER_TEXT_BYTES, "%sinf", sign);
    if (real == 0) return (size_t)snprintf(ret_text, NUMBER_TEXT_BYTES, "%s0.0", sign);
    char digits[NUMBER_TEXT_BYTES];
    size_t count;
    int exponent = shortest_digits(fabs(real), digits, &count);
    int shown = (int)count;
    /* Python writes 1e16 and up, and below 1e-4, with an exponent. */
    if (exponent < -4 || exponent >= 16) {
        const char *point = count > 1 ? "." : "";
        return (size_t)snprintf(ret_text, NUMBER_TEXT_BYTES, "%s%c%s%.*se%c%02d", sign, digits[0],
                                point, shown - 1, digits + 1, exponent < 0 ? '-' : '+',
                                abs(exponent));
    }
    if (exponent < 0)
        return (size_t)snprintf(ret_text, NUMBER_TEXT_BYTES, "%s0.%.*s%.*s", sign, -exponent - 1,
                                "0000", shown, digits);
    if (shown <= exponent + 1)
        return (size_t)snprintf(ret_text, NUMBER_TEXT_BYTES, "%s%.*s%.*s.0", sign, shown, digits,
                                exponent + 1 - shown, "0000000000000000");
    return (size_t)snprintf(ret_text, NUMBER_TEXT_BYTES, "%s%.*s.%.*s", sign, exponent + 1, digits,
                            shown - exponent - 1, digits + exponent + 1);
}

static unsigned digit_of(char byte) {
    if (byte >= '0' && byte <= '9') return (unsigned)(byte - '0');
    if (byte >= 'a' && byte <= 'z') return (unsigned)(byte - 'a') + 10;
    if (byte >= 'A' && byte <= 'Z') return (unsigned)(byte - 'A') + 10;
    return 99;
}

/* Takes 0x, 0o or 0b off; returns the base, or 0 without a prefix. */
static unsigned base_prefix(struct str text) {
    if (text.bytes < 2 || text.at[0] != '0') return 0;
    switch (text.at[1] | 0x20) {
    case 'x': return 16;
    case 'o': return 8;
    case 'b': return 2;
    default: return 0;
    }
}

bool number_read_int(struct str text, unsigned base, int64_t *ret_integer) {
    text = str_trim(text);
    bool negative = text.bytes > 0 && text.at[0] == '-';
    if (text.bytes > 0 && (text.at[0] == '-' || text.at[0] == '+')) text = str_skip(text, 1);
    unsigned prefix = base_prefix(text);
    bool separated = false; /* a `_` may follow */
    if (prefix && (base == 0 || base == prefix)) {
        text = str_skip(text, 2);
        base = prefix;
        separated = true;
    }
    if (base == 0) base = 10;
    if (text.bytes == 0) return false;
    int64_t integer = 0;
    bool digit_last = false;
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.at[i] == '_' && (digit_last || (separated && i == 0))) {
            digit_last = false;
            continue;
        }
        unsigned digit = digit_of(text.at[i]);
        if (digit >= base) return false;
        if (__builtin_mul_overflow(integer, (int64_t)base, &integer)) return false;
        if (negative ? __builtin_sub_overflow(integer, (int64_t)digit, &integer)
                     : __builtin_add_overflow(integer, (int64_t)digit, &integer))
            return false;
        digit_last = true;
    }
    if (!digit_last) return false;
    *ret_integer = integer;
    return true;
}

static bool is_word(struct str text, const char *word) {
    return text.bytes == strlen(word) && strncasecmp(text.at, word, text.bytes) == 0;
}

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

bool number_read_float(struct str text, double *ret_real) {
    char spelling[SPELLING_BYTES_MAX + 1];
    text = str_trim(text);
    if (text.bytes == 0 || text.bytes > SPELLING_BYTES_MAX) return false;
    bool digits = false;
    size_t count = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        char byte = text.at[i];
        if (byte == '_') {
            if (i == 0 || i + 1 == text.bytes || !is_digit(text.at[i - 1]) ||
                !is_digit(text.at[i + 1]))
                return false;
            continue;
        }
        if (is_digit(byte)) digits = true;
        spelling[count++] = byte;
    }
    spelling[count] = '\0';
    struct str unsigned_text = {spelling, count};
    if (spelling[0] == '-' || spelling[0] == '+') unsigned_text = str_skip(unsigned_text, 1);
    if (!is_word(unsigned_text, "inf") && !is_word(unsigned_text, "infinity") &&
        !is_word(unsigned_text, "nan")) {
        /* strtod also takes hexadecimal, which Python does not. */
        if (!digits || strspn(spelling, "0123456789+-.eE") != count) return false;
    }
    char *end;
    double real = strtod(spelling, &end);
    if (end != spelling + count) return false;
    *ret_real = real;
    return true;
}

double number_round(double real, int64_t digits) {
    if (!isfinite(real) || digits > 320) return real;
    if (digits < -320) return 0.0 * real;
    if (digits < 0) {
        double power = pow(10.0, (double)-digits);
        return isfinite(power) ? nearbyint(real / power) * power : 0.0 * real;
    }
    /* printf rounds the exact value to even, as Python does. */
    char text[800];
    snprintf(text, sizeof text, "%.*f", (int)digits, real);
    return strtod(text, NULL);
}

bool number_truncate(double real, int64_t *ret_integer) {
    if (!(real > -9223372036854775808.0 && real < 9223372036854775808.0)) return false;
    *ret_integer = (int64_t)real;
    return true;
}
