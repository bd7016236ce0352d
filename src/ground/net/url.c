/* SPDX-License-Identifier: Apache-2.0 */
#include "net/url.h"

#include "base/mem.h"
#include "base/no_memory.h"
#include "net/net_internal.h"

#include <stdio.h>
#include <stdlib.h>

struct net_url *net_url_read(const char *text) {
    static const struct {
        CURLUPart part;
        unsigned flags;
    } asks[NET_URL_PARTS] = {
        [NET_URL_SCHEME] = {CURLUPART_SCHEME, 0},
        [NET_URL_USER] = {CURLUPART_USER, 0},
        [NET_URL_PASSWORD] = {CURLUPART_PASSWORD, 0},
        [NET_URL_HOST] = {CURLUPART_HOST, 0},
        [NET_URL_ZONE] = {CURLUPART_ZONEID, 0},
        [NET_URL_PORT] = {CURLUPART_PORT, CURLU_DEFAULT_PORT},
        [NET_URL_PATH] = {CURLUPART_PATH, 0},
        [NET_URL_QUERY] = {CURLUPART_QUERY, 0},
        [NET_URL_FRAGMENT] = {CURLUPART_FRAGMENT, 0},
    };
    struct net_url *url = mem_new(1, sizeof *url);
    url->handle = curl_url();
    if (!url->handle) no_memory();
    if (curl_url_set(url->handle, CURLUPART_URL, text, 0) != CURLUE_OK) {
        net_url_free(url);
        return NULL;
    }
    for (size_t i = 0; i < NET_URL_PARTS; i++)
        if (curl_url_get(url->handle, asks[i].part, &url->parts[i], asks[i].flags) != CURLUE_OK)
            url->parts[i] = NULL;
    return url;
}

void net_url_free(struct net_url *url) {
    if (!url) return;
    for (size_t i = 0; i < NET_URL_PARTS; i++) curl_free(url->parts[i]);
    curl_url_cleanup(url->handle);
    free(url);
}

const char *net_url_part(const struct net_url *url, enum net_url_part part) {
    return url->parts[part];
}

char *net_url_with_path(const struct net_url *url, const char *path) {
    CURLU *handle = curl_url_dup(url->handle);
    char *whole = NULL, *copy = NULL;
    if (!handle) no_memory();
    if (curl_url_set(handle, CURLUPART_PATH, path, 0) == CURLUE_OK &&
        curl_url_get(handle, CURLUPART_URL, &whole, 0) == CURLUE_OK)
        copy = mem_text(whole);
    curl_free(whole);
    curl_url_cleanup(handle);
    return copy;
}

char *net_url_origin(const char *text) {
    struct net_url *url = net_url_read(text);
    char *origin = NULL;
    if (url && !url->parts[NET_URL_USER] && url->parts[NET_URL_HOST] && url->parts[NET_URL_PORT] &&
        asprintf(&origin, "%s://%s:%s", url->parts[NET_URL_SCHEME], url->parts[NET_URL_HOST],
                 url->parts[NET_URL_PORT]) < 0)
        no_memory();
    net_url_free(url);
    return origin;
}
