/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fetched_lines: the requests, or the results, of a server's batch written to a file.
 *
 * A batch of a quern server that still runs gives the results that exist so far.
 *
 * Thread: main.
 * Memory: one line. */

#include "client/remote.h"
#include "client/remote_batches.h"

enum fetched_part { FETCHED_REQUESTS, FETCHED_RESULTS };

/* Writes to `fd` from its place on, a line per request or result. Errors of client/results.h and
 * of the file; the file then has a part. */
enum err fetched_lines(struct remote *remote, const struct batch_object *batch,
                       enum fetched_part part, int fd, struct error *error) MUST_CHECK;
