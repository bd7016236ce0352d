/* SPDX-License-Identifier: Apache-2.0 */
#include "secrets/gcp_secret.h"

#include "base/address.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/mem.h"
#include "json/span.h"
#include "net/client.h"
#include "net/retry.h"
#include "secrets/gcp_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define METADATA_ADDRESS "169.254.169.254" /* a name could be answered by another machine */
#define METADATA_PATH "/computeMetadata/v1/instance/service-accounts/default/token"
#define ENDPOINT "https://secretmanager.googleapis.com/"
#define HOST_BYTES_MAX 300
#define URL_BYTES 1024
#define TOKEN_BYTES_MAX 8192
#define TOKEN_ANSWER_BYTES_MAX ((size_t)16 << 10)
/* A version has at most 64 KiB, base64 makes 88 KiB of them. */
#define SECRET_ANSWER_BYTES_MAX ((size_t)128 << 10)
#define CONNECT_MS 3000
#define SILENCE_MS 10000 /* to the first byte, between two bytes, and from the first to the end */
#define TRIES 4
#define WAIT_FIRST_MS 500
#define WAIT_LAST_MS 8000
#define ASK_MS 30000 /* no try begins later */
#define POLL_MS 50
#define NS_PER_MS ((int64_t)1000000)

/* A GET, tried until its answer can be used. */
struct asking {
    const char *name; /* the resource's, for sentences */
    const char *server;
    const char *url;
    const char *const *headers;
    const char *key; /* NULL: none is sent */
    size_t bytes_max;
    bool uses_proxy;
    bool wants_flavor; /* an answer without the metadata server's own header is not its answer */
    void *result;
    /* Reads a good answer into `result`. After ERR_CORRUPT and ERR_UNAVAILABLE it is asked for
     * again. */
    enum err (*take)(void *result, struct str body, struct error *error);

    struct net_exchange *exchange;
    bool is_over, may_pass;
    int status;
    int64_t retry_after_ms;
    enum err err;
    struct error error;
};

/* --- what an answer says --- */

static enum err judge_end(struct asking *asking, const struct net_answer *answer) {
    struct error *error = &asking->error;
    asking->may_pass = answer->end != NET_END_TOO_LONG && answer->end != NET_END_UNTRUSTED;
    enum err err = answer->end == NET_END_TOO_LONG    ? ERR_LIMIT
                   : answer->end == NET_END_UNTRUSTED ? ERR_DENIED
                                                      : ERR_UNAVAILABLE;
    return err_set(error, err, "%s %s%s%s", asking->server, answer->what,
                   *answer->fault ? ": " : "", answer->fault);
}

static enum err judge_status(struct asking *asking, int status) {
    struct error *error = &asking->error;
    const char *server = asking->server;
    if (status / 100 == 3)
        return err_set(error, ERR_INVALID, "%s answers with a redirect (%d), which is not followed",
                       server, status);
    if (status == 401)
        return err_set(error, ERR_DENIED, "%s refuses the token of this machine (401)", server);
    if (status == 403)
        return err_set(error, ERR_DENIED,
                       "%s answers 403: the machine's service account needs the role Secret "
                       "Manager Secret Accessor, and the machine the scope cloud-platform",
                       server);
    if (status == 404)
        return err_set(error, ERR_NOT_FOUND, "%s answers 404: it does not exist", server);
    asking->may_pass = status == 408 || status == 429 || status / 100 == 5;
    return err_set(error, asking->may_pass ? ERR_UNAVAILABLE : ERR_INVALID, "%s answers %d", server,
                   status);
}

static enum err judge(struct asking *asking, const struct net_answer *answer) {
    struct str flavor;
    if (answer->end != NET_END_WHOLE) return judge_end(asking, answer);
    if (answer->status != 200) return judge_status(asking, answer->status);
    bool is_its_own = net_exchange_header(asking->exchange, "metadata-flavor", 0, &flavor) &&
                      str_is(flavor, "Google");
    if (asking->wants_flavor && !is_its_own)
        return err_set(&asking->error, ERR_INVALID, "%s sent no Metadata-Flavor: Google",
                       asking->server);
    enum err err = asking->take(asking->result, answer->body, &asking->error);
    asking->may_pass = err == ERR_CORRUPT || err == ERR_UNAVAILABLE;
    return err == OK ? OK : err_prefix(&asking->error, "%s", asking->server);
}

static void take_end(void *context, const struct net_answer *answer) {
    struct asking *asking = answer->owner;
    (void)context;
    asking->is_over = true;
    asking->may_pass = false;
    asking->status = answer->status;
    asking->retry_after_ms = answer->retry_after_ms;
    asking->err = judge(asking, answer);
}

/* --- asking --- */

