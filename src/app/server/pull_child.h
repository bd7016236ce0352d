/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_child: models fetched for clients of the API, by `quern pull` in a process of its own, and
 * served from then on.
 *
 * Thread: any number at a time; each call lasts as long as its process.
 * Memory: a line of the process at a time. */

#include "api/api.h"
#include "node/node.h"

/* Reads a line of `quern pull --events`. False if it tells no progress. */
bool pull_child_read_line(struct str line, uint64_t *ret_done, uint64_t *ret_total);
/* An api_pull_fn; `context` is the node. */
enum err pull_child_run(void *context, const struct api_pull *pull, struct error *error) MUST_CHECK;
