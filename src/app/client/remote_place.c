/* SPDX-License-Identifier: Apache-2.0 */
#include "client/remote_place.h"

#include "net/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum err refuse_url(const char *origin, const char *why, struct error *error) {
    /* The URL itself is not shown, since a password may stand in it. */
    return err_set(error, ERR_INVALID, "%s: %s", origin, why);
}

enum err remote_place_read_url(const char *text, const char *origin, char ret_url[REMOTE_URL_BYTES],
                               struct error *error) {
    struct str url = str_trim(str_from(text));
    char copy[REMOTE_URL_BYTES];
    if (url.bytes + sizeof "/v1" > sizeof copy)
        return refuse_url(origin, "the URL is too long", error);
    snprintf(copy, sizeof copy, "%.*s", STR_ARGS(url));
    bool is_http = strncmp(copy, "http://", 7) == 0 || strncmp(copy, "https://", 8) == 0;
    struct net_url *parts = is_http ? net_url_read(copy) : NULL;
    const char *why = NULL;
    if (!parts)
        why = "it is no URL such as " REMOTE_URL_USUAL;
    else if (net_url_part(parts, NET_URL_USER) || net_url_part(parts, NET_URL_PASSWORD))
        why = "a user or a password stands in the URL; a key belongs into --api-key-file";
    else if (net_url_part(parts, NET_URL_QUERY) || net_url_part(parts, NET_URL_FRAGMENT))
        why = "a base URL has no '?' and no '#'";
    bool has_path = parts && strcmp(net_url_part(parts, NET_URL_PATH), "/") != 0;
    net_url_free(parts);
    if (why) return refuse_url(origin, why, error);
    while (str_ends_with(url, STR("/"))) url.bytes--;
    snprintf(ret_url, REMOTE_URL_BYTES, "%.*s%s", STR_ARGS(url), has_path ? "" : "/v1");
    return OK;
}

enum err remote_place_read_root(const char *text, const char *origin,
                                char ret_url[REMOTE_URL_BYTES], struct error *error) {
    enum err err = remote_place_read_url(text, origin, ret_url, error);
    if (err != OK) return err;
    struct str url = str_from(ret_url), given = str_trim(str_from(text));
    while (str_ends_with(given, STR("/"))) given.bytes--;
    if (str_ends_with(url, STR("/v1")) && !str_ends_with(given, STR("/v1")))
        ret_url[url.bytes - 3] = '\0';
    return OK;
}

enum err remote_place_trim_key(struct secret *key, struct error *error) {
    if (!key->text) return OK;
    struct str text = str_trim(str_from(key->text));
    if (text.bytes > 0) memmove(key->text, text.at, text.bytes);
    key->text[text.bytes] = '\0';
    for (size_t i = 0; i < text.bytes; i++)
        if (key->text[i] <= ' ' || key->text[i] > '~')
            return err_set(error, ERR_INVALID,
                           "%s: a key is one word of printable ASCII characters on one line",
                           key->where);
    if (text.bytes == 0) secret_release(key);
    return OK;
}

static enum err find_url(const struct remote_choice *choice, char ret_url[REMOTE_URL_BYTES],
                         struct error *error) {
    const char *variable = getenv("OPENAI_BASE_URL");
    bool is_told = variable && *variable;
    if (choice->base_url)
        return remote_place_read_url(choice->base_url, "--base-url", ret_url, error);
    return remote_place_read_url(is_told ? variable : REMOTE_URL_USUAL, "OPENAI_BASE_URL", ret_url,
                                 error);
}

enum err remote_place_check(const struct remote_choice *choice, struct error *error) {
    char url[REMOTE_URL_BYTES];
    return find_url(choice, url, error);
}

enum err remote_place_read(const struct remote_choice *choice, struct remote_place *ret_place,
                           struct error *error) {
    const struct secret_variables no_variables = {0};
    ret_place->ca_file = choice->ca_file;
    enum err err = find_url(choice, ret_place->base_url, error);
    if (err == OK)
        err = secret_read(&ret_place->key,
                          &(struct secret_place){.path = choice->api_key_file,
                                                 .variable = "OPENAI_API_KEY",
                                                 .credential = "openai-api-key"},
                          &no_variables, error);
    return err == OK ? remote_place_trim_key(&ret_place->key, error) : err;
}

void remote_place_release(struct remote_place *place) {
    secret_release(&place->key);
}
