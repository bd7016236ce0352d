/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* caller: who sends a request, by its key, and whether the key may use the route.
 *
 * Thread: the connection's.
 * Memory: the key is wiped after its check: no handler needs it, and no core file should have it.
 */

#include "http/server.h"

/* Fills in the caller of a request whose route is known. True if it may use the route; else the
 * request has been answered. */
bool http_caller_find(struct http_request *request);
