/* SPDX-License-Identifier: Apache-2.0 */
#include "notify/target.h"

#include "notify/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What no sound URL has unescaped, and what other parsers read in other ways. */
static bool has_strange_bytes(struct str url) {
    for (size_t i = 0; i < url.bytes; i++) {
        unsigned char byte = (unsigned char)url.at[i];
        if (byte <= ' ' || byte >= 0x7F || byte == '\\') return true;
    }
    return false;
}

/* No name of the open internet ends in a number, but resolvers may read it as an address. */
static bool last_label_is_number(const char *host) {
    size_t end = strlen(host);
    if (end > 0 && host[end - 1] == '.') end--;
    size_t start = end;
    while (start > 0 && host[start - 1] != '.') start--;
    return start < end && host[start] >= '0' && host[start] <= '9';
}

/* An IPv4 or IPv6 address that a host names by itself; the parser has rewritten short, octal and
 * hexadecimal spellings as four decimal numbers. */
static bool host_is_private_address(const char *host) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    char inside[INET6_ADDRSTRLEN] = "";
    size_t bytes = strlen(host);
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1)
        return !address_is_public((const struct sockaddr *)&v4, sizeof v4);
    if (host[0] != '[') return last_label_is_number(host);
    if (bytes < 3 || bytes - 2 >= sizeof inside) return true;
    memcpy(inside, host + 1, bytes - 2);
    return inet_pton(AF_INET6, inside, &v6.sin6_addr) != 1 ||
           !address_is_public((const struct sockaddr *)&v6, sizeof v6);
}

static bool host_is_localhost(const char *host) {
    size_t bytes = strlen(host), word = strlen("localhost");
    if (bytes > 0 && host[bytes - 1] == '.') bytes--;
    if (bytes < word || strncasecmp(host + bytes - word, "localhost", word) != 0) return false;
    return bytes == word || host[bytes - word - 1] == '.';
}

static enum err check_host(CURLU *handle, bool allow_private, struct error *error) {
    char *host = NULL, *zone = NULL;
    enum err err = OK;
    if (curl_url_get(handle, CURLUPART_HOST, &host, 0) != CURLUE_OK || !*host)
        err = err_set(error, ERR_INVALID, "it names no host");
    else if (curl_url_get(handle, CURLUPART_ZONEID, &zone, 0) == CURLUE_OK)
        err = err_set(error, ERR_INVALID, "its address has a zone");
    else if (!allow_private && (host_is_localhost(host) || host_is_private_address(host)))
        err = err_set(error, ERR_INVALID, "its host is not on the open internet");
    curl_free(host);
    curl_free(zone);
    return err;
}

static enum err check_scheme(CURLU *handle, bool allow_private, struct error *error) {
    char *scheme = NULL;
    enum err err = OK;
    if (curl_url_get(handle, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        (strcmp(scheme, "https") != 0 && !(allow_private && strcmp(scheme, "http") == 0)))
        err =
            err_set(error, ERR_INVALID, "it is not an %s URL", allow_private ? "http(s)" : "https");
    curl_free(scheme);
    return err;
}

enum err target_read(CURLU **ret_handle, struct str url, bool allow_private, struct error *error) {
    char text[TARGET_URL_BYTES_MAX + 1];
    if (url.bytes == 0 || url.bytes > TARGET_URL_BYTES_MAX)
        return err_set(error, ERR_INVALID, "it has %zu bytes, not 1 to %d", url.bytes,
                       TARGET_URL_BYTES_MAX);
    if (has_strange_bytes(url))
        return err_set(error, ERR_INVALID,
                       "it has a space, a backslash or a byte that is not ASCII");
    memcpy(text, url.at, url.bytes);
    text[url.bytes] = '\0';
    CURLU *handle = curl_url();
    if (!handle) abort();
    enum err err = OK;
    if (curl_url_set(handle, CURLUPART_URL, text, CURLU_DISALLOW_USER) != CURLUE_OK)
        err = err_set(error, ERR_INVALID, "it is not a URL, or has a user or password in it");
    if (err == OK) err = check_scheme(handle, allow_private, error);
    if (err == OK) err = check_host(handle, allow_private, error);
    if (err == OK && ret_handle)
        *ret_handle = handle;
    else
        curl_url_cleanup(handle);
    return err;
}
