/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erase_batches: `quern erase` of batches of a server, which erases the lines itself
 * (service/batch/erase.h).
 *
 * Thread: main.
 * Memory: none is kept. */

#include "cli/command.h"
#include "cli/session.h"
#include "dossier/line_ids.h"

/* Whether an operand of the command is the id of a batch, and no file of this machine. */
bool erase_batches_is_id(const char *operand);
/* ERR_INVALID unless all operands are ids of batches. */
enum err erase_batches_check(struct command_call *call, const struct session_choice *choice,
                             struct error *error) MUST_CHECK;
/* Erases the lines of the ids in all batches of the operands, and prints what was erased. */
enum err erase_batches_run(struct command_call *call, const struct session_choice *choice,
                           const struct line_ids *ids, const char *reason,
                           struct error *error) MUST_CHECK;
