/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* casing: facts about the case of letters that libutf8proc lacks: letters whose upper or title case
 * is several code points, and letters that have a case by property, not by category.
 *
 * Thread: any; the tables are constant.
 * Memory: none. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct casing {
    uint32_t point;
    const char *upper, *title;
};

/* NULL for a code point whose cases are one code point each. */
const struct casing *casing_find(uint32_t point);
bool casing_is_other_lower(uint32_t point);
bool casing_is_other_upper(uint32_t point);
