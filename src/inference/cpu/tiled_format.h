/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tiled_format: the bytes of a file of tiled weights, for its reader and its writer.
 *
 * All numbers are unsigned and little-endian.
 *
 * HEAD, 128 bytes:
 *
 *     0   8 bytes   magic, the characters "quernpk" and a NUL
 *     8   u32       version, TILED_VERSION
 *    12   u32       CRC-32C of the first head_bytes bytes, with zeros in place of this field
 *    16   u64       head_bytes: offset of the body, a multiple of 4096
 *    24   u64       body_bytes: bytes of the body
 *    32   u32       section_count
 *    36   u32       sum_count: MiB of the body, rounded up
 *    40   32 bytes  key
 *    72   56 bytes  zeros; read only by the CRC
 *
 * SECTIONS, from 128 on, section_count times 80 bytes:
 *
 *    +0   64 bytes  name, ended and filled up with NULs
 *   +64   u64       offset in the body, a multiple of 4096
 *   +72   u64       bytes
 *
 * CHECKSUMS, behind the sections, sum_count times 4 bytes:
 *
 *    +0   u32       CRC-32C of one MiB of the body; the last one may cover less
 *
 * BODY, from head_bytes on: the sections, with zeros between them.
 *
 * A file is valid if
 *   (1) magic and version are these, and section_count is at most TILED_SECTIONS_MAX;
 *   (2) head_bytes is 128 and both tables, rounded up to 4096; sum_count fits body_bytes; and
 *       head_bytes and body_bytes together are the file's size;
 *   (3) the CRC of the head is right;
 *   (4) every section has a name with zeros behind it, begins at a multiple of 4096 behind the
 *       section before it, and ends inside the body; and
 *   (5) every checksum is that of its bytes.
 * A valid file is used when its key is the one asked for; the key is compared after (3).
 *
 * Thread: any.
 * Memory: none; everything is inline. */

#include "base/crc.h"
#include "cpu/tiled.h"

#include <string.h>

static const char tiled_magic[8] = "quernpk";

struct tiled_head {
    char magic[8];
    uint32_t version;
    uint32_t crc;
    uint64_t head_bytes;
    uint64_t body_bytes;
    uint32_t section_count;
    uint32_t sum_count;
    unsigned char key[TILED_KEY_BYTES];
    unsigned char zeros[56];
};
_Static_assert(sizeof(struct tiled_head) == 128, "no padding");

struct tiled_entry {
    char name[TILED_NAME_BYTES];
    uint64_t offset;
    uint64_t bytes;
};
_Static_assert(sizeof(struct tiled_entry) == 80, "no padding");

static inline uint64_t tiled_page_up(uint64_t bytes) {
    return (bytes + TILED_PAGE - 1) / TILED_PAGE * TILED_PAGE;
}

static inline uint64_t tiled_sum_count(uint64_t body_bytes) {
    return body_bytes / TILED_SUMMED_BYTES + (body_bytes % TILED_SUMMED_BYTES != 0);
}

static inline uint64_t tiled_head_bytes(uint64_t section_count, uint64_t sum_count) {
    return tiled_page_up(sizeof(struct tiled_head) + section_count * sizeof(struct tiled_entry) +
                         sum_count * sizeof(uint32_t));
}

static inline uint32_t tiled_head_crc(const unsigned char *bytes, size_t head_bytes) {
    static const unsigned char zeros[sizeof(uint32_t)];
    size_t at = offsetof(struct tiled_head, crc);
    uint32_t crc = crc32c(0, bytes, at);
    crc = crc32c(crc, zeros, sizeof zeros);
    return crc32c(crc, bytes + at + sizeof zeros, head_bytes - at - sizeof zeros);
}
