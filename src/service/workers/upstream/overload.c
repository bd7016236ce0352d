/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/overload.h"

#include "json/span.h"
#include "net/retry.h"
#include "workers/upstream/error.h"

#define WORD_BYTES 64    /* limit for a code, folded */
#define PHRASE_BYTES 160 /* a longer sentence may quote the request */

static bool is_overload_status(int64_t status) {
    return status == 429 || status == 498 || status == 503 || status == 529;
}

/* True for a status that is about the request itself, whatever its body says: a request with more
 * tokens than a minute's limit (413, rate_limit_exceeded) is refused for ever. */
static bool is_of_request(int status) {
    return status == 404 || status == 405 || status == 413 || status == 415 || status == 422;
}

/* The letters of a text in lower case, without anything between them. */
static struct str fold(struct str text, char ret_word[WORD_BYTES * 4]) {
    size_t bytes = 0;
    for (size_t i = 0; i < text.bytes && bytes < (size_t)WORD_BYTES * 4; i++) {
        char c = text.at[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c | 0x20);
        if (c >= 'a' && c <= 'z') ret_word[bytes++] = c;
    }
    return (struct str){ret_word, bytes};
}

/* The status that words for an overload stand for; 0: they stand for none. */
static int32_t status_of_words(struct str text, bool is_sentence) {
    static const struct {
        const char *part;
        int32_t status;
    } words[] = {{"ratelimit", 429},
                 {"toomanyrequests", 429},
                 {"toomanytokens", 429},
                 {"throttl", 429},
                 {"insufficientquota", 429},
                 {"quotaexceeded", 429},
                 {"exceededcurrentquota", 429},
                 {"insufficientuserquota", 429},
                 {"exceededyourcurrentquota", 429},
                 {"insufficientcredit", 429},
                 {"insufficientbalance", 429},
                 {"billinghardlimit", 429},
                 {"billingnotactive", 429},
                 {"usagelimit", 429},
                 {"resourceexhausted", 429},
                 {"capacityexceeded", 503},
                 {"overloaded", 503},
                 {"serverbusy", 503},
                 {"slowdown", 503},
                 {"serviceunavailable", 503},
                 {"temporarilyunavailable", 503}};
    static const char *const wholes[] = {"unavailable", "overload", "busy", "nocapacity"};
    char room[WORD_BYTES * 4];
    if (!text.at || text.bytes > (is_sentence ? PHRASE_BYTES : WORD_BYTES)) return 0;
    struct str word = fold(text, room);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (str_find(word, str_from(words[i].part), 0) != SIZE_MAX) return words[i].status;
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        if (str_is(word, wholes[i])) return 503;
    return 0;
}

static struct str inside_of(struct str string) {
    return (struct str){string.at + 1, string.bytes - 2};
}

/* The status that a member stands for: 429, "429" or "rate_limit_exceeded". */
static int32_t status_of_member(struct str object, const char *key) {
    struct str value = json_span_get(object, key);
    int64_t number;
    bool is_text = json_span_is_string(value);
    if (is_text) value = inside_of(value);
    if (value.at && str_to_i64(value, &number))
        return is_overload_status(number) ? (int32_t)number : 0;
    return is_text ? status_of_words(value, false) : 0;
}

static int32_t status_of_object(struct str object) {
    static const char *const keys[] = {"code",       "status",     "status_code", "statusCode",
                                       "error_code", "error_type", "type",        "__type"};
    int32_t status = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == 0; i++)
        status = status_of_member(object, keys[i]);
    return status;
}

/* True for a sentence about money, which no request is quoted with. */
static bool is_about_money(struct str text) {
    static const char *const parts[] = {"creditbalanceistoolow", "exceededyourcurrentquota",
                                        "insufficientbalance", "insufficientcredits"};
    char room[WORD_BYTES * 4];
    if (!text.at || text.bytes > sizeof room) return false;
    struct str word = fold(text, room);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (str_find(word, str_from(parts[i]), 0) != SIZE_MAX) return true;
    return false;
}

/* The status that a sentence stands for. A 4xx may quote the request, so only its short words
 * count. */
static int32_t status_of_sentences(struct str holder, struct str body, int status) {
    static const char *const keys[] = {"error", "detail", "message"};
    bool is_sentence = status < 400 || status >= 500;
    int32_t found = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && found == 0; i++) {
        struct str outer = json_span_get(body, keys[i]), inner = json_span_get(holder, keys[i]);
        if (json_span_is_string(outer)) found = status_of_words(inside_of(outer), is_sentence);
        if (found == 0 && is_sentence && json_span_is_string(inner))
            found = status_of_words(inside_of(inner), true);
        if (found == 0 && json_span_is_string(inner) && is_about_money(inside_of(inner)))
            found = 429;
    }
    return found;
}

/* --- how long --- */

static int64_t wait_of_member(struct str object, const char *key, bool is_ms) {
    struct str value = json_span_get(object, key);
    if (json_span_is_string(value)) value = inside_of(value);
    if (!value.at) return -1;
    return is_ms ? net_retry_after_ms(true, value, 0) : net_duration_ms(value);
}

/* Google's: {"details":[{"@type":"…RetryInfo","retryDelay":"34s"}]}. */
static int64_t wait_of_details(struct str object) {
    struct json_span_iter iter;
    struct str one, details = json_span_get(object, "details");
    int64_t wait_ms = -1;
    bool inside = details.bytes > 0 && *details.at == '[' && json_span_enter(&iter, details);
    while (inside && json_span_element(&iter, &one) && wait_ms < 0)
        if (json_span_is_object(one)) wait_ms = wait_of_member(one, "retryDelay", false);
    return wait_ms;
}

/* "Please try again in 1m3.5s." */
static int64_t wait_of_sentence(struct str object) {
    static const char *const beginnings[] = {"try again in ", "Try again in ", "retry after ",
                                             "retry in ", "Retry after "};
    struct str text = json_span_get(object, "message");
    if (!json_span_is_string(text)) return -1;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        struct str beginning = str_from(beginnings[i]);
        size_t at = str_find(text, beginning, 0);
        if (at != SIZE_MAX) return net_duration_ms(str_skip(text, at + beginning.bytes));
    }
    return -1;
}

static int64_t wait_of_object(struct str object) {
    static const char *const seconds[] = {"retry_after", "retryAfter", "retry_after_seconds",
                                          "estimated_time"};
    if (!json_span_is_object(object)) return -1;
    int64_t wait_ms = wait_of_member(object, "retry_after_ms", true);
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds && wait_ms < 0; i++)
        wait_ms = wait_of_member(object, seconds[i], false);
    if (wait_ms < 0) wait_ms = wait_of_details(object);
    return wait_ms < 0 ? wait_of_sentence(object) : wait_ms;
}

/* --- both --- */

bool upstream_overload_find(int status, struct str body, struct upstream_overload *ret_overload) {
    struct upstream_overload found = {.status = is_overload_status(status) ? status : 0,
                                      .wait_ms = -1};
    if (is_of_request(status)) return false;
    if (body.at) {
        struct str holder = upstream_error_holder(body);
        if (found.status == 0) found.status = status_of_object(holder);
        if (found.status == 0) found.status = status_of_object(body);
        if (found.status == 0) found.status = status_of_sentences(holder, body, status);
        if (found.status != 0) found.wait_ms = wait_of_object(holder);
        if (found.status != 0 && found.wait_ms < 0) found.wait_ms = wait_of_object(body);
    }
    if (found.status == 0) return false;
    if (status == 402) found.status = status; /* it says the same: there is no money left */
    *ret_overload = found;
    return true;
}
