/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* open_internet: which network addresses a webhook may go to.
 *
 * Clients choose the URL of a receiver, and must not reach through the server the hosts that only
 * this machine and its neighbours can reach. So these are refused: loopback, private, link-local
 * (where clouds keep their metadata), shared and multicast addresses, and every way of writing an
 * IPv4 address inside an IPv6 one.
 *
 * Thread: any; pure.
 * Memory: none. */

#include "base/address.h"

/* True for an address of the open internet. IPv6: 2000::/3 without the blocks reserved in it. IPv4:
 * all except the special-purpose blocks of RFC 6890, and except Azure's metadata address, which
 * lies outside them. */
bool open_internet_has(const struct address *address);
