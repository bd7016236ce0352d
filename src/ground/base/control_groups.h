/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* control_groups: the control groups of Linux that this process is in, of versions 1 and 2.
 *
 * It knows no limit: who looks reads the files of a group.
 *
 * Thread: any. It reads files of /proc, so a sandboxed process asks before it is one.
 * Memory: none. */

#include <stdbool.h>

/* `group` is the path below the controller's folder; "" is its root. */
typedef void control_group_look(void *context, bool is_version_2, const char *group);

/* Calls `look` for the group in which this process has the controller (such as "memory"), and for
 * each one around it, up to the root. In a container the path is the host's and its files are not
 * here; the root is the container's own group there. `root` is where the system's files lie, "". */
void control_groups_each(const char *root, const char *controller, control_group_look *look,
                         void *context);
