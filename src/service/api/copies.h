/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* copies: what clients see of the copy in object storage: answers wait for it, the metrics and
 * /v1/machine tell of it.
 *
 * Thread: any.
 * Memory: none. */

#include "api/api_internal.h"

/* http_options.hold; `context` is the api. */
const char *copies_hold(void *context, const struct http_route *route, bool is_done);
void copies_write_metrics(struct api *api, struct buf *buf);
/* Adds the member "copy" to an object that has members before it; null without a copy. */
void copies_write_json(struct api *api, struct buf *buf);
