/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* folder_tree: the folders of a state directory that a restore fills.
 *
 * Thread: one.
 * Memory: none. */

#include "base/err.h"
#include "base/map.h"

/* True, with a name, if the directory has anything but its lock and what a file system puts
 * there. */
bool folder_tree_has_any(const char *state_dir, char *ret_name, size_t name_bytes);
/* Removes all but the lock, the mark of a restore, and the note of who led. */
enum err folder_tree_empty(const char *state_dir, struct error *error) MUST_CHECK;
/* Removes the files and parts that may be written to, and the folders of runs that `kept` lacks. */
enum err folder_tree_drop_unnamed(const char *state_dir, const struct map *kept,
                                  struct error *error) MUST_CHECK;
