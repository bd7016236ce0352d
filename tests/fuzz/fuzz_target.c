/* SPDX-License-Identifier: Apache-2.0 */
#include "notify/address.h"
#include "notify/signature.h"
#include "notify/target.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the library will be asked to connect to is no private address by itself. */
static void check_host(CURLU *handle) {
    char *host = NULL, *scheme = NULL, *user = NULL;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    if (curl_url_get(handle, CURLUPART_HOST, &host, 0) != CURLUE_OK) abort();
    if (curl_url_get(handle, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK) abort();
    if (strcmp(scheme, "https") != 0 || !*host) abort();
    if (curl_url_get(handle, CURLUPART_USER, &user, 0) == CURLUE_OK) abort();
    if (inet_aton(host, &v4.sin_addr) && !address_is_public((struct sockaddr *)&v4, sizeof v4))
        abort();
    curl_free(host);
    curl_free(scheme);
    curl_free(user);
}

/* A client's URL, and the operator's file of secrets. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size > 0) memcpy(copy, data, size);
    struct str text = {copy, size};
    struct error error;
    CURLU *handle;
    if (target_read(&handle, text, false, &error) == OK) {
        check_host(handle);
        curl_url_cleanup(handle);
    }
    struct webhook_keys keys;
    if (webhook_keys_read(&keys, text, &error) == OK &&
        (keys.count < 1 || keys.count > WEBHOOK_KEYS_MAX))
        abort();
    free(copy);
    return 0;
}
