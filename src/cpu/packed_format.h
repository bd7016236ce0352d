/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* packed_format: the bytes of a packed file (packed.h), for its reader and its writer.
 *
 * Thread: any.  Memory: none; everything is inline. */

#include "base/crc.h"
#include "cpu/packed.h"

#include <string.h>

static const char packed_magic[8] = "quernpk";

struct packed_head {
    char magic[8];
    uint32_t version;
    uint32_t crc; /* of head_bytes from the start of the file, this field taken for zero */
    uint64_t head_bytes;
    uint64_t body_bytes;
    uint32_t section_count;
    uint32_t sum_count;
    unsigned char key[PACKED_KEY_BYTES];
    unsigned char zeros[56];
};
_Static_assert(sizeof(struct packed_head) == 128, "no padding");

struct packed_entry {
    char name[PACKED_NAME_BYTES];
    uint64_t offset; /* in the body */
    uint64_t bytes;
};
_Static_assert(sizeof(struct packed_entry) == 80, "no padding");

static inline uint64_t packed_page_up(uint64_t bytes) {
    return (bytes + PACKED_PAGE - 1) / PACKED_PAGE * PACKED_PAGE;
}

static inline uint64_t packed_sum_count(uint64_t body_bytes) {
    return body_bytes / PACKED_SUMMED_BYTES + (body_bytes % PACKED_SUMMED_BYTES != 0);
}

static inline uint64_t packed_head_bytes(uint64_t section_count, uint64_t sum_count) {
    return packed_page_up(sizeof(struct packed_head) + section_count * sizeof(struct packed_entry) +
                          sum_count * sizeof(uint32_t));
}

static inline uint32_t packed_head_crc(const unsigned char *bytes, size_t head_bytes) {
    static const unsigned char zeros[sizeof(uint32_t)];
    size_t at = offsetof(struct packed_head, crc);
    uint32_t crc = crc32c(0, bytes, at);
    crc = crc32c(crc, zeros, sizeof zeros);
    return crc32c(crc, bytes + at + sizeof zeros, head_bytes - at - sizeof zeros);
}
