/* SPDX-License-Identifier: Apache-2.0 */
#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static const unsigned char v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

static struct address from_v4(const struct in_addr *v4) {
    struct address address = {.is_v4 = true};
    memcpy(address.bytes, v4_prefix, sizeof v4_prefix);
    memcpy(address.bytes + sizeof v4_prefix, v4, sizeof *v4);
    return address;
}

static struct address from_v6(const struct in6_addr *v6) {
    struct address address = {.is_v4 = false};
    memcpy(address.bytes, v6, sizeof *v6);
    return address;
}

bool address_read(struct address *ret_address, struct str text) {
    char copy[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    if (text.bytes == 0 || text.bytes >= sizeof copy || memchr(text.at, '\0', text.bytes))
        return false;
    memcpy(copy, text.at, text.bytes);
    copy[text.bytes] = '\0';
    if (inet_pton(AF_INET, copy, &v4) == 1)
        *ret_address = from_v4(&v4);
    else if (inet_pton(AF_INET6, copy, &v6) == 1)
        *ret_address = from_v6(&v6);
    else
        return false;
    return true;
}

const char *address_write(const struct address *address, char ret_text[ADDRESS_TEXT_BYTES]) {
    _Static_assert(ADDRESS_TEXT_BYTES >= INET6_ADDRSTRLEN, "every address fits");
    if (address->is_v4)
        inet_ntop(AF_INET, address->bytes + sizeof v4_prefix, ret_text, ADDRESS_TEXT_BYTES);
    else
        inet_ntop(AF_INET6, address->bytes, ret_text, ADDRESS_TEXT_BYTES);
    return ret_text;
}

bool address_read_host(struct address *ret_address, struct str host) {
    bool in_brackets = host.bytes > 2 && host.at[0] == '[' && host.at[host.bytes - 1] == ']';
    struct address address;
    if (in_brackets) host = (struct str){host.at + 1, host.bytes - 2};
    if (!address_read(&address, host) || address.is_v4 == in_brackets) return false;
    *ret_address = address;
    return true;
}

bool address_from_socket(struct address *ret_address, const struct sockaddr *socket_address,
                         socklen_t bytes) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (socket_address->sa_family == AF_INET && bytes >= sizeof v4) {
        memcpy(&v4, socket_address, sizeof v4);
        *ret_address = from_v4(&v4.sin_addr);
        return true;
    }
    if (socket_address->sa_family == AF_INET6 && bytes >= sizeof v6) {
        memcpy(&v6, socket_address, sizeof v6);
        *ret_address = from_v6(&v6.sin6_addr);
        return true;
    }
    return false;
}

socklen_t address_to_socket(const struct address *address, uint16_t port,
                            struct sockaddr_storage *ret_socket_address) {
    memset(ret_socket_address, 0, sizeof *ret_socket_address);
    if (address->is_v4) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&v4.sin_addr, address->bytes + sizeof v4_prefix, sizeof v4.sin_addr);
        memcpy(ret_socket_address, &v4, sizeof v4);
        return sizeof v4;
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&v6.sin6_addr, address->bytes, sizeof v6.sin6_addr);
    memcpy(ret_socket_address, &v6, sizeof v6);
    return sizeof v6;
}

uint16_t address_port(const struct sockaddr_storage *socket_address) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memcpy(&v4, socket_address, sizeof v4);
    memcpy(&v6, socket_address, sizeof v6);
    if (socket_address->ss_family == AF_INET) return ntohs(v4.sin_port);
    return socket_address->ss_family == AF_INET6 ? ntohs(v6.sin6_port) : 0;
}

bool address_equals(const struct address *a, const struct address *b) {
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static bool has_v4_inside(const struct address *address) {
    return memcmp(address->bytes, v4_prefix, sizeof v4_prefix) == 0;
}

bool address_is_loopback(const struct address *address) {
    static const unsigned char loopback[16] = {[15] = 1};
    if (has_v4_inside(address)) return address->bytes[sizeof v4_prefix] == 127;
    return memcmp(address->bytes, loopback, sizeof loopback) == 0;
}

bool address_is_any(const struct address *address) {
    static const unsigned char none[16] = {0};
    size_t prefix = has_v4_inside(address) ? sizeof v4_prefix : 0;
    return memcmp(address->bytes + prefix, none, sizeof none - prefix) == 0;
}
