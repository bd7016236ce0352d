/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* packed_folder: the folder in which engines keep packed weights (cpu/packed_cache.h).
 *
 * Every model has a folder of its own in it, named after its path, and its engine can write to that
 * one alone: what one model's engine leaves there never reaches another's. The server makes the
 * folders, and before the engines start it removes what is over the limit.
 *
 * Thread: any; several servers may share a folder. A file that is removed while an engine has it
 * mapped stays until that engine ends.  Memory: none. */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define PACKED_FOLDER_BYTES_DEFAULT ((int64_t)64 << 30)

/* ${XDG_CACHE_HOME:-~/.cache}/quern/packed; false when neither that nor HOME is set. */
bool packed_folder_usual(char ret_path[PATH_MAX]);
/* The folder of the model at `model_path` in `dir` (NULL: none), made when it is not there. False,
 * and a line in the log, when it cannot be had. */
bool packed_folder_of(const char *dir, const char *model_path, char ret_path[PATH_MAX]);
/* Whether there are packed weights in a model's folder. */
bool packed_folder_has(const char *path);
/* Removes packed weights, the longest unused first, until the others are at most `bytes_max`, and
 * what a writer that died an hour ago or more has left. Other files are let be. */
void packed_folder_sweep(const char *dir, uint64_t bytes_max);
