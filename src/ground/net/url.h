/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* url: a URL in its parts, read by the parser of the library that fetches it.
 *
 * A checker with a parser of its own could take another host for the URL's host than the fetcher
 * does. Here both see the same parts, and an exchange can use the very URL that was checked.
 *
 * Thread: any.
 * Memory: net_url_read allocates the URL, net_url_free frees it with the texts of its parts. */

#include <stdbool.h>

enum net_url_part {
    NET_URL_SCHEME, /* in lower case */
    NET_URL_USER,
    NET_URL_PASSWORD,
    NET_URL_HOST, /* IPv4 in any spelling becomes four decimal numbers; IPv6 has brackets */
    NET_URL_ZONE, /* the zone of an IPv6 address, such as eth0 */
    NET_URL_PORT, /* the scheme's own port if the URL names none */
    NET_URL_PATH, /* at least "/" */
    NET_URL_QUERY,
    NET_URL_FRAGMENT,
    NET_URL_PARTS
};

/* An absolute URL of a scheme that libcurl knows; NULL for any other text. */
struct net_url *net_url_read(const char *text);
void net_url_free(struct net_url *url); /* NULL is allowed */
/* A part as it stands in the URL; NULL if the URL has none. */
const char *net_url_part(const struct net_url *url, enum net_url_part part);
/* The URL with `path` in place of its own, for the caller to free; NULL if `path` cannot be one. */
char *net_url_with_path(const struct net_url *url, const char *path);
/* Scheme, host and port of a URL as one text, for the caller to free; but for case, equal for two
 * URLs of one server. NULL if the text is no URL, or one with a user. */
char *net_url_origin(const char *text);
