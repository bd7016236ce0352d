/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* shape_ends: how the answers ended that a batch asked to have a shape.
 *
 * A line asks for a shape by a field of grammar/asked_shape.h; the form of a tool's call is not
 * counted. The end of a line travels with its record, so that a restart counts it
 * without reading the answer. An answer is never repaired; the count of repaired answers says so.
 *
 * Thread: any; pure.
 * Memory: none kept.
 * Invariant: the counts of all ends add up to the lines that asked and have a record. */

#include "base/buf.h"
#include "protocol/request.h"

/* The end of a line that asked for a shape. `told`: how the worker says that its answer keeps the
 * shape; `body`: the answer, or the error with its envelope. */
enum shape_end shape_end_of(bool is_success, enum shape_end told, struct str body);

/* Appends {"asked":N,"valid":N,…}, or null if no line asked. */
void shape_ends_write(struct buf *buf, const uint64_t ends[SHAPE_END_COUNT]);
/* Reads the counts from the text of quality_write; all 0 if it has none, or is NULL. Returns the
 * lines that asked. */
uint64_t shape_ends_read(const char *quality, uint64_t ret_ends[SHAPE_END_COUNT]);
