/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* line_sum: the sum of a file over its lines, which stays the same when a line is erased.
 *
 * A line is its bytes with its LF; the last one may have none. The leaf of a line is SHA-256(salt,
 * line), and the sum is SHA-256 over the leaves in order, each as 64 digits and an LF. An erased
 * line is an empty line, and its leaf is the one that was written down when it was erased.
 *
 * Thread: one per struct.
 * Memory: two digests; 1 MiB while line_sum_file reads. */

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

/* A file that comes in pieces. Zero was not begun. */
struct line_summer {
    struct line_salts *salts;
    const struct line_erased *erased, *erased_end; /* the next one */
    struct digest whole, leaf;
    bool is_in_line;
    bool is_erased; /* the line that is under way */
    uint64_t lines; /* that have ended */
};

/* Borrows the salts and `erased`, which is in the order of lines, until its end. */
void line_summer_begin(struct line_summer *summer, struct line_salts *salts,
                       const struct line_erased *erased, size_t erased_count);
/* Takes the next bytes. ERR_CORRUPT if an erased line is not empty, or another has no salt. */
enum err line_summer_add(struct line_summer *summer, struct str piece,
                         struct error *error) MUST_CHECK;
/* The sum; ERR_CORRUPT if an erased line lies behind the end. Releases the summer in each case. */
enum err line_summer_end(struct line_summer *summer, struct line_sum *ret_sum,
                         struct error *error) MUST_CHECK;
/* Drops a sum that is not wanted; one that was not begun, or has ended, is allowed. */
void line_summer_release(struct line_summer *summer);

/* Sums an open file, whatever its position is. `erased` is in the order of lines. ERR_CORRUPT if
 * one of them is not empty, or another line has no salt; ERR_CANCELLED if *stop became true, NULL
 * is allowed. */
enum err line_sum_file(int fd, struct line_salts *salts, const struct line_erased *erased,
                       size_t erased_count, const volatile bool *stop, struct line_sum *ret_sum,
                       struct error *error) MUST_CHECK;
/* The leaf of one line. */
void line_sum_leaf(const unsigned char salt[SHA256_BYTES], struct str line,
                   char ret_leaf[DIGEST_HEX_BYTES]);
