/* SPDX-License-Identifier: Apache-2.0 */
#include "net/retry.h"

#include <curl/curl.h>
#include <string.h>

int64_t net_retry_after_ms(bool is_ms, struct str value, int64_t now_unix_s) {
    char date[64];
    int64_t number;
    value = str_trim(value);
    if (str_to_i64(value, &number)) {
        if (number < 0 || number > INT64_MAX / 1000) return -1;
        return is_ms ? number : number * 1000;
    }
    if (is_ms || value.bytes == 0 || value.bytes >= sizeof date) return -1;
    memcpy(date, value.at, value.bytes);
    date[value.bytes] = '\0';
    int64_t at_unix_s = (int64_t)curl_getdate(date, NULL);
    if (at_unix_s == -1) return -1;
    return at_unix_s > now_unix_s ? (at_unix_s - now_unix_s) * 1000 : 0;
}

int64_t net_backoff_ms(int64_t first_ms, int64_t ms_max, uint32_t times) {
    int64_t ms = first_ms;
    for (uint32_t i = 0; i < times && ms < ms_max; i++) ms *= 2;
    return ms < ms_max ? ms : ms_max;
}
