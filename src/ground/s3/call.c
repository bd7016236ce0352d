/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/call.h"

#include "base/clock.h"
#include "net/retry.h"
#include "s3/xml.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SILENCE_MS 300000  /* S3 may put thousands of parts together before it answers */
#define WAIT_FIRST_MS 1000 /* between two attempts, doubled each time */
#define WAIT_LAST_MS 60000
#define POLL_MS 50
#define HEADERS_MAX 4 /* host, and three of x-amz */

/* --- the answer --- */

bool s3_take_bytes(void *context, void *owner, struct str piece) {
    struct s3 *s3 = context;
    (void)owner;
    return s3->call->bytes(s3->call->context, s3->exchange, piece);
}

/* Copies a header that fits and has no control characters. */
static bool copy_header(const struct net_exchange *exchange, const char *name, char *ret_text,
                        size_t text_bytes) {
    struct str value;
    ret_text[0] = '\0';
    if (!net_exchange_header(exchange, name, 0, &value)) return false;
    value = str_trim(value);
    if (value.bytes >= text_bytes) return false;
    for (size_t i = 0; i < value.bytes; i++)
        if ((unsigned char)value.at[i] < ' ' || (unsigned char)value.at[i] >= 0x7f) return false;
    memcpy(ret_text, value.at, value.bytes);
    ret_text[value.bytes] = '\0';
    return value.bytes > 0;
}

bool s3_read_etag(const struct net_exchange *exchange, char ret_etag[S3_ETAG_BYTES]) {
    return copy_header(exchange, "etag", ret_etag, S3_ETAG_BYTES);
}

/* Reads "bytes 0-9/100" and "bytes" "*" "/100". */
static bool read_whole_bytes(const struct net_exchange *exchange, uint64_t *ret_bytes) {
    struct str value;
    if (!net_exchange_header(exchange, "content-range", 0, &value)) return false;
    size_t slash = str_find_byte(value, '/', 0);
    return slash != SIZE_MAX && str_to_u64(str_trim(str_skip(value, slash + 1)), ret_bytes);
}

void s3_take_end(void *context, const struct net_answer *answer) {
    struct s3 *s3 = context;
    struct s3_answer *into = &s3->answer;
    into->is_over = true;
    into->end = answer->end;
    into->status = answer->status;
    into->retry_after_ms = answer->retry_after_ms;
    s3_read_etag(s3->exchange, into->etag);
    copy_header(s3->exchange, "x-amz-bucket-region", into->region, sizeof into->region);
    into->has_whole_bytes = read_whole_bytes(s3->exchange, &into->whole_bytes);
    buf_clear(&s3->body);
    buf_add_str(&s3->body, answer->body);
    /* S3 begins the answer to a long POST with 200, and may tell an error in its body. The body of
     * a GET may be the object's. */
    if (answer->status / 100 != 2 || strcmp(s3->call->method, "POST") == 0) {
        xml_text(answer->body, "Code", into->code, sizeof into->code);
        xml_text(answer->body, "Message", into->message, sizeof into->message);
    }
    snprintf(into->fault, sizeof into->fault, "%s%s%s", answer->what, *answer->fault ? ": " : "",
             answer->fault);
}

bool s3_is_good(const struct s3 *s3) {
    return s3->answer.end == NET_END_WHOLE && s3->answer.status / 100 == 2 && !*s3->answer.code;
}

bool s3_may_pass(const struct s3 *s3) {
    static const char *const codes[] = {"RequestTimeout", "InternalError", "SlowDown",
                                        "ServiceUnavailable"};
    int status = s3->answer.status;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(s3->answer.code, codes[i]) == 0) return true;
    if (s3->answer.end == NET_END_UNTRUSTED || s3->answer.end == NET_END_STOPPED ||
        s3->answer.end == NET_END_TOO_LONG)
        return false;
    if (s3->answer.end != NET_END_WHOLE) return true;
    return status == 408 || status == 425 || status == 429 || status >= 500;
}

