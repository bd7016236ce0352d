/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seglog_format: the bytes of a segment, one file of a batch's results.
 *
 * A segment is a header and then records without gaps, up to the end of the file or to zeros: space
 * is taken from the disk before it is used, so that zeros where a magic is due are a clean end.
 * All numbers are unsigned and little-endian.
 *
 * SEGMENT HEADER, 128 bytes:
 *
 *     0   u32       magic, the characters "QSEG"
 *     4   u32       version, 1
 *     8   u32       index of the segment, from 1 on; the file is called "seg-<index>.log"
 *    12   u32       zero
 *    16   u64       sequence number that the first record gets
 *    24   u64       number of the batch: the sequence of its row in meta.db
 *    32   40 bytes  id of the batch, ended and filled up with NULs
 *    72   32 bytes  SHA-256 of the batch's input file
 *   104   20 bytes  zero
 *   124   u32       CRC-32C of bytes 0 to 123
 *
 * A segment header is valid if
 *   (1) magic and version are these,
 *   (2) the CRC is that of the 124 bytes before it, and
 *   (3) the id of the batch ends with a NUL.
 * The segment is the batch's if also index, batch number, batch id and SHA-256 are those of the
 * file's name and of the batch. Bytes 12 and 104 to 123 are covered by the CRC and not looked at.
 *
 * RECORD, 48 bytes and then `bytes` bytes:
 *
 *     0   u32       magic, the characters "QREC"
 *     4   u32       CRC-32C of everything from offset 8 to the record's end
 *     8   u32       bytes: length of the text and the token counts behind it
 *    12   u8        kind (enum seglog_kind): 1 success, 2 error, 3 cancelled, 4 expired
 *    13   u8        flags:
 *                     bit 0     SEGLOG_HAS_USAGE: token counts stand behind the text
 *                     bit 1     SEGLOG_REUSED: the answer is that of an equal request before
 *                     bit 2, 3  how an answer with a shape ended (enum shape_end): 0 no shape;
 *                               with kind 1: 1 valid, 2 truncated, 3 unchecked;
 *                               with another kind: 1 refused, 2 mismatched, 3 failed
 *                     bit 4-7   marks: bit 4 + m is mark m (enum seglog_mark)
 *    14   u16       attempt: how often the line had failed or gone down with a worker; 0 at first
 *    16   u64       line: index of the request in the input file, from 0 on
 *    24   u64       sequence number: from 1 on, one more per record of the batch
 *    32   u64       number of the batch
 *    40   u32       epoch: the batch's count of starts when the record was written
 *    44   u32       hash of the answer's text; 0: none
 *    48   text      the line of the output or error file, with its LF
 *                   then, with SEGLOG_HAS_USAGE, 16 bytes:
 *    +0   u32       input tokens
 *    +4   u32       cached tokens
 *    +8   u32       output tokens
 *   +12   u32       reasoning tokens
 *
 * Every record that is written has token counts; zeros when no model worked.
 *
 * A record is valid if
 *   (1) the magic is there, the kind is 1 to 4;
 *   (2) `bytes` is at most SEGLOG_TEXT_BYTES_MAX + 16, at least 16 with SEGLOG_HAS_USAGE, and the
 *       record ends inside the file;
 *   (3) the batch number is the batch's and the line is one of its lines;
 *   (4) the sequence number is higher than that of every valid record before it, in this segment or
 *       an earlier one, and is not the highest number of 64 bits; and
 *   (5) the CRC is that of the bytes it covers.
 *
 * READING A LOG (seglog_scan.c). Take the segments by ascending index. Leave one that is another
 * batch's alone. In every other, also where the header is damaged, start at offset 128. Where a
 * valid record stands, take it and go on behind it; the first record of a line counts, a later one
 * is a duplicate. Where none stands, look for the next "QREC" that begins a valid record:
 *   - there is one: go on with it. The bytes before it are damage, to be reported; but not where
 *     a sector of 512 bytes was never written, which is zeros from the first of these bytes to the
 *     sector's end, or a whole sector of zeros: a group that a power cut tore. The log went on
 *     behind it since, so that it may be in any segment;
 *   - none, in the last segment with a good header: the records end here. Bytes that are not all
 *     zero are a torn tail and cut off. The log goes on at this offset;
 *   - none, in an earlier segment, with bytes left: damage; report it;
 *   - none at all in the last segment, and no good header: it was being made; remove the file.
 * Damage is never overwritten and never removed. Its lines have no record, so that they run again.
 * The search is bounded: it sums at most 4 times the segment's bytes and 1 MiB.
 *
 * Thread: any; pure.
 * Memory: the caller's. */

#include "store/seglog.h"

#define SEGLOG_HEADER_BYTES 128
#define SEGLOG_RECORD_BYTES 48
#define SEGLOG_USAGE_BYTES 16
#define SEGLOG_BATCH_ID_BYTES 40
#define SEGLOG_HAS_USAGE 1u
#define SEGLOG_REUSED 2u /* an equal request's answer: its token counts, nothing computed */

struct segment_header {
    uint32_t index;
    uint64_t first_sequence;
    uint64_t batch_sequence;
    char batch_id[SEGLOG_BATCH_ID_BYTES];
    unsigned char input_sha256[SHA256_BYTES];
};

void segment_header_write(unsigned char ret_bytes[SEGLOG_HEADER_BYTES],
                          const struct segment_header *header);
/* False unless the header is valid by the rules above. */
bool segment_header_read(const unsigned char bytes[SEGLOG_HEADER_BYTES],
                         struct segment_header *ret_header);

struct record_header {
    uint32_t crc;
    uint32_t bytes; /* bytes of the text and the token counts */
    enum seglog_kind kind;
    bool has_usage;
    uint8_t marks;
    uint32_t answer;
    enum shape_end shape;
    bool is_reused;
    uint16_t attempt;
    uint64_t line;
    uint64_t sequence;
    uint64_t batch_sequence;
    uint32_t epoch;
};

/* Appends a whole record whose sequence number and CRC are 0 until record_seal. */
void record_write(struct buf *buf, const struct seglog_record *record, uint64_t batch_sequence);
/* Fills in the sequence number and the CRC of a whole record of `bytes` bytes. */
void record_seal(char *record, size_t bytes, uint64_t sequence);
/* Checks rule (1) and the lengths of rule (2); false when one is broken. */
bool record_header_read(const unsigned char bytes[SEGLOG_RECORD_BYTES],
                        struct record_header *ret_header);
struct usage record_usage_read(const unsigned char bytes[SEGLOG_USAGE_BYTES], bool is_reused);
