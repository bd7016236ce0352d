/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/spec.h"

#include "base/mem.h"
#include "net/url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX 604800

static enum err put_text(char *ret_text, size_t room, struct str text, const char *what,
                         struct error *error) {
    if (text.bytes == 0 || text.bytes >= room)
        return err_set(error, ERR_INVALID, "%s has %zu bytes, not 1 to %zu", what, text.bytes,
                       room - 1);
    memcpy(ret_text, text.at, text.bytes);
    ret_text[text.bytes] = '\0';
    return OK;
}

static enum err read_number(struct str text, const char *key, int64_t min, int64_t max,
                            int64_t *ret_value, struct error *error) {
    if (!str_to_i64(text, ret_value) || *ret_value < min || *ret_value > max)
        return err_set(error, ERR_INVALID, "%s=%.*s is not a whole number from %lld to %lld", key,
                       (int)(text.bytes < 40 ? text.bytes : 40), text.at ? text.at : "",
                       (long long)min, (long long)max);
    return OK;
}

/* --- the URL --- */

static bool has_part(const struct net_url *url, enum net_url_part part) {
    const char *text = net_url_part(url, part);
    return text && *text;
}

static enum err check_url(const struct net_url *url, struct error *error) {
    if (!url) return err_set(error, ERR_INVALID, "the URL is not one (http://HOST[:PORT][/v1])");
    const char *scheme = net_url_part(url, NET_URL_SCHEME);
    if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
        return err_set(error, ERR_INVALID, "the URL is neither http:// nor https://");
    if (has_part(url, NET_URL_USER) || has_part(url, NET_URL_PASSWORD))
        return err_set(error, ERR_INVALID,
                       "the URL holds a user or password; put the key into a file: key-file=F");
    if (has_part(url, NET_URL_QUERY) || has_part(url, NET_URL_FRAGMENT))
        return err_set(error, ERR_INVALID, "the URL has a query or fragment");
    return OK;
}

/* `path` in place of the URL's own; without a slash at the end. */
static enum err put_url(const struct net_url *url, const char *path,
                        char ret_text[UPSTREAM_URL_BYTES], struct error *error) {
    char *whole = net_url_with_path(url, path);
    if (!whole) return err_set(error, ERR_INVALID, "the path %.100s cannot be part of a URL", path);
    struct str text = str_from(whole);
    while (text.bytes > 0 && text.at[text.bytes - 1] == '/') text.bytes--;
    enum err err = put_text(ret_text, UPSTREAM_URL_BYTES, text, "the URL", error);
    free(whole);
    return err;
}

static enum err read_url(const char *text, const char *health, struct upstream_spec *spec,
                         struct error *error) {
    struct net_url *url = net_url_read(text);
    enum err err = check_url(url, error);
    if (err == OK) {
        const char *path = net_url_part(url, NET_URL_PATH);
        /* A server's own address means its /v1. */
        err = put_url(url, strcmp(path, "/") == 0 ? "/v1" : path, spec->base, error);
    }
    if (err == OK) err = put_url(url, health, spec->health, error);
    net_url_free(url);
    return err;
}

/* --- the keys --- */

static enum err read_model(struct str text, struct upstream_spec *spec, struct error *error) {
    if (spec->model_count == UPSTREAM_FIXED_MODELS_MAX)
        return err_set(error, ERR_INVALID, "models= names more than %d", UPSTREAM_FIXED_MODELS_MAX);
    struct upstream_spec_model *model = &spec->models[spec->model_count];
    size_t equals = str_find_byte(text, '=', 0);
    struct str name = {text.at, equals == SIZE_MAX ? text.bytes : equals};
    struct str theirs = equals == SIZE_MAX ? text : str_skip(text, equals + 1);
    enum err err = put_text(model->name, sizeof model->name, name, "a name of models=", error);
    if (err == OK)
        err = put_text(model->theirs, sizeof model->theirs, theirs, "a name of models=", error);
    for (size_t i = 0; i < spec->model_count && err == OK; i++)
        if (strcmp(spec->models[i].name, model->name) == 0)
            err = err_set(error, ERR_INVALID, "models= names %.100s twice", model->name);
    if (err == OK) spec->model_count++;
    return err;
}

static enum err read_models(struct str list, struct upstream_spec *spec, struct error *error) {
    enum err err = OK;
    for (bool more = true; more && err == OK;) {
        size_t bar = str_find_byte(list, '|', 0);
        more = bar != SIZE_MAX;
        err = read_model((struct str){list.at, more ? bar : list.bytes}, spec, error);
        if (more) list = str_skip(list, bar + 1);
    }
    return err;
}

static enum err read_seconds(struct str value, const char *key, int64_t *ret_ms,
                             struct error *error) {
    int64_t seconds;
    enum err err = read_number(value, key, 1, SECONDS_MAX, &seconds, error);
    if (err == OK) *ret_ms = seconds * 1000;
    return err;
}