enum err s3_judge(const struct s3 *s3, const struct s3_call *call, struct error *error) {
    const struct s3_answer *answer = &s3->answer;
    const char *bucket = call->place->bucket, *key = call->place->key;
    int status = answer->status;
    if (answer->end != NET_END_WHOLE)
        return err_set(error, answer->end == NET_END_TOO_LONG ? ERR_CORRUPT : ERR_UNAVAILABLE,
                       "s3://%.63s/%.200s: the server %s", bucket, key, answer->fault);
    enum err err = status == 404 || status == 410   ? ERR_NOT_FOUND
                   : status == 401 || status == 403 ? ERR_DENIED
                   : s3_may_pass(s3)                ? ERR_UNAVAILABLE
                                                    : ERR_INVALID;
    bool is_elsewhere = *answer->region && strcmp(answer->region, s3->account.region) != 0;
    return err_set(error, err, "s3://%.63s/%.200s: S3 answers %d%s%s to %s%s%.130s%s%s", bucket,
                   key, status, *answer->code ? " " : "", answer->code, call->what,
                   *answer->message ? ": " : "", answer->message,
                   is_elsewhere ? "; the bucket's region is " : "",
                   is_elsewhere ? answer->region : "");
}

/* --- the request --- */

/* A bucket of a name that is no label of a host name, or has dots, which a certificate of
 * *.s3.amazonaws.com does not cover, stands in the path. */
static bool is_in_path(const struct s3 *s3, const char *bucket) {
    if (s3->is_path_style || strlen(bucket) > 63) return true;
    for (const char *at = bucket; *at; at++)
        if (*at == '.' || *at == '_' || (*at >= 'A' && *at <= 'Z')) return true;
    return false;
}

struct target {
    struct buf url, path, query;
    char host[600];
};

static void target_make(struct target *target, const struct s3 *s3, const struct s3_call *call) {
    const char *bucket = call->place->bucket;
    bool in_path = is_in_path(s3, bucket);
    buf_init(&target->url, BUF_UNLIMITED);
    buf_init(&target->path, BUF_UNLIMITED);
    buf_init(&target->query, BUF_UNLIMITED);
    snprintf(target->host, sizeof target->host, "%s%s%s", in_path ? "" : bucket, in_path ? "" : ".",
             s3->host);
    buf_printf(&target->path, "%s/%s%s", s3->prefix, in_path ? bucket : "",
               in_path && *call->place->key ? "/" : "");
    sigv4_encode(&target->path, str_from(call->place->key), true);
    sigv4_query(&target->query, call->query, call->query_count);
    buf_printf(&target->url, "%s://%s%s%s%s", s3->scheme, target->host, target->path.at,
               call->query_count > 0 ? "?" : "", call->query_count > 0 ? target->query.at : "");
}

static void target_release(struct target *target) {
    buf_release(&target->url);
    buf_release(&target->path);
    buf_release(&target->query);
}

/* Writes the lines of the signed headers, and Authorization, one after another with a NUL each. */
static void write_lines(struct buf *lines, const struct s3 *s3, const struct s3_call *call,
                        const struct target *target) {
    char time[SIGV4_TIME_BYTES];
    sigv4_time(clock_unix_s(), time);
    const char *payload = call->payload_hex ? call->payload_hex : S3_NO_BODY;
    const struct sigv4_field headers[HEADERS_MAX] = {{"host", target->host},
                                                     {"x-amz-content-sha256", payload},
                                                     {"x-amz-date", time},
                                                     {"x-amz-security-token", s3->account.token}};
    size_t count = *s3->account.token ? HEADERS_MAX : HEADERS_MAX - 1;
    const struct sigv4_signer signer = {.key_id = s3->account.key_id,
                                        .secret = s3->account.secret,
                                        .region = s3->account.region,
                                        .service = "s3",
                                        .time = time};
    const struct sigv4_request request = {.method = call->method,
                                          .path = buf_str(&target->path),
                                          .query = buf_str(&target->query),
                                          .headers = headers,
                                          .header_count = count,
                                          .payload_hex = payload};
    for (size_t i = 0; i < count; i++) {
        buf_printf(lines, "%s: %s", headers[i].name, headers[i].value);
        buf_add_byte(lines, '\0');
    }
    buf_add_text(lines, "authorization: ");
    sigv4_sign(lines, &signer, &request);
    buf_add_byte(lines, '\0');
}

