/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* route: finds the row of the routing table that a method and a request target mean. A target that
 * no row names does not exist.
 *
 * A pattern is a path whose segments are literal, `{name}` (one segment, percent-decoded, so that
 * %2F is a slash inside the id) or, as the last one, `{name...}` (the rest of the path, with its
 * slashes). A path that equals a whole pattern never matches a row with `{…}`; otherwise the first
 * row that fits wins. One trailing slash is ignored.
 *
 * Thread: any; pure.
 * Memory: decoded texts go into the caller's arena. */

#include "base/arena.h"
#include "base/err.h"

#define ROUTE_PARAMS_MAX 4
#define ROUTE_QUERY_MAX 64

struct http_route;

struct route_pair {
    struct str name;
    struct str value;
};

enum route_found {
    ROUTE_FOUND,
    ROUTE_NO_PATH,   /* 404 */
    ROUTE_NO_METHOD, /* 405: the path has rows only for other methods */
    ROUTE_MALFORMED, /* 400: broken percent-encoding, or a control character in it */
};

struct route_match {
    const struct http_route *route;
    size_t route_index;
    struct str params[ROUTE_PARAMS_MAX]; /* in the order of the pattern */
    char allow[64];                      /* with ROUTE_NO_METHOD: "GET, POST" */
};

/* `path` is the raw target up to the '?'. The row of GET also answers HEAD. */
enum route_found route_find(const struct http_route *routes, size_t route_count, const char *method,
                            struct str path, struct arena *arena, struct route_match *ret_match);

/* Splits `a=1&b=2` into decoded pairs and returns their number. A value that cannot be decoded
 * stays raw, for its reader to refuse. Pairs with a name that cannot be decoded are dropped, like
 * unknown keys. ROUTE_QUERY_MAX + 1 if there are more pairs than that: none counts then. */
size_t route_query(struct str query, struct arena *arena,
                   struct route_pair ret_pairs[ROUTE_QUERY_MAX]);
