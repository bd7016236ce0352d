/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/s3.h"

#include "base/mem.h"
#include "base/os.h"
#include "s3/call.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MS 30000
#define CERTIFICATES "AWS_CA_BUNDLE"       /* as AWS's tools have it */
#define ANSWER_BYTES_MAX ((size_t)1 << 20) /* a list of 1,000 parts has 300 KB */

/* --- the endpoint --- */

static enum err refuse_endpoint(const struct s3 *s3, struct error *error) {
    return err_set(error, ERR_INVALID,
                   "the endpoint of S3 is no http or https URL of a host without a user: '%.150s'",
                   s3->account.endpoint);
}

static enum err use_endpoint(struct s3 *s3, struct error *error) {
    struct net_url *url = net_url_read(s3->account.endpoint);
    if (!url) return refuse_endpoint(s3, error);
    const char *scheme = net_url_part(url, NET_URL_SCHEME), *host = net_url_part(url, NET_URL_HOST);
    const char *port = net_url_part(url, NET_URL_PORT), *path = net_url_part(url, NET_URL_PATH);
    bool is_https = strcmp(scheme, "https") == 0;
    bool is_good = (is_https || strcmp(scheme, "http") == 0) && host && port && path &&
                   !net_url_part(url, NET_URL_USER) && !net_url_part(url, NET_URL_QUERY);
    if (is_good) {
        /* A Host header names a port that is not the scheme's own. */
        bool has_port = strcmp(port, is_https ? "443" : "80") != 0;
        int bytes = snprintf(s3->host, sizeof s3->host, "%s%s%s", host, has_port ? ":" : "",
                             has_port ? port : "");
        snprintf(s3->scheme, sizeof s3->scheme, "%s", scheme);
        int prefix_bytes = snprintf(s3->prefix, sizeof s3->prefix, "%s", path);
        is_good = bytes < (int)sizeof s3->host && prefix_bytes < (int)sizeof s3->prefix;
    }
    net_url_free(url);
    if (!is_good) return refuse_endpoint(s3, error);
    for (size_t end = strlen(s3->prefix); end > 0 && s3->prefix[end - 1] == '/'; end--)
        s3->prefix[end - 1] = '\0';
    s3->is_path_style = true;
    return OK;
}

static enum err use_aws(struct s3 *s3, struct error *error) {
    const char *region = s3->account.region;
    for (const char *at = region; *at; at++)
        if (!((*at >= 'a' && *at <= 'z') || (*at >= '0' && *at <= '9') || *at == '-'))
            return err_set(error, ERR_INVALID, "'%.64s' is no region of AWS", region);
    snprintf(s3->scheme, sizeof s3->scheme, "https");
    snprintf(s3->host, sizeof s3->host, "s3.%s.amazonaws.com%s", region,
             strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
    return OK;
}

enum err s3_open(struct s3 **ret_s3, const struct s3_options *options, struct error *error) {
    struct s3 *s3 = mem_new(1, sizeof *s3);
    s3->options = *options;
    buf_init(&s3->body, ANSWER_BYTES_MAX);
    enum err err = s3_account_read(&s3->account, error);
    if (err == OK) err = *s3->account.endpoint ? use_endpoint(s3, error) : use_aws(s3, error);
    const struct net_client_options net = {
        .exchanges_max = 1,
        .text_bytes_max = ANSWER_BYTES_MAX,
        .connect_ms = CONNECT_MS,
        .certificates = getenv(getenv(CERTIFICATES) ? CERTIFICATES : "SSL_CERT_FILE"),
        .proxy_from_environment = true,
        .slow_bytes_per_s = 1,
        .context = s3,
        .bytes = s3_take_bytes,
        .done = s3_take_end};
    if (err == OK) err = net_client_open(&s3->client, &net, error);
    if (err == OK)
        *ret_s3 = s3;
    else
        s3_close(s3);
    return err;
}

void s3_close(struct s3 *s3) {
    if (!s3) return;
    net_client_close(s3->client);
    s3_account_wipe(&s3->account);
    buf_release(&s3->body);
    free(s3);
}

/* --- small calls --- */

enum err s3_look(struct s3 *s3, const struct s3_place *place, bool *ret_exists,
                 struct error *error) {
    const struct s3_call call = {
        .method = "GET", .what = "the look at it", .place = place, .lines = {"Range: bytes=0-0"}};
    enum err err = s3_call_make(s3, &call, error);
    if (err != OK) return err;
    *ret_exists = s3_is_good(s3) || s3->answer.status == 416; /* it is empty */
    bool is_absent = s3->answer.status == 404 && strcmp(s3->answer.code, "NoSuchBucket") != 0;
    bool is_hidden = s3->answer.status == 403 && strcmp(s3->answer.code, "AccessDenied") == 0;
    return *ret_exists || is_absent || is_hidden ? OK : s3_judge(s3, &call, error);
}

enum err s3_forget(const char *path, struct error *error) {
    static const char *const endings[] = {"", ".part", ".etag", ".upload"};
    char name[PATH_MAX];
    enum err err = OK;
    for (size_t i = 0; err == OK && i < sizeof endings / sizeof *endings; i++)
        if (snprintf(name, sizeof name, "%s%s", path, endings[i]) < PATH_MAX)
            err = os_unlink(name, error);
    return err;
}
