/* SPDX-License-Identifier: Apache-2.0 */
#include "http/origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#define ADDRESS_BYTES_MAX 64 /* more than INET6_ADDRSTRLEN */

static bool equals(struct str text, const char *other) {
    return text.bytes == strlen(other) && strncasecmp(text.at, other, text.bytes) == 0;
}

static bool ends_with(struct str text, const char *end) {
    size_t bytes = strlen(end);
    return text.bytes > bytes && strncasecmp(text.at + text.bytes - bytes, end, bytes) == 0;
}

/* "[::1]" of "[::1]:8080", "localhost" of "localhost.:80". */
static struct str without_port(struct str host) {
    if (host.bytes > 0 && host.at[0] == '[') {
        size_t end = str_find_byte(host, ']', 0);
        return end == SIZE_MAX ? host : (struct str){host.at, end + 1};
    }
    size_t colon = str_find_byte(host, ':', 0);
    if (colon != SIZE_MAX) host.bytes = colon;
    if (host.bytes > 1 && host.at[host.bytes - 1] == '.') host.bytes--;
    return host;
}

/* An address as 16 bytes, as IPv6 writes those of IPv4. False for a name. */
static bool read_address(struct str host, struct in6_addr *ret_address) {
    char text[ADDRESS_BYTES_MAX];
    struct in_addr v4;
    bool is_v6 = host.bytes > 2 && host.at[0] == '[' && host.at[host.bytes - 1] == ']';
    if (is_v6) host = (struct str){host.at + 1, host.bytes - 2};
    if (host.bytes == 0 || host.bytes >= sizeof text) return false;
    memcpy(text, host.at, host.bytes);
    text[host.bytes] = '\0';
    if (is_v6 || strchr(text, ':')) return inet_pton(AF_INET6, text, ret_address) == 1;
    if (inet_pton(AF_INET, text, &v4) != 1) return false;
    memset(ret_address, 0, sizeof *ret_address);
    memset(ret_address->s6_addr + 10, 0xff, 2);
    memcpy(ret_address->s6_addr + 12, &v4, sizeof v4);
    return true;
}

static bool is_loopback(const struct in6_addr *address) {
    if (IN6_IS_ADDR_V4MAPPED(address)) return address->s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(address);
}

static bool is_any(const struct in6_addr *address) {
    static const unsigned char none[4] = {0};
    if (IN6_IS_ADDR_V4MAPPED(address)) return memcmp(address->s6_addr + 12, none, 4) == 0;
    return IN6_IS_ADDR_UNSPECIFIED(address);
}

bool origin_host_is_known(const struct origin_rules *rules, struct str host) {
    struct in6_addr address, own;
    if (host.bytes == 0) return true;
    host = without_port(host);
    if (equals(host, "localhost") || ends_with(host, ".localhost")) return true;
    for (size_t i = 0; i < rules->allowed_host_count; i++)
        if (equals(host, rules->allowed_hosts[i])) return true;
    if (!read_address(host, &address)) return false;
    if (is_loopback(&address)) return true;
    return read_address(str_from(rules->host), &own) &&
           (is_any(&own) || memcmp(&own, &address, sizeof own) == 0);
}

/* "host:port" of "https://host:port"; `at` is NULL for anything else, such as "null". */
static struct str authority_of(struct str origin) {
    size_t end = str_find(origin, STR("://"), 0);
    if (end == SIZE_MAX || end == 0) return (struct str){NULL, 0};
    struct str rest = str_skip(origin, end + 3);
    if (rest.bytes == 0 || str_find_byte(rest, '/', 0) != SIZE_MAX) return (struct str){NULL, 0};
    return rest;
}

enum err origin_rules_check(const struct origin_rules *rules, struct error *error) {
    for (size_t i = 0; i < rules->allowed_origin_count; i++) {
        const char *origin = rules->allowed_origins[i];
        if (strcmp(origin, "*") == 0 || authority_of(str_from(origin)).at) continue;
        return err_set(error, ERR_INVALID,
                       "--allowed-origin: '%.100s' is not an origin such as https://app.example or "
                       "http://localhost:3000, without a path, nor '*'",
                       origin);
    }
    return OK;
}

static bool is_allowed(const struct origin_rules *rules, struct str origin) {
    for (size_t i = 0; i < rules->allowed_origin_count; i++)
        if (strcmp(rules->allowed_origins[i], "*") == 0 ||
            equals(origin, rules->allowed_origins[i]))
            return true;
    return false;
}

enum origin_page origin_judge(const struct origin_rules *rules, struct str origin,
                              struct str fetch_site, struct str host) {
    if (origin.bytes > 0) {
        struct str authority = authority_of(origin);
        if (is_allowed(rules, origin)) return ORIGIN_ALLOWED;
        /* The scheme is left out: behind a proxy with TLS the page's is https, and ours http. */
        if (authority.at && authority.bytes == host.bytes &&
            strncasecmp(authority.at, host.at, host.bytes) == 0)
            return ORIGIN_OWN;
        return ORIGIN_FOREIGN;
    }
    if (fetch_site.bytes == 0 || equals(fetch_site, "none")) return ORIGIN_NO_PAGE;
    return equals(fetch_site, "same-origin") ? ORIGIN_OWN : ORIGIN_FOREIGN;
}
