/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_hub.h"

#include "base/os.h"
#include "hub/hub_internal.h"
#include "net/url.h"
#include "secrets/gcp_name.h"
#include "secrets/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HOST_DEFAULT "huggingface.co"
#define TOKEN_FILE_BYTES_MAX ((size_t)64 << 10)
#define STALL_S 10 /* the default of huggingface_hub */

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool is_true(const char *name) {
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *value = variable(name);
    for (size_t i = 0; value && i < sizeof words / sizeof *words; i++)
        if (strcasecmp(value, words[i]) == 0) return true;
    return false;
}

/* --- URLs --- */

bool pull_hub_is_home(const struct pull_hub *hub, const char *url) {
    char *home = net_url_origin(hub->endpoint), *other = net_url_origin(url);
    bool is_home = home && other && strcasecmp(home, other) == 0;
    free(home);
    free(other);
    return is_home;
}

bool pull_hub_may_ask(const struct pull_hub *hub, const char *url) {
    char *origin = net_url_origin(url);
    bool may_ask = origin && (strncasecmp(origin, "https://", 8) == 0 ||
                              (hub->is_plain && strncasecmp(origin, "http://", 7) == 0));
    free(origin);
    return may_ask;
}

/* --- the environment --- */

static enum err read_endpoint(struct pull_hub *hub, struct error *error) {
    const char *given = variable("HF_ENDPOINT");
    int bytes = given ? snprintf(hub->endpoint, sizeof hub->endpoint, "%s", given)
                      : snprintf(hub->endpoint, sizeof hub->endpoint, "https://%s", HOST_DEFAULT);
    if (bytes >= (int)sizeof hub->endpoint)
        return err_set(error, ERR_INVALID, "HF_ENDPOINT is too long");
    while (bytes > 0 && hub->endpoint[bytes - 1] == '/') hub->endpoint[--bytes] = '\0';
    hub->is_plain = strncasecmp(hub->endpoint, "http://", 7) == 0;
    if (strpbrk(hub->endpoint, "?# ") || !pull_hub_may_ask(hub, hub->endpoint))
        return err_set(error, ERR_INVALID,
                       "HF_ENDPOINT is no URL of a hub: https://HOST[:PORT], without a user");
    return OK;
}

/* Next to the cache, unless HF_TOKEN_PATH says otherwise. */
static void find_token_file(struct pull_hub *hub) {
    const char *path = variable("HF_TOKEN_PATH"), *home = variable("HF_HOME");
    const char *cache = variable("XDG_CACHE_HOME"), *user = variable("HOME");
    int bytes = 0;
    if (path)
        bytes = snprintf(hub->token_place, PATH_MAX, "%s", path);
    else if (home)
        bytes = snprintf(hub->token_place, PATH_MAX, "%s/token", home);
    else if (cache)
        bytes = snprintf(hub->token_place, PATH_MAX, "%s/huggingface/token", cache);
    else if (user)
        bytes = snprintf(hub->token_place, PATH_MAX, "%s/.cache/huggingface/token", user);
    if (bytes >= PATH_MAX) hub->token_place[0] = '\0';
}

static enum err take_token(struct pull_hub *hub, struct str text, const char *where,
                           struct error *error) {
    text = str_trim(text);
    bool is_good = text.bytes < sizeof hub->token;
    for (size_t i = 0; i < text.bytes; i++)
        if (text.at[i] <= ' ' || text.at[i] >= 0x7F) is_good = false;
    if (!is_good)
        return err_set(error, ERR_DENIED, "%.300s holds no token: one word of at most %zu bytes",
                       where, sizeof hub->token - 1);
    if (text.bytes > 0) memcpy(hub->token, text.at, text.bytes);
    hub->token[text.bytes] = '\0';
    return OK;
}

/* Takes the token out of Secret Manager. */
static enum err fetch_token(struct pull_hub *hub, const char *place, struct error *error) {
    struct secret secret;
    enum err err = secret_read_file(&secret, place, error);
    if (err != OK) return err_prefix(error, "the token of the hub");
    err = take_token(hub, (struct str){secret.text, secret.bytes}, place, error);
    secret_release(&secret);
    return err;
}

static enum err read_token(struct pull_hub *hub, struct error *error) {
    const char *value = variable("HF_TOKEN");
    char *text;
    size_t bytes;
    find_token_file(hub);
    if (!value) value = variable("HUGGING_FACE_HUB_TOKEN");
    if (value && gcp_name_is(value)) return fetch_token(hub, value, error);
    if (value) return take_token(hub, str_from(value), "HF_TOKEN", error);
    if (gcp_name_is(hub->token_place)) return fetch_token(hub, hub->token_place, error);
    if (!*hub->token_place) return OK;
    enum err err = os_read_file(hub->token_place, TOKEN_FILE_BYTES_MAX, &text, &bytes, error);
    if (err == ERR_NOT_FOUND) return OK;
    if (err != OK) return err_prefix(error, "the token file");
    err = take_token(hub, (struct str){text, bytes}, hub->token_place, error);
    explicit_bzero(text, bytes);
    free(text);
    return err;
}

enum err pull_hub_read(struct pull_hub *ret_hub, struct error *error) {
    struct pull_hub *hub = ret_hub;
    int64_t stall_s;
    memset(hub, 0, sizeof *hub);
    hub->stall_s = STALL_S;
    hub->is_offline = is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE");
    hub->certificates = variable("SSL_CERT_FILE");
    const char *timeout = variable("HF_HUB_DOWNLOAD_TIMEOUT");
    if (timeout) {
        if (!str_to_i64(str_from(timeout), &stall_s) || stall_s < 1 || stall_s > 3600)
            return err_set(error, ERR_INVALID,
                           "HF_HUB_DOWNLOAD_TIMEOUT '%.40s' is not 1 to 3600 seconds", timeout);
        hub->stall_s = (uint32_t)stall_s;
    }
    if (!catalog_hub_root(hub->cache))
        return err_set(error, ERR_INVALID,
                       "no place for the models: set HF_HUB_CACHE, HF_HOME or HOME");
    enum err err = read_endpoint(hub, error);
    if (err == OK) err = read_token(hub, error);
    if (err != OK) pull_hub_release(hub);
    return err;
}

void pull_hub_release(struct pull_hub *hub) {
    explicit_bzero(hub->token, sizeof hub->token);
}
