/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* lead_note: a line in the state directory by which its server knows its own copy again.
 *
 *     copied_as    the nonce of the process that led last from here, and of one that was about to
 *
 * A server may go on with a copy only if the chain's last entry has one of these. An older image of
 * the directory, brought back by a snapshot of its disk, has older nonces and is refused.
 *
 * Thread: one.
 * Memory: none. */

#include "base/err.h"

#include <stdbool.h>

bool lead_note_has(const char *state_dir, const char *nonce);
/* Notes that `nonce` is about to lead, where `last` (may be empty) led; durable. */
enum err lead_note_begin(const char *state_dir, const char *last, const char *nonce,
                         struct error *error) MUST_CHECK;
/* Notes that it leads; durable. */
enum err lead_note_end(const char *state_dir, const char *nonce, struct error *error) MUST_CHECK;
