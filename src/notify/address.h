/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* address: which network addresses a webhook may go to. A receiver's URL comes from clients, so
 * what only this machine and its neighbours can reach must stay out of their reach: loopback,
 * private, link-local (where clouds keep their metadata), shared, multicast, and every way of
 * writing an IPv4 address inside an IPv6 one.
 *
 * Thread: any; pure.  Memory: none. */

#include <stdbool.h>
#include <sys/socket.h>

/* True for an address of the open internet. Of IPv6 only 2000::/3 less what is reserved in it; of
 * IPv4 all but the special-purpose blocks of RFC 6890 and the one address of Azure's metadata that
 * lies outside them. False for other families and for a structure cut short. */
bool address_is_public(const struct sockaddr *address, socklen_t bytes);
