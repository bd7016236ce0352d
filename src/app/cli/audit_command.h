/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* audit_command: the entry that a command on a state directory adds to its trail (store/audit.h),
 * with the number of the user who runs it as the actor.
 *
 * Thread: main.
 * Memory: none. */

#include "base/err.h"

enum err audit_by_command(const char *state_dir, const char *action, const char *subject,
                          struct error *error) MUST_CHECK;
