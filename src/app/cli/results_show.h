/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* results_show: the results of a batch brought to a file or to standard output: the work of `quern
 * results` and of `quern submit -o`.
 *
 * Thread: main.
 * Memory: see client/results.h. */

#include "cli/session.h"

struct results_wish {
    const char *output; /* NULL or "-": standard output */
    bool overwrite;
};

/* Refuses an output that may not be written, before anything is asked of the server. */
enum err results_show_check(struct session *session, const struct results_wish *wish,
                            const char *batch_id, bool *ret_is_finished,
                            struct error *error) MUST_CHECK;
/* Brings the lines that exist. */
enum err results_show(struct session *session, const struct results_wish *wish,
                      const struct batch_object *batch, struct error *error) MUST_CHECK;
