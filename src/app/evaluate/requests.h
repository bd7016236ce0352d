/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* requests: the lines that all models of an evaluation run: a file, or a sample of it.
 *
 * A sample has lines at equal distances, so that each part of the file is in it, and the same ones
 * each time. Lines that the caller wants first have all the places that they need, at equal
 * distances among themselves; the others share the rest.
 *
 * Thread: one.
 * Memory: one line. */

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* Which lines are wanted in a sample first. */
struct requests_wish {
    const void *context;
    bool (*is_first)(const void *context, struct str line);
};

/* Writes the requests of `input` to the new file `path`: all, or `sample` of them (0: all). Blank
 * lines are passed over. `wish` may be NULL. ERR_INVALID if there are none. */
enum err requests_write(const char *input, uint64_t sample, const struct requests_wish *wish,
                        const char *path, uint64_t *ret_lines, struct error *error) MUST_CHECK;
/* Whether the file `path` has `lines` of the requests of `input`, in their order. */
bool requests_are_of(const char *path, const char *input, uint64_t lines);
/* Makes the new file `fresh` the file `path`, or removes it if `path` has the same bytes. ERR_INVALID
 * if it has others. */
enum err requests_place(const char *fresh, const char *path, struct error *error) MUST_CHECK;
/* The requests of a file. */
enum err requests_count(const char *path, uint64_t *ret_lines, struct error *error) MUST_CHECK;