static void wait_ms(int64_t ms) {
    int64_t until_ns = clock_monotonic_ns() + ms * NS_PER_MS;
    while (clock_monotonic_ns() < until_ns) clock_sleep_ms(POLL_MS);
}

static void try_once(struct net_client *client, struct asking *asking) {
    const struct net_request request = {.owner = asking,
                                        .url = asking->url,
                                        .headers = asking->headers,
                                        .sends_key = asking->key != NULL,
                                        .first_byte_ms = SILENCE_MS,
                                        .stall_ms = SILENCE_MS,
                                        .text_ms = SILENCE_MS};
    asking->is_over = false;
    asking->exchange = net_client_start(client, &request);
    while (!asking->is_over) net_client_poll(client, POLL_MS);
}

static enum err ask(struct asking *asking, struct error *error) {
    const struct net_client_options options = {.exchanges_max = 1,
                                               .text_bytes_max = asking->bytes_max,
                                               .connect_ms = CONNECT_MS,
                                               .key = asking->key,
                                               .certificates = getenv("SSL_CERT_FILE"),
                                               .proxy_from_environment = asking->uses_proxy,
                                               .wipes = true,
                                               .done = take_end};
    struct net_client *client;
    enum err err = net_client_open(&client, &options, error);
    if (err != OK) return err;
    int64_t until_ns = clock_monotonic_ns() + ASK_MS * NS_PER_MS;
    for (uint32_t tries = 1;; tries++) {
        try_once(client, asking);
        if (asking->err == OK || !asking->may_pass || tries == TRIES) break;
        int64_t ms = net_backoff_ms(WAIT_FIRST_MS, WAIT_LAST_MS, tries - 1);
        if (asking->retry_after_ms > ms) ms = asking->retry_after_ms;
        if (clock_monotonic_ns() + ms * NS_PER_MS > until_ns) break;
        wait_ms(ms);
    }
    net_client_close(client);
    if (asking->err == OK) return OK;
    *error = asking->error;
    return err_prefix(error, "%s", asking->name);
}

/* --- the token --- */

struct token {
    char text[TOKEN_BYTES_MAX + 1];
};

/* A string without escapes, as its text; empty for other values. */
static struct str plain_text(struct str value) {
    if (!json_span_is_string(value)) return (struct str){NULL, 0};
    struct str text = {value.at + 1, value.bytes - 2};
    return str_find_byte(text, '\\', 0) == SIZE_MAX ? text : (struct str){NULL, 0};
}

static enum err take_token(void *result, struct str body, struct error *error) {
    struct token *token = result;
    struct str answer;
    int64_t left_s;
    if (!json_span_read(body, &answer) || !json_span_is_object(answer))
        return err_set(error, ERR_INVALID, "its answer is no JSON object");
    struct str text = plain_text(json_span_get(answer, "access_token"));
    struct str kind = plain_text(json_span_get(answer, "token_type"));
    bool is_good = text.bytes > 0 && text.bytes <= TOKEN_BYTES_MAX && kind.bytes == 6 &&
                   strncasecmp(kind.at, "bearer", 6) == 0;
    for (size_t i = 0; is_good && i < text.bytes; i++)
        is_good = text.at[i] > ' ' && text.at[i] < 0x7F;
    if (!is_good || !str_to_i64(json_span_get(answer, "expires_in"), &left_s))
        return err_set(error, ERR_INVALID, "its answer has no bearer token");
    if (left_s < 1) return err_set(error, ERR_UNAVAILABLE, "its token has expired");
    memcpy(token->text, text.at, text.bytes);
    token->text[text.bytes] = '\0';
    return OK;
}

static enum err metadata_url(char ret_url[URL_BYTES], struct error *error) {
    const char *host = getenv("GCE_METADATA_HOST");
    if (!host || !*host) host = METADATA_ADDRESS;
    if (strlen(host) > HOST_BYTES_MAX || strpbrk(host, "/?#@\\ "))
        return err_set(error, ERR_INVALID, "GCE_METADATA_HOST is no HOST or HOST:PORT");
    snprintf(ret_url, URL_BYTES, "http://%s" METADATA_PATH, host);
    return OK;
}

static enum err ask_token(const char *name, struct token *token, struct error *error) {
    static const char *const headers[] = {"Metadata-Flavor: Google", NULL};
    char url[URL_BYTES];
    enum err err = metadata_url(url, error);
    if (err != OK) return err;
    struct asking asking = {.name = name,
                            .server = "the metadata server",
                            .url = url,
                            .headers = headers,
                            .bytes_max = TOKEN_ANSWER_BYTES_MAX,
                            .wants_flavor = true,
                            .result = token,
                            .take = take_token};
    return ask(&asking, error);
}

/* --- the secret --- */

struct bytes {
    char *at; /* (SECRET_ANSWER_BYTES_MAX), so that no copy stays in freed memory */
    size_t count;
};

