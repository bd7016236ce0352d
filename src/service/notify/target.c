/* SPDX-License-Identifier: Apache-2.0 */
#include "notify/target.h"

#include "notify/open_internet.h"

#include <string.h>
#include <strings.h>

/* Whether a URL has bytes that must be escaped, or that parsers read in different ways. */
static bool has_strange_bytes(struct str url) {
    for (size_t i = 0; i < url.bytes; i++) {
        unsigned char byte = (unsigned char)url.at[i];
        if (byte <= ' ' || byte >= 0x7F || byte == '\\') return true;
    }
    return false;
}

/* Whether the last label begins with a digit: no such name is on the open internet, but resolvers
 * may read it as an address. */
static bool last_label_is_number(const char *host) {
    size_t end = strlen(host);
    if (end > 0 && host[end - 1] == '.') end--;
    size_t start = end;
    while (start > 0 && host[start - 1] != '.') start--;
    return start < end && host[start] >= '0' && host[start] <= '9';
}

/* Whether a host is a private address, or only looks like an address. The parser has
 * rewritten short, octal and hexadecimal spellings of IPv4 as four decimal numbers. */
static bool host_is_private_address(const char *host) {
    struct address address;
    if (address_read_host(&address, str_from(host))) return !open_internet_has(&address);
    return host[0] == '[' || last_label_is_number(host);
}

static bool host_is_localhost(const char *host) {
    size_t bytes = strlen(host), word = strlen("localhost");
    if (bytes > 0 && host[bytes - 1] == '.') bytes--;
    if (bytes < word || strncasecmp(host + bytes - word, "localhost", word) != 0) return false;
    return bytes == word || host[bytes - word - 1] == '.';
}

static enum err check_parts(const struct net_url *url, bool allow_private, struct error *error) {
    const char *scheme = net_url_part(url, NET_URL_SCHEME);
    const char *host = net_url_part(url, NET_URL_HOST);
    if (strcmp(scheme, "https") != 0 && !(allow_private && strcmp(scheme, "http") == 0))
        return err_set(error, ERR_INVALID, "it is not an %s URL",
                       allow_private ? "http(s)" : "https");
    if (!host || !*host) return err_set(error, ERR_INVALID, "it names no host");
    if (net_url_part(url, NET_URL_ZONE))
        return err_set(error, ERR_INVALID, "its address has a zone");
    if (!allow_private && (host_is_localhost(host) || host_is_private_address(host)))
        return err_set(error, ERR_INVALID, "its host is not on the open internet");
    return OK;
}

enum err target_read(struct net_url **ret_url, struct str text, bool allow_private,
                     struct error *error) {
    char copy[TARGET_URL_BYTES_MAX + 1];
    if (text.bytes == 0 || text.bytes > TARGET_URL_BYTES_MAX)
        return err_set(error, ERR_INVALID, "it has %zu bytes, not 1 to %d", text.bytes,
                       TARGET_URL_BYTES_MAX);
    if (has_strange_bytes(text))
        return err_set(error, ERR_INVALID,
                       "it has a space, a backslash or a byte that is not ASCII");
    memcpy(copy, text.at, text.bytes);
    copy[text.bytes] = '\0';
    struct net_url *url = net_url_read(copy);
    enum err err = OK;
    if (!url || net_url_part(url, NET_URL_USER) || net_url_part(url, NET_URL_PASSWORD))
        err = err_set(error, ERR_INVALID, "it is not a URL, or has a user or password in it");
    if (err == OK) err = check_parts(url, allow_private, error);
    if (err == OK && ret_url)
        *ret_url = url;
    else
        net_url_free(url);
    return err;
}
