/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pairs: the requests of a batch, each with its result.
 *
 * Results may come in any order and in several files; of two results with one custom_id the later
 * one counts. The places of all results are read first; then the requests pass in their order.
 *
 * Thread: one.
 * Memory: 24 bytes, the custom_id and a map entry per result; one request with its result. The
 *     caller owns the files. */

#include "base/err.h"
#include "base/str.h"

#include <jansson.h>
#include <stdint.h>

struct pairs;

/* Valid until the next pair. */
struct pair {
    struct str custom_id;
    const json_t *body; /* body of the request; NULL: it has none */
    struct str result;  /* the line; empty: the request has no result */
};

/* Reads the places of the results. ERR_INVALID, with its number, for a line that is no result. */
enum err pairs_open(struct pairs **ret_pairs, int requests_fd, const int *result_fds,
                    size_t result_count, struct error *error) MUST_CHECK;
void pairs_close(struct pairs *pairs); /* NULL is allowed */
/* Goes back to the first pair. */
enum err pairs_rewind(struct pairs *pairs, struct error *error) MUST_CHECK;
/* After the last pair: results that no request asked for, and earlier ones of two. */
uint64_t pairs_unused(const struct pairs *pairs);
/* Moves to the next pair; *ret_has is false past the last one. */
enum err pairs_next(struct pairs *pairs, struct pair *ret_pair, bool *ret_has,
                    struct error *error) MUST_CHECK;
