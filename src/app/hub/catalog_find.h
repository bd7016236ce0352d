/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* catalog_find: a model by its name or path, whether it can be served or not.
 *
 * Thread: any.
 * Memory: the caller's struct. */

#include "hub/catalog.h"

/* Finds the model that --model would take, or one that cannot be served: its head says why. */
enum err catalog_find(const char *name, struct model_file *ret_file,
                      struct error *error) MUST_CHECK;
