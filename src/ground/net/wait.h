/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wait: how long the headers of an answer ask a client to wait, in the spellings that servers use.
 *
 * Knows no answer's status: a limit that is used up is told in good answers too.
 *
 * Thread: that of the exchange's client.
 * Memory: none. */

#include "net/client.h"

/* Both in milliseconds from now; negative: the headers do not say. */

/* The wait of retry-after, retry-after-ms and their relatives. */
int64_t net_wait_asked_ms(const struct net_exchange *exchange);
/* The time until the last of the rate limits of which nothing remains is reset. */
int64_t net_wait_reset_ms(const struct net_exchange *exchange);
