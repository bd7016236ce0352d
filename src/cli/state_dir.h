/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>

/* state_dir: where the state directory is unless --state-dir says otherwise.  Thread: main. */

/* ${XDG_STATE_HOME:-~/.local/state}/quern, or quern-state in the working directory where neither is
 * set; empty when that is too long. */
void default_state_dir(char ret_path[PATH_MAX]);
