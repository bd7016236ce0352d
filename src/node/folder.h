/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* folder: removing a state directory that is no longer needed.  Thread: any. */

/* Removes the folder and what is in it, a few levels deep. What is left is harmless, so errors are
 * not the caller's. */
void folder_remove(const char *path);
