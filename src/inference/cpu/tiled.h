/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tiled: a file of named sections of bytes, mapped and checked: the tiled weights of a model.
 *
 * Loading a model lays its matrices out in tiles (kernels/kernels.h). This file keeps the tiles, so
 * that the next load need not lay them out again. Users know it as packed weights, and the file's
 * magic and the sentences say so too. It knows neither models nor kernels: the writer gives names
 * and a key. tiled_format.h has the bytes.
 *
 * A file is written under another name, synced and renamed, and never changed after that. So any
 * number of processes may write and map it at once and share its pages. Every byte is taken for
 * hostile: lengths are checked against the file's, checksums against the bytes. That finds damage,
 * not malice: a program that can write the file decides what the weights are.
 *
 * Thread: any; immutable once open.
 * Memory: owns the mapping; pointers live until tiled_close. A file that another process cuts short
 *     while it is mapped kills this process (SIGBUS), as with gguf.h.
 * Invariant: sections lie inside the file, do not overlap, and begin at multiples of 4096. */

#include "base/err.h"
#include "kernels/pool.h"

#include <stdatomic.h>
#include <stddef.h>

#define TILED_VERSION 2     /* grows with the format, and when a model gets other matrices */
#define TILED_NAME_BYTES 64 /* with the final NUL */
#define TILED_KEY_BYTES 32
#define TILED_SECTIONS_MAX 65536
#define TILED_PAGE 4096
#define TILED_SUMMED_BYTES ((size_t)1 << 20) /* bytes of the body per checksum */

/* Whose weights the file has: files with equal keys have equal sections. */
struct tiled_key {
    unsigned char bytes[TILED_KEY_BYTES];
};

struct tiled_section {
    char name[TILED_NAME_BYTES];
    const void *at;
    size_t bytes;
};

struct tiled;

/* Maps the file and checks all of it, on the pool's threads (NULL: on this one). ERR_NOT_FOUND for
 * no file or one with another key, ERR_CORRUPT with a sentence for a file that is damaged, has
 * another version or is of another kind, ERR_IO when it cannot be read. */
enum err tiled_open(struct tiled **ret_tiled, const char *path, const struct tiled_key *key,
                    struct pool *pool, struct error *error) MUST_CHECK;
/* tiled_open over bytes of the caller, at a multiple of TILED_PAGE, which must outlive it. */
enum err tiled_open_bytes(struct tiled **ret_tiled, const void *bytes, size_t count,
                          const struct tiled_key *key, struct pool *pool,
                          struct error *error) MUST_CHECK;
void tiled_close(struct tiled *tiled); /* NULL is allowed */
/* The section of that name, or NULL. */
const struct tiled_section *tiled_find(const struct tiled *tiled, const char *name);

/* Size of a file of these sections. */
uint64_t tiled_file_bytes(const struct tiled_section *sections, size_t count);
/* Writes or replaces PATH, through a file "PATH.PID.tmp". ERR_CANCELLED soon after *stop (NULL:
 * never) becomes true, ERR_UNAVAILABLE when the disk is full, ERR_CONFLICT when another thread of
 * this process writes PATH. After an error PATH is as it was. */
enum err tiled_write(const char *path, const struct tiled_key *key,
                     const struct tiled_section *sections, size_t count, const atomic_bool *stop,
                     struct error *error) MUST_CHECK;
