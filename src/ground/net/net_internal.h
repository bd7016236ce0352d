/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* net_internal: libcurl's form of a URL, for the exchange that uses it.
 *
 * Thread: any.
 * Memory: see url.h. */

#include "net/url.h"

#include <curl/curl.h>

struct net_url {
    CURLU *handle;
    char *parts[NET_URL_PARTS]; /* libcurl's memory; NULL: absent */
};