static enum err exchange(struct s3 *s3, const struct net_request *request, struct error *error) {
    s3->answer = (struct s3_answer){0};
    s3->exchange = net_client_start(s3->client, request);
    while (!s3->answer.is_over) {
        if (*s3->options.stop) {
            net_client_abort(s3->client, s3->exchange);
            return err_set(error, ERR_CANCELLED, "stopped");
        }
        net_client_poll(s3->client, POLL_MS);
    }
    return OK;
}

enum err s3_call_once(struct s3 *s3, const struct s3_call *call, struct error *error) {
    struct target target;
    struct buf lines;
    const char *headers[HEADERS_MAX + 5] = {NULL};
    size_t count = 0;
    target_make(&target, s3, call);
    buf_init(&lines, BUF_UNLIMITED);
    write_lines(&lines, s3, call, &target);
    for (size_t at = 0; at < lines.bytes; at += strlen(lines.at + at) + 1)
        headers[count++] = lines.at + at;
    for (size_t i = 0; i < sizeof call->lines / sizeof *call->lines && call->lines[i]; i++)
        headers[count++] = call->lines[i];
    s3->call = call;
    int64_t silence_ms = s3->options.silence_ms ? s3->options.silence_ms : SILENCE_MS;
    const struct net_request request = {.owner = s3,
                                        .url = target.url.at,
                                        .headers = headers,
                                        .file = call->file,
                                        .is_delete = strcmp(call->method, "DELETE") == 0,
                                        .may_repeat = true,
                                        .stream = call->bytes ? NET_STREAM_BYTES : NET_STREAM_NONE,
                                        .first_byte_ms =
                                            call->file && !s3->options.silence_ms ? 0 : silence_ms,
                                        .stall_ms = silence_ms};
    enum err err = exchange(s3, &request, error);
    s3->call = NULL;
    explicit_bzero(lines.at, lines.bytes);
    buf_release(&lines);
    target_release(&target);
    return err;
}

/* --- attempts --- */

enum err s3_wait(struct s3 *s3, const struct s3_call *call, uint32_t times, struct error *error) {
    const struct s3_answer *answer = &s3->answer;
    char sentence[ERROR_TEXT_BYTES];
    struct error why;
    int64_t wait_ms = net_backoff_ms(WAIT_FIRST_MS, WAIT_LAST_MS, times);
    if (answer->retry_after_ms > wait_ms)
        wait_ms = answer->retry_after_ms < WAIT_LAST_MS ? answer->retry_after_ms : WAIT_LAST_MS;
    (void)!s3_judge(s3, call, &why);
    snprintf(sentence, sizeof sentence, "%.400s; trying again in %" PRId64 " s", why.text,
             (wait_ms + 999) / 1000);
    s3->options.say(s3->options.context, sentence);
    int64_t until_ns = clock_monotonic_ns() + wait_ms * 1000000;
    while (clock_monotonic_ns() < until_ns) {
        if (*s3->options.stop) return err_set(error, ERR_CANCELLED, "stopped");
        clock_sleep_ms(POLL_MS);
    }
    return OK;
}

enum err s3_call_make(struct s3 *s3, const struct s3_call *call, struct error *error) {
    for (uint32_t attempt = 0;; attempt++) {
        enum err err = s3_call_once(s3, call, error);
        if (err != OK || s3_is_good(s3) || !s3_may_pass(s3)) return err;
        if (attempt + 1 == S3_ATTEMPTS) return s3_judge(s3, call, error);
        err = s3_wait(s3, call, attempt, error);
        if (err != OK) return err;
    }
}
