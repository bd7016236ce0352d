/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* preflight_child: preflights for clients of the API.
 *
 * The server opens no model file. So each preflight is a `quern preflight` of its own, which reads
 * the file from a descriptor and gets the engine's options of the server. A model that runs
 * elsewhere is counted by guessing.
 *
 * Thread: one, which lives as long as its children.
 * Memory: borrows the node's options. */

#include "api/api.h"
#include "node/node.h"

/* Exit statuses of `quern preflight` that the server tells apart; cli/exit_status.h has all. */
enum preflight_child_status {
    PREFLIGHT_CHILD_REFUSES_LINES = 1, /* the JSON is there, and some lines would be refused */
    PREFLIGHT_CHILD_USAGE = 2,
    PREFLIGHT_CHILD_UNUSABLE = 3, /* the file, or the model */
    PREFLIGHT_CHILD_NOT_FOUND = 4,
};

struct preflight_child {
    const struct node_options *node;
};

/* An api_preflight_fn; `context` is a struct preflight_child. ERR_INVALID with the child's sentence
 * if it refuses the file; ERR_IO if it fails. A child that is stopped has ended when this
 * returns. */
enum err preflight_child_run(void *context, const struct api_preflight *preflight,
                             struct buf *ret_json, struct error *error) MUST_CHECK;
