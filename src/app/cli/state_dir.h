/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* state_dir: the usual place of the state directory, without --state-dir.
 *
 * Thread: main.
 * Memory: the caller's. */

#include <limits.h>

/* ${XDG_STATE_HOME:-~/.local/state}/quern, or quern-state in the working directory if neither
 * XDG_STATE_HOME nor HOME is set. Empty if the path is too long. */
void state_dir_default(char ret_path[PATH_MAX]);
