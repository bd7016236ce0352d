/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* packed_folder: the folder in which engines keep packed weights (cpu/tiled_cache.h).
 *
 * Every model has a subfolder, named after its path, and its engine can write to no other. So a bad
 * model file cannot change the weights of another model. The server makes the subfolders, and
 * before the engines start it removes files over the limit. A file that is removed while an engine
 * has it mapped lives until that engine ends.
 *
 * Thread: any; several servers may share a folder.
 * Memory: the heap during a sweep; nothing is kept. */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define PACKED_FOLDER_BYTES_DEFAULT ((int64_t)64 << 30)

/* ${XDG_CACHE_HOME:-~/.cache}/quern/packed; false if neither variable is set. */
bool packed_folder_usual(char ret_path[PATH_MAX]);
/* The subfolder of `dir` for the model at `model_path`, which is made if it does not exist. False
 * without `dir`; false and a line in the log if it cannot be made. */
bool packed_folder_of(const char *dir, const char *model_path, char ret_path[PATH_MAX]);
/* Whether a model's subfolder has packed weights. */
bool packed_folder_has(const char *path);
/* Removes packed weights, the longest unused first, until the others have at most `bytes_max`. Also
 * removes unfinished files that are an hour old. Files of other kinds stay. */
void packed_folder_sweep(const char *dir, uint64_t bytes_max);
