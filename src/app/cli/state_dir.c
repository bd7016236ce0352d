/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/state_dir.h"

#include <stdio.h>
#include <stdlib.h>

void state_dir_default(char ret_path[PATH_MAX]) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int bytes = state && *state ? snprintf(ret_path, PATH_MAX, "%s/quern", state)
                : home && *home ? snprintf(ret_path, PATH_MAX, "%s/.local/state/quern", home)
                                : snprintf(ret_path, PATH_MAX, "quern-state");
    if (bytes >= PATH_MAX) ret_path[0] = '\0';
}
