/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wal_check: whether the log of a database (meta.db-wal) is damaged in front of good entries.
 *
 * SQLite reads its log up to the first frame whose sum is wrong, and takes that for the end: so it
 * drops the frame that a power cut tore, which was never acknowledged. A frame that has rotted
 * looks the same to it, and everything after it is gone at the next start. But the sums of the
 * frames follow from one another: a good frame after a bad one shows that its predecessor was whole
 * once. The disk may have written the frames of the last transaction in any order before the power
 * was cut, so the rest of the transaction that has the bad frame tells nothing.
 *
 * The format is SQLite's (https://www.sqlite.org/fileformat2.html#walformat), all numbers
 * big-endian. HEADER, 32 bytes:
 *     0  u32  magic, 0x377F0682 or, where sums are of big-endian words, 0x377F0683
 *     8  u32  bytes of a page
 *    16  u32  two salts
 *    24  u32  two sums of bytes 0 to 23
 * FRAME, 24 bytes and a page:
 *     0  u32  number of the page
 *     4  u32  pages of the database after a commit; 0: the frame ends no transaction
 *     8  u32  the two salts of the header
 *    16  u32  two sums, from those before it, of bytes 0 to 7 and of the page
 *
 * Thread: any.
 * Memory: one page. */

#include "base/err.h"

#include <stdint.h>

struct wal_found {
    uint64_t bad_frame;     /* number of the first frame that SQLite does not read, from 1 */
    uint64_t commits_after; /* whole transactions after its own; 0: the log is whole */
};

/* A log that does not exist is whole. */
enum err wal_check(const char *path, struct wal_found *ret_found, struct error *error) MUST_CHECK;
