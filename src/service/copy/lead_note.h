/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* lead_note: a line in the state directory by which its server knows its own copy again.
 *
 *     copied_as    the nonce of the process that led last from here, and those of others that were
 *                  about to lead
 *
 * A process that was killed may have sent its first entry, which arrives whenever it likes: so all
 * that began in vain are kept, the latest 28.
 *
 * A server may go on with a copy only if the chain's last entry has one of these. An older image of
 * the directory, brought back by a snapshot of its disk, has older nonces and is refused.
 *
 * Thread: one.
 * Memory: none. */

#include "base/err.h"

#include <stdbool.h>

bool lead_note_has(const char *state_dir, const char *nonce);
/* Notes that `nonce` is about to lead; what was noted before stays if the server `goes_on` with its
 * own copy. Durable. */
enum err lead_note_begin(const char *state_dir, bool goes_on, const char *nonce,
                         struct error *error) MUST_CHECK;
/* Notes that it leads; durable. */
enum err lead_note_end(const char *state_dir, const char *nonce, struct error *error) MUST_CHECK;
