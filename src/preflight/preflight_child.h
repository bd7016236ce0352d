/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* preflight_child: preflights for clients of the API. The server opens no model file, so each one
 * is a `quern preflight` of its own, which reads the file from a descriptor and gets the engine's
 * options as the server has them; a model that runs elsewhere is counted by guessing.
 *
 * Thread: one, that lives as long as the children do.  Memory: borrows the node's options. */

#include "api/api.h"
#include "node/node.h"

struct preflight_child {
    const struct node_options *node;
};

/* An api_preflight_fn; `context` is a struct preflight_child. ERR_INVALID with the child's sentence
 * when it refuses the file; ERR_IO when it fails. A child that is stopped has ended when this
 * returns. */
enum err preflight_child_run(void *context, const struct api_preflight *preflight,
                             struct buf *ret_json, struct error *error) MUST_CHECK;
