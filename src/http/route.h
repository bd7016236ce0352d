/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* route: finds the row of the routing table a method and a request target mean. Default deny: what
 * no row names does not exist.
 *
 * A pattern is a path whose segments are literal, `{name}` (one segment, percent-decoded, so that
 * %2F inside it is a slash of the id) or, as the last, `{name...}` (the rest, raw slashes
 * included). A literal row wins over a `{…}` row when it stands before it. One trailing slash is
 * ignored.
 *
 * Thread: any; pure.  Memory: decoded texts go into the caller's arena. */

#include "base/arena.h"
#include "base/err.h"

#define ROUTE_PARAMS_MAX 4
#define ROUTE_QUERY_MAX 32

struct http_route;

struct route_pair {
    struct str name;
    struct str value;
};

enum route_found {
    ROUTE_FOUND,
    ROUTE_NO_PATH,   /* 404 */
    ROUTE_NO_METHOD, /* 405: the path has rows, for other methods */
    ROUTE_MALFORMED, /* 400: broken percent-encoding, or a control character in it */
};

struct route_match {
    const struct http_route *route;
    size_t route_index;
    struct str params[ROUTE_PARAMS_MAX]; /* in the order of the pattern */
    char allow[64];                      /* with ROUTE_NO_METHOD: "GET, POST" */
};

/* `path` is the target up to the '?', as it came. HEAD is answered by the row of GET. */
enum route_found route_find(const struct http_route *routes, size_t route_count, const char *method,
                            struct str path, struct arena *arena, struct route_match *ret_match);

/* Splits `a=1&b=2`, decoded; a value that cannot be decoded stays as it came, for its reader to
 * refuse. More than ROUTE_QUERY_MAX pairs are dropped, as are those whose name cannot be read:
 * unknown query keys are ignored. Returns how many. */
size_t route_query(struct str query, struct arena *arena,
                   struct route_pair ret_pairs[ROUTE_QUERY_MAX]);

/* Undoes %XX (and '+' when `plus_is_space`). False for broken encoding, a decoded control character
 * or DEL, invalid UTF-8, or a full arena. */
bool route_decode(struct str text, bool plus_is_space, struct arena *arena, struct str *ret_text);
