/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* line_sum: the sum of a file over its lines, which stays the same when a line is erased.
 *
 * A line is its bytes with its LF; the last one may have none. The leaf of a line is SHA-256(salt,
 * line), and the sum is SHA-256 over the leaves in order, each as 64 digits and an LF. An erased
 * line is an empty line, and its leaf is the one that was written down when it was erased.
 *
 * Thread: one.
 * Memory: 1 MiB while a file is read. */

#include "base/digest.h"
#include "proof/line_salts.h"

struct line_sum {
    uint64_t lines;
    char hex[DIGEST_HEX_BYTES];
};

struct line_erased {
    uint64_t line; /* from 1 */
    char leaf[DIGEST_HEX_BYTES];
};

/* Sums an open file, whatever its position is. `erased` is in the order of lines. ERR_CORRUPT if
 * one of them is not empty, or another line has no salt; ERR_CANCELLED if *stop became true, NULL
 * is allowed. */
enum err line_sum_file(int fd, struct line_salts *salts, const struct line_erased *erased,
                       size_t erased_count, const volatile bool *stop, struct line_sum *ret_sum,
                       struct error *error) MUST_CHECK;
/* The leaf of one line. */
void line_sum_leaf(const unsigned char salt[SHA256_BYTES], struct str line,
                   char ret_leaf[DIGEST_HEX_BYTES]);
