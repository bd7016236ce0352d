/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* entry: the objects that a copy is made of, as bytes: what changed in a state directory.
 *
 * An entry of the log and a piece of a base have one layout. Little-endian:
 *
 *     0   8  "QUERNCPY"
 *     8   8  number: of the entry in the log, or of the piece in its base, from 1 on
 *    16   8  number of the entry with which its writer began to lead; epochs are ordered by it
 *    24   8  number of the log's last entry with a BASE record, 0: none
 *    32   8  time of the writer's clock, Unix ms, for people
 *    40  32  nonce of the writer's process, hex digits
 *    72  64  name of the writer's machine, padded with NULs
 *   136      records
 *   end-32   SHA-256 of all bytes before
 *
 * A record:
 *
 *     0   1  kind
 *     1   3  zeros
 *     4   4  bytes of the path
 *     8   8  value (below)
 *    16   8  bytes of the body
 *    24      path, relative to the state directory; body
 *
 *     WRITE    value: offset; the body stands there in the file
 *     REPLACE  value: 0; the body is the whole file
 *     OBJECT   value: size of the file; body: leader, serial and bytes per piece (8 each), SHA-256:
 *              the file lies in pieces below data/
 *     PAGES    no path; value: pages of the database; body: bytes per page (4), zeros (4), then per
 *              page its number (4), zeros (4) and its bytes
 *     BASE     no path; value: number of the first entry that the base needs; body: leader, serial
 *              and number of the base's pieces (8 each)
 *
 * An entry is valid if (1) its first bytes and its sum are right, (2) its nonce is hex digits,
 * (3) records fill it, (4) each has a known kind, a path that quern makes, and a body of its form.
 *
 * Thread: any.
 * Memory: records point into the entry's bytes.
 * Invariant: entry_next gives only what passed entry_open's check. */

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"

#define ENTRY_BYTES_MAX ((size_t)1 << 30)
#define ENTRY_NONCE_BYTES 33 /* with the final NUL */
#define ENTRY_HOST_BYTES 65
#define ENTRY_PATH_BYTES 128

enum entry_kind {
    ENTRY_WRITE = 1,
    ENTRY_REPLACE,
    ENTRY_OBJECT,
    ENTRY_PAGES,
    ENTRY_BASE,
};

struct entry_header {
    uint64_t number;
    uint64_t leader;
    uint64_t base;
    int64_t unix_ms;
    char nonce[ENTRY_NONCE_BYTES];
    char host[ENTRY_HOST_BYTES];
};

/* Where an object lies: its pieces are named by it (entry_piece_name). */
struct entry_object {
    uint64_t leader, serial;
    uint64_t piece_bytes; /* for a BASE: the number of its pieces */
    unsigned char sha256[SHA256_BYTES];
};

struct entry_record {
    enum entry_kind kind;
    char path[ENTRY_PATH_BYTES];
    uint64_t value;
    struct str body;
};

/* --- writing --- */

void entry_begin(struct buf *entry, const struct entry_header *header);
void entry_add(struct buf *entry, enum entry_kind kind, const char *path, uint64_t value,
               struct str body);
void entry_add_object(struct buf *entry, const char *path, uint64_t bytes,
                      const struct entry_object *object);
void entry_add_base(struct buf *entry, uint64_t first, const struct entry_object *base);
/* A PAGES record is begun, gets its pages, and is ended: entry_begin_pages returns its offset. */
size_t entry_begin_pages(struct buf *entry, uint32_t page_bytes);
void entry_add_page(struct buf *entry, uint32_t number, const void *page, uint32_t page_bytes);
void entry_end_pages(struct buf *entry, size_t at, uint64_t page_count);
void entry_end(struct buf *entry);

/* --- reading --- */

/* Checks all of it. ERR_CORRUPT with the reason. */
enum err entry_open(struct str bytes, struct entry_header *ret_header,
                    struct error *error) MUST_CHECK;
/* The record at *at, which starts at 0 and is moved on; false behind the last one. */
bool entry_next(struct str bytes, size_t *at, struct entry_record *ret_record);
/* The body of an OBJECT or a BASE. */
struct entry_object entry_object_of(const struct entry_record *record);
uint32_t entry_page_bytes(const struct entry_record *pages);
/* Page number `index` of a record; false behind the last one. */
bool entry_page(const struct entry_record *pages, size_t index, uint32_t *ret_number,
                const char **ret_page);
/* True for a path that quern makes in a state directory and that a copy has. */
bool entry_path_is_good(struct str path);

#define ENTRY_NAME_BYTES 96
void entry_piece_name(const struct entry_object *object, uint64_t piece,
                      char ret_name[ENTRY_NAME_BYTES]);
