/* SPDX-License-Identifier: Apache-2.0 */
#include "http/route.h"

#include "base/utf8.h"
#include "http/http.h"

#include <stdio.h>
#include <string.h>

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Undoes %XX (and '+' if `plus_is_space`). False for broken encoding, a decoded control character
 * or DEL, invalid UTF-8, or a full arena. */
static bool decode(struct str text, bool plus_is_space, struct arena *arena, struct str *ret_text) {
    char *out = arena_alloc(arena, text.bytes + 1);
    size_t used = 0;
    if (!out) return false;
    for (size_t i = 0; i < text.bytes; i++) {
        unsigned char c = (unsigned char)text.at[i];
        if (c == '%') {
            int high = i + 2 < text.bytes ? hex_value(text.at[i + 1]) : -1;
            int low = i + 2 < text.bytes ? hex_value(text.at[i + 2]) : -1;
            if (high < 0 || low < 0) return false;
            c = (unsigned char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (c < 0x20 || c == 0x7F) return false;
        out[used++] = (char)c;
    }
    out[used] = '\0';
    *ret_text = (struct str){out, used};
    return utf8_is_valid(*ret_text);
}

/* Takes the next segment off *path, which starts with a slash. */
static struct str next_segment(struct str *path) {
    struct str rest = str_skip(*path, 1);
    size_t slash = str_find_byte(rest, '/', 0);
    struct str segment = {rest.at, slash == SIZE_MAX ? rest.bytes : slash};
    *path = str_skip(rest, segment.bytes);
    return segment;
}

enum fit { FIT, FIT_NOT, FIT_MALFORMED };

/* Compares one path with one pattern; decodes parameters only when all literals agree. */
static enum fit fit_pattern(struct str pattern, struct str path, struct arena *arena,
                            struct route_match *match) {
    struct str raw[ROUTE_PARAMS_MAX];
    size_t count = 0;
    while (pattern.bytes > 0 && path.bytes > 0) {
        struct str want = next_segment(&pattern);
        bool is_param = want.bytes > 2 && want.at[0] == '{';
        if (is_param && count == ROUTE_PARAMS_MAX) return FIT_NOT;
        if (is_param && str_ends_with(want, STR("...}"))) {
            raw[count++] = str_skip(path, 1);
            path.bytes = 0;
            if (raw[count - 1].bytes == 0) return FIT_NOT;
            break;
        }
        struct str got = next_segment(&path);
        if (is_param && got.bytes > 0)
            raw[count++] = got;
        else if (is_param || !str_equals(want, got))
            return FIT_NOT;
    }
    if (pattern.bytes > 0 || path.bytes > 0) return FIT_NOT;
    for (size_t i = 0; i < count; i++)
        if (!decode(raw[i], false, arena, &match->params[i])) return FIT_MALFORMED;
    return FIT;
}

static void allow(struct route_match *match, const char *method) {
    size_t used = strlen(match->allow);
    snprintf(match->allow + used, sizeof match->allow - used, "%s%s", used ? ", " : "", method);
}

/* True if a pattern equals the path: then no row with a parameter is tried. */
static bool is_spelled_out(const struct http_route *routes, size_t route_count, struct str path) {
    for (size_t i = 0; i < route_count; i++)
        if (str_is(path, routes[i].pattern)) return true;
    return false;
}

enum route_found route_find(const struct http_route *routes, size_t route_count, const char *method,
                            struct str path, struct arena *arena, struct route_match *ret_match) {
    enum route_found found = ROUTE_NO_PATH;
    memset(ret_match, 0, sizeof *ret_match);
    if (path.bytes > 1 && path.at[path.bytes - 1] == '/') path.bytes--;
    if (strcmp(method, "HEAD") == 0) method = "GET";
    bool is_own = is_spelled_out(routes, route_count, path);
    for (size_t i = 0; i < route_count; i++) {
        if (is_own && strchr(routes[i].pattern, '{')) continue;
        enum fit fit = fit_pattern(str_from(routes[i].pattern), path, arena, ret_match);
        if (fit == FIT_NOT) continue;
        if (strcmp(routes[i].method, method) != 0) {
            allow(ret_match, routes[i].method);
            found = ROUTE_NO_METHOD;
            continue;
        }
        ret_match->route = &routes[i];
        ret_match->route_index = i;
        return fit == FIT ? ROUTE_FOUND : ROUTE_MALFORMED;
    }
    return found;
}

size_t route_query(struct str query, struct arena *arena,
                   struct route_pair ret_pairs[ROUTE_QUERY_MAX]) {
    size_t count = 0;
    while (query.bytes > 0) {
        size_t end = str_find_byte(query, '&', 0);
        struct str pair = {query.at, end == SIZE_MAX ? query.bytes : end};
        query = str_skip(query, pair.bytes + 1);
        size_t equals = str_find_byte(pair, '=', 0);
        struct str name = {pair.at, equals == SIZE_MAX ? pair.bytes : equals};
        struct str value = str_skip(pair, equals == SIZE_MAX ? pair.bytes : equals + 1);
        if (name.bytes == 0) continue;
        if (count == ROUTE_QUERY_MAX) return ROUTE_QUERY_MAX + 1;
        if (!decode(name, true, arena, &ret_pairs[count].name)) continue;
        /* A value that cannot be decoded stays raw. No valid value has a '%' in it, and a known key
         * with a broken value must not pass for an absent one. */
        if (!decode(value, true, arena, &ret_pairs[count].value)) ret_pairs[count].value = value;
        count++;
    }
    return count;
}
