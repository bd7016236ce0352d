/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* address: a numeric address of the internet, read from text or from a socket's address.
 *
 * All addresses have one form, the 16 bytes of IPv6, in which IPv4 is ::ffff:a.b.c.d. So a client
 * of 127.0.0.1 is on loopback through a socket of IPv6 as well. It knows no names and no resolver.
 *
 * Thread: any; pure.
 * Memory: none.
 * Invariant: an address that is_v4 begins with the bytes of ::ffff:0:0. */

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct address {
    unsigned char bytes[16]; /* network order */
    bool is_v4;              /* its source was IPv4, not an IPv4 address inside IPv6 */
};

/* Reads "127.0.0.1" or "::1". False, with nothing written, for a name and for a short, octal or
 * hexadecimal spelling of IPv4. */
bool address_read(struct address *ret_address, struct str text);
/* Reads an address as URLs and Host headers spell it: IPv6 in brackets, "[::1]", IPv4 without. */
bool address_read_host(struct address *ret_address, struct str host);
/* Reads the address of a socket. False for other families and for a structure cut short. */
bool address_from_socket(struct address *ret_address, const struct sockaddr *socket_address,
                         socklen_t bytes);
#define ADDRESS_TEXT_BYTES 46 /* with its NUL; INET6_ADDRSTRLEN */
/* Writes "127.0.0.1" or "::1", and returns `ret_text`. */
const char *address_write(const struct address *address, char ret_text[ADDRESS_TEXT_BYTES]);
/* Writes the address as a socket takes it, and returns its length. */
socklen_t address_to_socket(const struct address *address, uint16_t port,
                            struct sockaddr_storage *ret_socket_address);
/* Port of a socket's address; 0 for other families. */
uint16_t address_port(const struct sockaddr_storage *socket_address);

/* True if both name one host, also where only one came as IPv4. */
bool address_equals(const struct address *a, const struct address *b);
/* True for 127.0.0.0/8 and ::1: only this machine reaches it. */
bool address_is_loopback(const struct address *address);
/* True for 0.0.0.0 and ::, which stand for each address of this machine. */
bool address_is_any(const struct address *address);
