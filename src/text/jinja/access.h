/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* access: value.name, value[key] and value[a:b:c], as the sandbox of Jinja allows them.
 *
 * An item or attribute that is missing or hidden is an undefined value, not an error.
 *
 * Thread: as render.
 * Memory: as render. */

#include "jinja/render.h"

enum err access_attribute(struct render *render, struct value object, struct str name,
                          struct value *ret_value);
enum err access_item(struct render *render, struct value object, struct value key,
                     struct value *ret_value);
/* Bounds are ints, none or absent. ERR_INVALID for a value that has no order to slice. */
enum err access_slice(struct render *render, struct value object, struct value start,
                      struct value stop, struct value step, struct value *ret_value);
/* The value at a path such as 'a.b.0', which a filter's `attribute` gives: items by name or number,
 * one inside the other. */
enum err access_path(struct render *render, struct value object, struct str path,
                     struct value *ret_value);
