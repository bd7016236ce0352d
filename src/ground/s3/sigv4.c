/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/sigv4.h"

#include "base/hash.h"

#include <assert.h>
#include <sodium/crypto_auth_hmacsha256.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALGORITHM "AWS4-HMAC-SHA256"
#define DATE_BYTES 8 /* the day at the start of a time */

struct mac {
    unsigned char bytes[crypto_auth_hmacsha256_BYTES];
};

/* --- texts --- */

void sigv4_encode(struct buf *out, struct str text, bool keeps_slashes) {
    for (size_t i = 0; i < text.bytes; i++) {
        char c = text.at[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~' ||
                        (c == '/' && keeps_slashes);
        if (is_plain)
            buf_add_byte(out, c);
        else
            buf_printf(out, "%%%02X", (unsigned)(unsigned char)c);
    }
}

void sigv4_time(int64_t unix_s, char ret_time[SIGV4_TIME_BYTES]) {
    time_t seconds = (time_t)unix_s;
    struct tm parts;
    gmtime_r(&seconds, &parts);
    if (strftime(ret_time, SIGV4_TIME_BYTES, "%Y%m%dT%H%M%SZ", &parts) == 0) abort();
}

/* The signature wants the order of the encoded bytes. Names of S3's parameters and of headers have
 * nothing to encode. */
static int compare_fields(const void *a, const void *b) {
    const struct sigv4_field *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order != 0 ? order : strcmp(left->value, right->value);
}

/* Copies the fields in their order. */
static void sort_fields(struct sigv4_field ret_fields[SIGV4_FIELDS_MAX],
                        const struct sigv4_field *fields, size_t count) {
    assert(count <= SIGV4_FIELDS_MAX);
    if (count == 0) return;
    memcpy(ret_fields, fields, count * sizeof *fields);
    qsort(ret_fields, count, sizeof *ret_fields, compare_fields);
}

void sigv4_query(struct buf *out, const struct sigv4_field *fields, size_t count) {
    struct sigv4_field sorted[SIGV4_FIELDS_MAX];
    sort_fields(sorted, fields, count);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) buf_add_byte(out, '&');
        sigv4_encode(out, str_from(sorted[i].name), false);
        buf_add_byte(out, '=');
        sigv4_encode(out, str_from(sorted[i].value), false);
    }
}

/* A header's value without blanks at its ends, and with one in place of several. */
static void add_value(struct buf *out, const char *text) {
    struct str value = str_trim(str_from(text));
    for (size_t i = 0; i < value.bytes; i++)
        if (value.at[i] != ' ' || value.at[i - 1] != ' ') buf_add_byte(out, value.at[i]);
}

static void add_names(struct buf *out, const struct sigv4_field *sorted, size_t count) {
    for (size_t i = 0; i < count; i++) buf_printf(out, "%s%s", i > 0 ? ";" : "", sorted[i].name);
}

static void add_sum(struct buf *out, struct str text) {
    struct sha256 hash;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    sha256_init(&hash);
    sha256_add(&hash, text.at, text.bytes);
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    buf_add_text(out, hex);
}

/* --- the signature --- */

/* The request in the one form that both sides hash. */
static void write_canonical(struct buf *out, const struct sigv4_request *request,
                            const struct sigv4_field *sorted) {
    buf_printf(out, "%s\n", request->method);
    buf_add_str(out, request->path);
    buf_add_byte(out, '\n');
    buf_add_str(out, request->query);
    buf_add_byte(out, '\n');
    for (size_t i = 0; i < request->header_count; i++) {
        buf_printf(out, "%s:", sorted[i].name);
        add_value(out, sorted[i].value);
        buf_add_byte(out, '\n');
    }
    buf_add_byte(out, '\n');
    add_names(out, sorted, request->header_count);
    buf_printf(out, "\n%s", request->payload_hex);
}

static struct mac mac_of(const unsigned char *key, size_t key_bytes, struct str text) {
    crypto_auth_hmacsha256_state state;
    struct mac mac;
    crypto_auth_hmacsha256_init(&state, key, key_bytes);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)text.at, text.bytes);
    crypto_auth_hmacsha256_final(&state, mac.bytes);
    explicit_bzero(&state, sizeof state);
    return mac;
}

/* The key of one day, region and service. */
static struct mac derive_key(const struct sigv4_signer *signer) {
    struct buf first;
    const struct str steps[] = {str_from(signer->region), str_from(signer->service),
                                STR("aws4_request")};
    buf_init(&first, BUF_UNLIMITED);
    buf_printf(&first, "AWS4%s", signer->secret);
    struct mac mac = mac_of((const unsigned char *)first.at, first.bytes,
                            (struct str){signer->time, DATE_BYTES});
    explicit_bzero(first.at, first.bytes);
    buf_release(&first);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        mac = mac_of(mac.bytes, sizeof mac.bytes, steps[i]);
    return mac;
}

void sigv4_sign(struct buf *out, const struct sigv4_signer *signer,
                const struct sigv4_request *request) {
    struct sigv4_field sorted[SIGV4_FIELDS_MAX];
    struct buf canonical, scope, text;
    char hex[SHA256_HEX_BYTES];
    buf_init(&canonical, BUF_UNLIMITED);
    buf_init(&scope, BUF_UNLIMITED);
    buf_init(&text, BUF_UNLIMITED);
    sort_fields(sorted, request->headers, request->header_count);
    write_canonical(&canonical, request, sorted);
    buf_printf(&scope, "%.*s/%s/%s/aws4_request", DATE_BYTES, signer->time, signer->region,
               signer->service);
    buf_printf(&text, ALGORITHM "\n%s\n%s\n", signer->time, scope.at);
    add_sum(&text, buf_str(&canonical));
    struct mac key = derive_key(signer);
    struct mac signature = mac_of(key.bytes, sizeof key.bytes, buf_str(&text));
    explicit_bzero(&key, sizeof key);
    sha256_hex(signature.bytes, hex);
    buf_printf(out, ALGORITHM " Credential=%s/%s, SignedHeaders=", signer->key_id, scope.at);
    add_names(out, sorted, request->header_count);
    buf_printf(out, ", Signature=%s", hex);
    buf_release(&canonical);
    buf_release(&scope);
    buf_release(&text);
}
