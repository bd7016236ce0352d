/* SPDX-License-Identifier: Apache-2.0 */
#include "notify/open_internet.h"
#include "notify/signature.h"
#include "notify/target.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No host of an accepted URL is by itself a private address. */
static void check_host(const struct net_url *url) {
    const char *host = net_url_part(url, NET_URL_HOST);
    struct in_addr v4;
    struct address address;
    if (strcmp(net_url_part(url, NET_URL_SCHEME), "https") != 0 || !*host) abort();
    if (net_url_part(url, NET_URL_USER)) abort();
    if (inet_aton(host, &v4) && address_read(&address, str_from(inet_ntoa(v4))) &&
        !open_internet_has(&address))
        abort();
}

/* A client's URL, and the operator's file of secrets. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size > 0) memcpy(copy, data, size);
    struct str text = {copy, size};
    struct error error;
    struct net_url *url;
    if (target_read(&url, text, false, &error) == OK) {
        check_host(url);
        net_url_free(url);
    }
    struct webhook_keys keys;
    if (webhook_keys_read(&keys, text, &error) == OK &&
        (keys.count < 1 || keys.count > WEBHOOK_KEYS_MAX))
        abort();
    free(copy);
    return 0;
}
