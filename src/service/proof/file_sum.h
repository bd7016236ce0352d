/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* file_sum: the SHA-256 of a file, and notes of those of large files, so that a model of 17 GB is
 * not read at each run.
 *
 * A note is a small file in ${XDG_CACHE_HOME:-~/.cache}/quern/sums: the sum of the file's path, its
 * sum, size, time of the last change in ns, and inode. It counts while the file has these. The
 * first three digits of the path's sum name it, so that there are 4096 notes at most. A file that
 * was changed in the last seconds gets no note: one more change might leave its time as it is.
 *
 * Thread: any.
 * Memory: 1 MiB while a file is read. */

#include "base/digest.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* What tells that a file is still the same, without its bytes. */
struct file_facts {
    uint64_t bytes;
    int64_t changed_ns;
    uint64_t inode;
};

/* The error says what the path is: nothing, a folder, a FIFO. Waits for no writer of a FIFO. */
enum err file_facts_find(const char *path, struct file_facts *ret_facts,
                         struct error *error) MUST_CHECK;
/* As file_facts_find; false if the path is no file. */
bool file_facts_read(const char *path, struct file_facts *ret_facts);
bool file_facts_are_same(const struct file_facts *a, const struct file_facts *b);

/* Reads the whole file. ERR_CANCELLED if *stop became true; NULL is allowed. */
enum err file_sum(const char *path, char ret_hex[DIGEST_HEX_BYTES], const volatile bool *stop,
                  struct error *error) MUST_CHECK;
/* As file_sum, or by a note. */
enum err file_sum_noted(const char *path, char ret_hex[DIGEST_HEX_BYTES], const volatile bool *stop,
                        struct error *error) MUST_CHECK;
