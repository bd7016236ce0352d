/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_names: further names of models that clients have given (POST /api/copy), one row each.
 *
 * Thread: any.
 * Memory: none kept. */

#include "store/store.h"

/* Adds the name, durably, or gives it another model. */
enum err store_model_name_put(struct store *store, struct str name, struct str model,
                              int64_t now_unix_s, struct error *error) MUST_CHECK;
/* Removes the name; none of that name is OK. */
enum err store_model_name_remove(struct store *store, struct str name,
                                 struct error *error) MUST_CHECK;
/* Calls `add`, which must copy, for each name in the order of their making. */
enum err store_model_names(struct store *store,
                           void (*add)(void *context, struct str name, struct str model),
                           void *context, struct error *error) MUST_CHECK;
