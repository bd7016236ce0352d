/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* packed: a file of named sections of bytes, mapped and checked: packed weights, so that a model's
 * second load need not pack again.
 *
 * It knows neither models nor kernels: what a section means is its writer's, and the key says whose
 * they are. Little-endian, in this order:
 *   head       128 bytes: magic, version, checksum of head and tables, their sizes, the key
 *   sections   80 bytes each: name, offset in the body, bytes
 *   checksums  CRC-32C of each MiB of the body (the last one may be shorter)
 *   body       from the next multiple of 4096 on; sections begin at multiples of 4096
 * A file is written under another name, synced and renamed, and never changed after that, so that
 * any number of processes may write and map at once and share the pages.
 *
 * Every byte is taken for hostile: lengths are checked against the file's, checksums against the
 * bytes. That finds damage, not malice: whoever can write the file says what the weights are.
 *
 * Thread: immutable once open; any.  Memory: owns the mapping, pointers live until packed_close. A
 * file that another process cuts short while it is mapped kills this one (SIGBUS); gguf.h has the
 * same.
 * Invariant: sections lie inside the file, do not overlap, and begin at multiples of 4096. */

#include "base/err.h"
#include "kernels/pool.h"

#include <stdatomic.h>
#include <stddef.h>

#define PACKED_VERSION 2     /* another number too when other tables pack a model's matrices */
#define PACKED_NAME_BYTES 64 /* with the final NUL */
#define PACKED_KEY_BYTES 32
#define PACKED_SECTIONS_MAX 65536
#define PACKED_PAGE 4096
#define PACKED_SUMMED_BYTES ((size_t)1 << 20) /* of the body, for one checksum */

/* Who the weights are: equal keys, equal sections. */
struct packed_key {
    unsigned char bytes[PACKED_KEY_BYTES];
};

struct packed_section {
    char name[PACKED_NAME_BYTES];
    const void *at;
    size_t bytes;
};

struct packed;

/* Maps the file and checks all of it, on the pool's threads (NULL: on this one). ERR_NOT_FOUND when
 * there is none or it has another key, ERR_CORRUPT with a sentence for one that is damaged, of
 * another version or no such file at all, ERR_IO. */
enum err packed_open(struct packed **ret_packed, const char *path, const struct packed_key *key,
                     struct pool *pool, struct error *error) MUST_CHECK;
/* The same over bytes of the caller (at a multiple of PACKED_PAGE), which must outlive it. */
enum err packed_open_bytes(struct packed **ret_packed, const void *bytes, size_t count,
                           const struct packed_key *key, struct pool *pool,
                           struct error *error) MUST_CHECK;
void packed_close(struct packed *packed); /* NULL is allowed */
/* NULL when there is none of that name. */
const struct packed_section *packed_find(const struct packed *packed, const char *name);

/* Bytes of a file of these sections. */
uint64_t packed_file_bytes(const struct packed_section *sections, size_t count);
/* Writes PATH, over what may be there, through a file beside it whose name ends in ".PID.tmp".
 * ERR_CANCELLED soon after *stop (NULL: never) becomes true; ERR_UNAVAILABLE when the disk is full,
 * ERR_CONFLICT when another thread of this process is at it. After an error PATH is as it was. */
enum err packed_write(const char *path, const struct packed_key *key,
                      const struct packed_section *sections, size_t count, const atomic_bool *stop,
                      struct error *error) MUST_CHECK;
