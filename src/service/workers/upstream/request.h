/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_request: a request's body as an upstream gets it: the bytes that the client wrote,
 * except for the name of the model, if the upstream has another one, and for the usage of a stream,
 * which is always asked for.
 *
 * Thread: any; pure.
 * Memory: the caller's buffers. */

#include "base/buf.h"

/* Appends the body. `model`, if not NULL, replaces the model's name. *ret_wants_usage: the client
 * itself asked for the usage chunk of its stream. */
void upstream_request_write(struct buf *buf, struct str body, const char *model, bool is_stream,
                            bool *ret_wants_usage);
/* The model that the body names, decoded into `scratch` or a view of the body; empty if none. */
struct str upstream_request_model(struct str body, struct buf *scratch);
