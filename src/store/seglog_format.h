/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seglog_format: the bytes of a segment. All numbers are little endian.
 *
 * Segment header, 128 bytes:
 *   0 magic u32 "QSEG" | 4 version u32 | 8 index u32 | 12 zero u32 | 16 first sequence u64
 *   24 batch u64 | 32 batch id, 40 bytes with NULs | 72 input sha256, 32 bytes | 104 zero
 *   124 crc32c u32 of the 124 bytes before it
 * Record: a header of 48 bytes and `bytes` bytes after it:
 *   0 magic u32 "QREC" | 4 crc32c u32 of everything after it | 8 bytes u32 | 12 kind u8
 *   13 flags u8 | 14 attempt u16 | 16 line u64 | 24 sequence u64 | 32 batch u64 | 40 epoch u32
 *   44 hash of the answer u32; its marks are the upper four bits of flags | 48 the text, then with
 * flag SEGLOG_HAS_USAGE four u32: input, cached, output and reasoning tokens Zeros where a magic
 * should be are the clean end of a preallocated segment.
 *
 * Thread: any; pure.  Memory: the caller's. */

#include "store/seglog.h"

#define SEGLOG_HEADER_BYTES 128
#define SEGLOG_RECORD_BYTES 48
#define SEGLOG_USAGE_BYTES 16
#define SEGLOG_BATCH_ID_BYTES 40
#define SEGLOG_HAS_USAGE 1u
#define SEGLOG_REUSED 2u /* the usage is that of an equal request, and nothing was computed */

struct segment_header {
    uint32_t index;
    uint64_t first_sequence;
    uint64_t batch_sequence;
    char batch_id[SEGLOG_BATCH_ID_BYTES];
    unsigned char input_sha256[SHA256_BYTES];
};

void segment_header_write(unsigned char ret_bytes[SEGLOG_HEADER_BYTES],
                          const struct segment_header *header);
/* False for anything that segment_header_write does not write. */
bool segment_header_read(const unsigned char bytes[SEGLOG_HEADER_BYTES],
                         struct segment_header *ret_header);

struct record_header {
    uint32_t crc;
    uint32_t bytes; /* after the header */
    enum seglog_kind kind;
    bool has_usage;
    uint8_t marks;
    uint32_t answer;
    bool is_reused;
    uint16_t attempt;
    uint64_t line;
    uint64_t sequence;
    uint64_t batch_sequence;
    uint32_t epoch;
};

/* Appends a whole record with sequence and crc 0, for record_seal to fill in. */
void record_write(struct buf *buf, const struct seglog_record *record, uint64_t batch_sequence);
/* `record` is a whole record of `bytes` bytes. */
void record_seal(char *record, size_t bytes, uint64_t sequence);
/* False for what cannot be a record's header, whatever follows it. */
bool record_header_read(const unsigned char bytes[SEGLOG_RECORD_BYTES],
                        struct record_header *ret_header);
struct usage record_usage_read(const unsigned char bytes[SEGLOG_USAGE_BYTES], bool is_reused);
