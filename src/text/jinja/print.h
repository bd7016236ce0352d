/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* print: values as text, as Python's str and repr and json.dumps write them.
 *
 * Thread: as render.
 * Memory: appends to the output of the rendering. */

#include "jinja/render.h"

/* str(value). */
enum err print_value(struct render *render, struct value value);
/* repr(value). */
enum err print_repr(struct render *render, struct value value);

struct json_style {
    bool ensure_ascii;
    bool sort_keys;
    bool indented;
    struct str indent;         /* indent of one level */
    struct str item_separator; /* ", " */
    struct str key_separator;  /* ": " */
};
/* json.dumps(value). ERR_INVALID for a value that JSON cannot express. */
enum err print_json(struct render *render, struct value value, const struct json_style *style);

/* strftime(format) at a moment; ERR_LIMIT when a field is too wide. */
enum err print_time(struct render *render, struct str format, int64_t unix_s);