/* The number of a string or a number; an int64 of Google's is a string. */
static bool read_crc(struct str value, uint32_t *ret_crc) {
    int64_t number;
    if (json_span_is_string(value)) value = plain_text(value);
    if (!str_to_i64(value, &number) || number < 0 || number > UINT32_MAX) return false;
    *ret_crc = (uint32_t)number;
    return true;
}

static enum err take_secret(void *result, struct str body, struct error *error) {
    struct bytes *bytes = result;
    struct str answer, payload = {NULL, 0};
    uint32_t crc;
    if (!json_span_read(body, &answer) || !json_span_is_object(answer))
        return err_set(error, ERR_INVALID, "its answer is no JSON object");
    payload = json_span_get(answer, "payload");
    if (!json_span_is_object(payload))
        return err_set(error, ERR_INVALID, "its answer has no payload");
    struct str data = json_span_get(payload, "data");
    if (!json_span_is_string(data) || !read_crc(json_span_get(payload, "dataCrc32c"), &crc))
        return err_set(error, ERR_INVALID, "its payload has no data with dataCrc32c");
    struct str text = plain_text(data);
    if (data.bytes > 2 && text.bytes == 0)
        return err_set(error, ERR_INVALID, "the data of its payload is no base64");
    if (!base64_read(text, bytes->at, SECRET_ANSWER_BYTES_MAX, &bytes->count))
        return err_set(error, ERR_INVALID, "the data of its payload is no base64");
    if (crc32c(0, bytes->at, bytes->count) != crc)
        return err_set(error, ERR_CORRUPT, "the bytes it sent do not have the CRC it sent");
    return OK;
}

/* Plain HTTP would show the token to the network, so it is for tests on one machine only. */
static bool is_endpoint(const char *text) {
    struct net_url *url = strlen(text) < URL_BYTES / 2 ? net_url_read(text) : NULL;
    struct address address;
    if (!url) return false;
    const char *scheme = net_url_part(url, NET_URL_SCHEME);
    bool is_good = strcmp(scheme, "https") == 0 ||
                   (strcmp(scheme, "http") == 0 &&
                    address_read(&address, str_from(net_url_part(url, NET_URL_HOST))) &&
                    address_is_loopback(&address));
    if (net_url_part(url, NET_URL_USER) || net_url_part(url, NET_URL_QUERY) ||
        net_url_part(url, NET_URL_FRAGMENT))
        is_good = false;
    net_url_free(url);
    return is_good;
}

static enum err secret_url(const char *name, char ret_url[URL_BYTES], struct error *error) {
    const char *endpoint = getenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER");
    if (!endpoint || !*endpoint) endpoint = ENDPOINT;
    if (!is_endpoint(endpoint))
        return err_set(error, ERR_INVALID,
                       "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER is no https:// URL, and no "
                       "http:// URL of a loopback address");
    bool ends_in_slash = endpoint[strlen(endpoint) - 1] == '/';
    snprintf(ret_url, URL_BYTES, "%s%sv1/%s:access", endpoint, ends_in_slash ? "" : "/", name);
    return OK;
}

/* Asks with a token; *ret_status is that of the last answer. */
static enum err ask_secret(const char *name, struct token *token, struct bytes *bytes,
                           int *ret_status, struct error *error) {
    char url[URL_BYTES];
    enum err err = secret_url(name, url, error);
    if (err != OK) return err;
    struct asking asking = {.name = name,
                            .server = "Secret Manager",
                            .url = url,
                            .key = token->text,
                            .bytes_max = SECRET_ANSWER_BYTES_MAX,
                            .uses_proxy = strncasecmp(url, "https:", 6) == 0,
                            .result = bytes,
                            .take = take_secret};
    err = ask(&asking, error);
    *ret_status = asking.status;
    return err;
}

enum err gcp_secret_read(const char *place, char **ret_text, size_t *ret_bytes,
                         struct error *error) {
    char name[GCP_NAME_BYTES];
    enum err err = gcp_name_read(place, name, error);
    if (err != OK) return err;
    struct token *token = mem_new(1, sizeof *token);
    struct bytes bytes = {.at = mem_new(1, SECRET_ANSWER_BYTES_MAX + 1)};
    for (int round = 0, status = 0; round < 2; round++) {
        err = ask_token(name, token, error);
        if (err == OK) err = ask_secret(name, token, &bytes, &status, error);
        if (status != 401) break; /* a token may end on its way; the next one is fresh */
    }
    explicit_bzero(token, sizeof *token);
    free(token);
    if (err != OK) {
        explicit_bzero(bytes.at, SECRET_ANSWER_BYTES_MAX);
        free(bytes.at);
        return err;
    }
    bytes.at[bytes.count] = '\0';
    *ret_text = bytes.at;
    *ret_bytes = bytes.count;
    return OK;
}
