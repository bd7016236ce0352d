/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_request: a request's body as an upstream shall get it: the bytes the client wrote, but
 * for the name of the model where the upstream has another one, and for a stream's usage, which is
 * always asked for.  Thread: any; pure. */

#include "base/buf.h"

/* Appends the body. `model`, when not NULL, takes the place of the model's name. *ret_wants_usage
 * tells, for a stream, whether the client asked for the usage chunk itself. */
void upstream_request_write(struct buf *buf, struct str body, const char *model, bool is_stream,
                            bool *ret_wants_usage);
/* The model a body names, decoded into `scratch` or a view; empty when there is none. */
struct str upstream_request_model(struct str body, struct buf *scratch);
