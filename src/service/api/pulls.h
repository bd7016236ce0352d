/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pulls: models that clients have this server fetch, by Ollama's /api/pull.
 *
 * The owner of the API fetches (api_options.pull); this room says how far it is. A client that goes
 * away ends its fetch; the next one goes on where it stopped.
 *
 * Thread: one of its own per fetch, at most PULLS_MAX.
 * Memory: one small struct per fetch.
 * Invariant: each request gets one answer, or one stream with an end. */

#include "api/api_internal.h"

#define PULLS_MAX 4

struct pulls;

struct pulls *pulls_open(void);
/* Ends all fetches and waits for their threads. */
void pulls_stop(struct pulls *pulls);
void pulls_close(struct pulls *pulls); /* after pulls_stop; NULL is allowed */
