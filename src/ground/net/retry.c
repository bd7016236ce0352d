/* SPDX-License-Identifier: Apache-2.0 */
#include "net/retry.h"

#include <curl/curl.h>
#include <string.h>

#define WAIT_MS_MAX INT64_C(1000000000000) /* 31 years: what is longer is no wait */
#define UNIX_S_MIN 1e9                     /* a number from here on is a time since 1970 */
#define UNIX_MS_MIN 1e11                   /* and from here on it is in milliseconds */

/* Reads a decimal number without a sign at the beginning of `text`; false if none begins there. */
static bool read_number(struct str text, double *ret_number, size_t *ret_bytes) {
    double number = 0, part = 1;
    size_t at = 0, digits = 0;
    bool has_point = false;
    for (; at < text.bytes; at++) {
        char c = text.at[at];
        if (c == '.' && !has_point && digits > 0) {
            has_point = true;
            continue;
        }
        if (c < '0' || c > '9') break;
        digits++;
        if (has_point)
            number += (c - '0') * (part /= 10);
        else
            number = number * 10 + (c - '0');
    }
    if (has_point && text.at[at - 1] == '.') at--; /* the end of a sentence */
    *ret_number = number;
    *ret_bytes = at;
    return digits > 0;
}

/* Rounded up, because a request before the time is refused again; negative for no wait. */
static int64_t whole_ms(double ms) {
    if (!(ms >= 0) || ms > (double)WAIT_MS_MAX) return -1;
    int64_t down = (int64_t)ms;
    return (double)down < ms - 1e-6 ? down + 1 : down;
}

int64_t net_retry_after_ms(bool is_ms, struct str value, int64_t now_unix_s) {
    char date[64];
    double number;
    size_t bytes;
    value = str_trim(value);
    if (read_number(value, &number, &bytes) && bytes == value.bytes)
        return whole_ms(is_ms ? number : number * 1000);
    if (is_ms || value.bytes == 0 || value.bytes >= sizeof date) return -1;
    memcpy(date, value.at, value.bytes);
    date[value.bytes] = '\0';
    int64_t at_unix_s = (int64_t)curl_getdate(date, NULL);
    if (at_unix_s == -1) return -1;
    return at_unix_s > now_unix_s ? (at_unix_s - now_unix_s) * 1000 : 0;
}

/* The milliseconds of the unit that `text` begins with, and its bytes; 0 for any other text. */
static double read_unit(struct str text, size_t *ret_bytes) {
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"milliseconds", 1}, {"millisecond", 1}, {"ms", 1},       {"seconds", 1e3},
                 {"second", 1e3},     {"secs", 1e3},      {"sec", 1e3},    {"minutes", 6e4},
                 {"minute", 6e4},     {"mins", 6e4},      {"min", 6e4},    {"hours", 3.6e6},
                 {"hour", 3.6e6},     {"days", 8.64e7},   {"day", 8.64e7}, {"s", 1e3},
                 {"m", 6e4},          {"h", 3.6e6},       {"d", 8.64e7}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        struct str name = str_from(units[i].name);
        struct str next = str_skip(text, name.bytes);
        bool ends = next.bytes == 0 || (*next.at | 0x20) < 'a' || (*next.at | 0x20) > 'z';
        *ret_bytes = name.bytes;
        if (ends && str_starts_with(text, name)) return units[i].ms;
    }
    return 0;
}

int64_t net_duration_ms(struct str text) {
    double sum = 0, number, unit = 0;
    size_t bytes;
    bool has_some = false;
    while (read_number(text, &number, &bytes)) {
        struct str rest = str_skip(text, bytes);
        bool has_blank = str_starts_with(rest, STR(" "));
        if (has_blank) rest = str_skip(rest, 1);
        unit = read_unit(rest, &bytes);
        if (unit == 0 && has_some) break;
        sum += number * (unit > 0 ? unit : 1000);
        has_some = true;
        if (unit == 0) break;
        text = str_skip(rest, bytes);
        if (has_blank && str_starts_with(text, STR(" "))) text = str_skip(text, 1);
    }
    return has_some ? whole_ms(sum) : -1;
}

int64_t net_reset_ms(struct str value, int64_t now_unix_s) {
    double number;
    size_t bytes;
    value = str_trim(value);
    if (!read_number(value, &number, &bytes)) return -1;
    if (bytes < value.bytes) return net_duration_ms(value);
    double now_ms = (double)now_unix_s * 1000;
    double left = number * 1000;
    if (number >= UNIX_MS_MIN)
        left = number - now_ms;
    else if (number >= UNIX_S_MIN)
        left = number * 1000 - now_ms;
    return whole_ms(left > 0 ? left : 0);
}

int64_t net_backoff_ms(int64_t first_ms, int64_t ms_max, uint32_t times) {
    int64_t ms = first_ms;
    for (uint32_t i = 0; i < times && ms < ms_max; i++) ms *= 2;
    return ms < ms_max ? ms : ms_max;
}
