/* SPDX-License-Identifier: Apache-2.0 */
#include "redis/place.h"

#include "base/str.h"

#include <string.h>

#define PORT_USUAL 6379

static bool is_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

/* Copies a part whose bytes are all plain, or one of `more`. */
static enum err take(struct str from, const char *more, char *ret_text, size_t text_bytes,
                     const char *what, struct error *error) {
    if (from.bytes == 0) return err_set(error, ERR_INVALID, "the %s of the URL is empty", what);
    if (from.bytes >= text_bytes)
        return err_set(error, ERR_INVALID, "the %s of the URL has more than %zu bytes", what,
                       text_bytes - 1);
    for (size_t i = 0; i < from.bytes; i++)
        if (!is_plain(from.at[i]) && !(from.at[i] && strchr(more, from.at[i])))
            return err_set(error, ERR_INVALID,
                           "the %s of the URL may have letters, digits, \".\", \"_\" and \"-\"",
                           what);
    memcpy(ret_text, from.at, from.bytes);
    ret_text[from.bytes] = '\0';
    return OK;
}

static enum err take_port(struct redis_place *place, struct str text, struct error *error) {
    uint64_t port;
    if (text.bytes == 0) return OK;
    if (*text.at != ':' || !str_to_u64(str_skip(text, 1), &port) || port == 0 || port > UINT16_MAX)
        return err_set(error, ERR_INVALID, "the port of the URL is no number from 1 to 65535");
    place->port = (uint16_t)port;
    return OK;
}

/* "HOST", "HOST:PORT" or "[IPV6]:PORT". */
static enum err take_host(struct redis_place *place, struct str text, struct error *error) {
    size_t end = str_find_byte(text, ':', 0);
    if (str_starts_with(text, STR("["))) {
        size_t close = str_find_byte(text, ']', 0);
        if (close == SIZE_MAX)
            return err_set(error, ERR_INVALID, "the host of the URL has no closing bracket");
        struct str inner = {text.at + 1, close - 1};
        enum err err = take(inner, ":%", place->host, sizeof place->host, "host", error);
        return err == OK ? take_port(place, str_skip(text, close + 1), error) : err;
    }
    struct str host = {text.at, end == SIZE_MAX ? text.bytes : end};
    enum err err = take(host, "", place->host, sizeof place->host, "host", error);
    return err == OK ? take_port(place, str_skip(text, host.bytes), error) : err;
}

static enum err take_query(struct redis_place *place, struct str query, struct error *error) {
    if (query.bytes == 0) return OK;
    if (!str_starts_with(query, STR("cluster=")))
        return err_set(error, ERR_INVALID, "the URL may have ?cluster=NAME and nothing else");
    return take(str_skip(query, 8), "", place->cluster, sizeof place->cluster, "cluster", error);
}

enum err redis_place_read(struct redis_place *ret_place, const char *url, struct error *error) {
    struct redis_place place = {.port = PORT_USUAL, .cluster = "default"};
    struct str text = str_from(url);
    if (str_starts_with(text, STR("rediss://"))) {
        place.is_tls = true;
        text = str_skip(text, 9);
    } else if (str_starts_with(text, STR("redis://"))) {
        text = str_skip(text, 8);
    } else {
        return err_set(error, ERR_INVALID, "the URL begins with neither redis:// nor rediss://");
    }
    size_t mark = str_find_byte(text, '?', 0);
    struct str query = mark == SIZE_MAX ? (struct str){0} : str_skip(text, mark + 1);
    if (mark != SIZE_MAX) text.bytes = mark;
    if (str_ends_with(text, STR("/"))) text.bytes--;
    size_t at = str_find_byte(text, '@', 0);
    enum err err = OK;
    if (at != SIZE_MAX) {
        struct str user = {text.at, at};
        if (str_find_byte(user, ':', 0) != SIZE_MAX)
            return err_set(error, ERR_INVALID,
                           "the URL holds a password, which other users of this machine could "
                           "read; it belongs into a file");
        err = take(user, "", place.user, sizeof place.user, "user", error);
        text = str_skip(text, at + 1);
    }
    if (err == OK) err = take_host(&place, text, error);
    if (err == OK) err = take_query(&place, query, error);
    if (err == OK) *ret_place = place;
    return err;
}
