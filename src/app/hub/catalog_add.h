/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* catalog_add: puts a model of the user's into the model folder, as a link to where it lies.
 *
 * Thread: any.
 * Memory: none. */

#include "base/err.h"

/* Makes a GGUF file, or a folder with a config.json, known as `name` (NULL: as the path calls it).
 * ERR_INVALID: the path is neither, or the name is no part of a path; ERR_CONFLICT: the name is
 * taken. */
enum err catalog_add(const char *path, const char *name, struct error *error) MUST_CHECK;
