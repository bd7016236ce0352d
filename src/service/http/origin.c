/* SPDX-License-Identifier: Apache-2.0 */
#include "http/origin.h"

#include "base/address.h"

#include <string.h>
#include <strings.h>

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

bool origin_host_is_known(const struct origin_rules *rules, struct str host) {
    struct address address, own;
    if (host.bytes == 0) return true;
    host = without_port(host);
    if (equals(host, "localhost") || ends_with(host, ".localhost")) return true;
    for (size_t i = 0; i < rules->allowed_host_count; i++)
        if (equals(host, rules->allowed_hosts[i])) return true;
    if (!address_read_host(&address, host)) return false;
    if (address_is_loopback(&address)) return true;
    return address_read(&own, str_from(rules->host)) &&
           (address_is_any(&own) || address_equals(&own, &address));
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
