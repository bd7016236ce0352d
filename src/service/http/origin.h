/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* origin: which web pages may use the server through the browser of a visitor.
 *
 * A page of any site can make the browser that shows it send requests to this machine. Two facts
 * give such a request away:
 *   1. The browser names the page: Origin, and Sec-Fetch-Site where it sends no Origin. A page that
 *      the server did not serve and that --allowed-origin does not name is foreign.
 *   2. A page whose own name is made to mean this machine (DNS rebinding) is of the same origin for
 *      the browser. Only the Host header has the page's name then.
 * A browser has no key, so the second matters only while the server asks for none.
 *
 * It knows no routes. Programs that are no browsers send neither header, and pass.
 *
 * Thread: any; pure.
 * Memory: none; the rules are borrowed. */

#include "base/err.h"
#include "base/str.h"

struct origin_rules {
    const char *host;                 /* numeric address that the server listens on */
    const char *const *allowed_hosts; /* (allowed_host_count) further names, without a port */
    size_t allowed_host_count;
    const char *const *allowed_origins; /* (allowed_origin_count) "https://host[:port]", or "*" */
    size_t allowed_origin_count;
};

enum origin_page {
    ORIGIN_NO_PAGE, /* no browser, or a person who typed the address */
    ORIGIN_OWN,
    ORIGIN_ALLOWED, /* the answer may be read by the page: it gets the headers of CORS */
    ORIGIN_FOREIGN,
};

/* ERR_INVALID names the allowed origin that is none. */
enum err origin_rules_check(const struct origin_rules *rules, struct error *error) MUST_CHECK;

/* Judges a request by the values of its headers Origin, Sec-Fetch-Site and Host; absent ones are
 * empty. */
enum origin_page origin_judge(const struct origin_rules *rules, struct str origin,
                              struct str fetch_site, struct str host);

/* True for a Host that no foreign page can have: a loopback name or address, the address listened
 * on (any numeric address where that is 0.0.0.0 or ::), an allowed host, or none (HTTP/1.0). */
bool origin_host_is_known(const struct origin_rules *rules, struct str host);
