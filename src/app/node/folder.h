/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* folder: the removal of a state directory that is no longer needed.
 *
 * Thread: any.
 * Memory: the stack. */

/* Removes the folder with its content, at most 8 levels deep. It returns no error, because
 * leftovers are harmless. */
void folder_remove(const char *path);
/* As folder_remove, with the file `last` in it after all else: a lock, which the caller holds. */
void folder_remove_but(const char *path, const char *last);
