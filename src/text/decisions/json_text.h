/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* json_text: a JSON value as a text that a model reads.
 *
 * json/json.h writes ASCII for programs. A model reads raw characters, and numbers in the fewest
 * digits: 0.1 and not 0.10000000000000001. Keys keep the order in which the client sent them.
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"

#include <jansson.h>

/* The size of a value, in containers and values. */
struct json_size {
    uint32_t depth; /* containers inside each other; 0: a scalar */
    uint64_t values;
};

/* Counts to `depth_max` containers at most: deeper ones only set `depth` to depth_max + 1. */
struct json_size json_size_of(const json_t *value, uint32_t depth_max);

/* Append the value: compact without spaces, spaced with one behind each comma and colon, as Python
 * writes JSON. Its depth must be bounded, by json_read or json_size_of. */
void json_text_write(struct buf *buf, const json_t *value);
void json_text_write_spaced(struct buf *buf, const json_t *value);
/* Appends a finite number in the fewest digits that read back as the same double; 2 is "2.0". */
void json_text_write_number(struct buf *buf, double number);
