/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* batch_watch: waiting for the end of a batch, over restarts of its server.
 *
 * Thread: main.
 * Memory: none. */

#include "cli/batch_show.h"

struct batch_watch {
    const char *id;
    int64_t seconds; /* between two looks */
    bool json;       /* print each change of the batch on standard output; else draw progress */
    const volatile bool *stop;
};

/* Returns when the batch has ended. ERR_CANCELLED if *stop became true, with a sentence that says
 * how to come back; ERR_UNAVAILABLE when the server was silent for longer than the session's
 * patience. */
enum err batch_watch(struct session *session, const struct batch_watch *watch,
                     struct batch_object *ret_batch, struct error *error) MUST_CHECK;