static enum err read_pair(struct str key, struct str value, struct upstream_spec *spec,
                          char ret_health[UPSTREAM_URL_BYTES], struct error *error) {
    int64_t number;
    enum err err;
    if (str_is(key, "key-file"))
        return put_text(spec->key_file, sizeof spec->key_file, value, "key-file=", error);
    if (str_is(key, "concurrency")) {
        err = read_number(value, "concurrency", 1, UPSTREAM_CONCURRENCY_MAX, &number, error);
        if (err == OK) spec->concurrency = (uint32_t)number;
        return err;
    }
    if (str_is(key, "weight")) {
        err = read_number(value, "weight", 1, 1000, &number, error);
        if (err == OK) spec->weight = (uint32_t)number;
        return err;
    }
    if (str_is(key, "models")) return read_models(value, spec, error);
    if (str_is(key, "connect-timeout"))
        return read_seconds(value, "connect-timeout", &spec->connect_ms, error);
    if (str_is(key, "timeout")) return read_seconds(value, "timeout", &spec->first_byte_ms, error);
    if (str_is(key, "stall-timeout"))
        return read_seconds(value, "stall-timeout", &spec->stall_ms, error);
    if (str_is(key, "health"))
        return value.bytes > 0 && *value.at == '/'
                   ? put_text(ret_health, UPSTREAM_URL_BYTES, value, "health=", error)
                   : err_set(error, ERR_INVALID, "health= is not a path that begins with /");
    if (str_is(key, "proxy") && str_is(value, "env")) {
        spec->proxy_from_environment = true;
        return OK;
    }
    if (str_is(key, "proxy"))
        return err_set(error, ERR_INVALID, "proxy= takes env, which means: from the environment");
    if (str_is(key, "shapes")) {
        spec->refuses_shapes = str_is(value, "refuse");
        if (spec->refuses_shapes || str_is(value, "pass")) return OK;
        return err_set(error, ERR_INVALID, "shapes= takes pass or refuse");
    }
    return err_set(error, ERR_INVALID,
                   "no key %.*s=; there are key-file, concurrency, models, weight, timeout, "
                   "connect-timeout, stall-timeout, health, proxy, shapes",
                   (int)(key.bytes < 60 ? key.bytes : 60), key.bytes ? key.at : "");
}

static enum err read_rest(struct str rest, struct upstream_spec *spec,
                          char ret_health[UPSTREAM_URL_BYTES], struct error *error) {
    enum err err = OK;
    while (rest.bytes > 0 && err == OK) {
        size_t comma = str_find_byte(rest, ',', 0);
        struct str pair = {rest.at, comma == SIZE_MAX ? rest.bytes : comma};
        size_t equals = str_find_byte(pair, '=', 0);
        if (equals == SIZE_MAX)
            return err_set(error, ERR_INVALID, "'%.*s' after the URL is not KEY=VALUE",
                           (int)(pair.bytes < 60 ? pair.bytes : 60), pair.at);
        err = read_pair((struct str){pair.at, equals}, str_skip(pair, equals + 1), spec, ret_health,
                        error);
        rest = comma == SIZE_MAX ? (struct str){NULL, 0} : str_skip(rest, comma + 1);
    }
    return err;
}

static enum err read_name(struct str name, struct upstream_spec *spec, struct error *error) {
    for (size_t i = 0; i < name.bytes; i++) {
        unsigned char c = (unsigned char)name.at[i];
        if (!isalnum(c) && c != '-' && c != '_' && c != '.')
            return err_set(error, ERR_INVALID,
                           "its name may have letters, digits, '-', '_' and '.' only");
    }
    return put_text(spec->name, sizeof spec->name, name, "its name", error);
}

enum err upstream_spec_read(const char *text, struct upstream_spec *ret_spec, struct error *error) {
    struct upstream_spec *spec = mem_new(1, sizeof *spec);
    *spec = (struct upstream_spec){.concurrency = UPSTREAM_CONCURRENCY,
                                   .weight = 1,
                                   .connect_ms = 10000,
                                   .first_byte_ms = 3600000,
                                   .stall_ms = 120000};
    char address[UPSTREAM_URL_BYTES], health[UPSTREAM_URL_BYTES] = "/health";
    struct str whole = str_from(text);
    size_t equals = str_find_byte(whole, '=', 0);
    enum err err = equals == SIZE_MAX
                       ? err_set(error, ERR_INVALID, "it is not NAME=URL[,KEY=VALUE]...")
                       : read_name((struct str){whole.at, equals}, spec, error);
    if (err == OK) {
        struct str rest = str_skip(whole, equals + 1);
        size_t comma = str_find_byte(rest, ',', 0);
        struct str url = {rest.at, comma == SIZE_MAX ? rest.bytes : comma};
        err = put_text(address, sizeof address, url, "the URL", error);
        if (err == OK && comma != SIZE_MAX)
            err = read_rest(str_skip(rest, comma + 1), spec, health, error);
    }
    if (err == OK) err = read_url(address, health, spec, error);
    /* The text is not shown, because it may hold a password. */
    if (err == OK)
        *ret_spec = *spec;
    else
        err = err_prefix(error, "upstream %s", *spec->name ? spec->name : "without a name");
    free(spec);
    return err;
}

enum err upstream_spec_check_key(struct str key, const char *where, struct error *error) {
    if (key.bytes == 0) return err_set(error, ERR_INVALID, "%s has no key", where);
    if (key.bytes > UPSTREAM_KEY_BYTES)
        return err_set(error, ERR_INVALID, "%s holds more than a key", where);
    for (size_t i = 0; i < key.bytes; i++)
        if (key.at[i] <= ' ' || key.at[i] > '~')
            return err_set(error, ERR_INVALID, "%s holds something that no key has, at byte %zu",
                           where, i);
    return OK;
}
