/* SPDX-License-Identifier: Apache-2.0 */
#include "store/seglog_format.h"

#include "base/crc.h"

#include <assert.h>
#include <string.h>

#define MARKS_SHIFT 4             /* shift of the marks in the flags */
#define SHAPE_SHIFT 2             /* and of the end of a shape, which has two bits */
#define SEGMENT_MAGIC 0x47455351u /* "QSEG" */
#define SEGMENT_VERSION 1u
#define RECORD_MAGIC 0x43455251u /* "QREC" */

/* The layouts are little endian, as is every machine quern is built for. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "segments are little endian");

static void put_u32(void *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static void put_u64(void *at, uint64_t value) {
    memcpy(at, &value, sizeof value);
}

static uint32_t get_u32(const void *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t get_u64(const void *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

void segment_header_write(unsigned char ret_bytes[SEGLOG_HEADER_BYTES],
                          const struct segment_header *header) {
    memset(ret_bytes, 0, SEGLOG_HEADER_BYTES);
    put_u32(ret_bytes, SEGMENT_MAGIC);
    put_u32(ret_bytes + 4, SEGMENT_VERSION);
    put_u32(ret_bytes + 8, header->index);
    put_u64(ret_bytes + 16, header->first_sequence);
    put_u64(ret_bytes + 24, header->batch_sequence);
    memcpy(ret_bytes + 32, header->batch_id, SEGLOG_BATCH_ID_BYTES);
    memcpy(ret_bytes + 72, header->input_sha256, SHA256_BYTES);
    put_u32(ret_bytes + 124, crc32c(0, ret_bytes, 124));
}

bool segment_header_read(const unsigned char bytes[SEGLOG_HEADER_BYTES],
                         struct segment_header *ret_header) {
    if (get_u32(bytes) != SEGMENT_MAGIC || get_u32(bytes + 4) != SEGMENT_VERSION) return false;
    if (get_u32(bytes + 124) != crc32c(0, bytes, 124)) return false;
    if (bytes[32 + SEGLOG_BATCH_ID_BYTES - 1] != 0) return false;
    ret_header->index = get_u32(bytes + 8);
    ret_header->first_sequence = get_u64(bytes + 16);
    ret_header->batch_sequence = get_u64(bytes + 24);
    memcpy(ret_header->batch_id, bytes + 32, SEGLOG_BATCH_ID_BYTES);
    memcpy(ret_header->input_sha256, bytes + 72, SHA256_BYTES);
    return true;
}

/* The ends of a success come first, then those of an error: two bits tell them with the kind. */
static unsigned shape_bits(enum seglog_kind kind, enum shape_end shape) {
    unsigned bits = shape;
    if (shape != SHAPE_NONE && kind != SEGLOG_SUCCESS) bits -= SHAPE_UNCHECKED;
    assert(bits <= SHAPE_UNCHECKED);
    return bits;
}

static enum shape_end shape_of(enum seglog_kind kind, unsigned bits) {
    if (bits != SHAPE_NONE && kind != SEGLOG_SUCCESS) bits += SHAPE_UNCHECKED;
    return (enum shape_end)bits;
}

void record_write(struct buf *buf, const struct seglog_record *record, uint64_t batch_sequence) {
    assert(record->text.bytes <= SEGLOG_TEXT_BYTES_MAX);
    char header[SEGLOG_RECORD_BYTES] = {0}, usage[SEGLOG_USAGE_BYTES];
    uint16_t attempt = record->attempt;
    put_u32(header, RECORD_MAGIC);
    put_u32(header + 8, (uint32_t)record->text.bytes + SEGLOG_USAGE_BYTES);
    header[12] = (char)record->kind;
    bool is_reused = record->usage.reused_input_tokens + record->usage.reused_output_tokens > 0;
    assert(record->marks < 1u << SEGLOG_MARKS);
    header[13] = (char)(SEGLOG_HAS_USAGE | (is_reused ? SEGLOG_REUSED : 0) |
                        shape_bits(record->kind, record->shape) << SHAPE_SHIFT |
                        (unsigned)record->marks << MARKS_SHIFT);
    memcpy(header + 14, &attempt, sizeof attempt);
    put_u64(header + 16, record->line);
    put_u64(header + 32, batch_sequence);
    put_u32(header + 40, record->epoch);
    put_u32(header + 44, record->answer);
    put_u32(usage, (uint32_t)record->usage.input_tokens);
    put_u32(usage + 4, (uint32_t)record->usage.cached_tokens);
    put_u32(usage + 8, (uint32_t)record->usage.output_tokens);
    put_u32(usage + 12, (uint32_t)record->usage.reasoning_tokens);
    buf_add(buf, header, sizeof header);
    buf_add_str(buf, record->text);
    buf_add(buf, usage, sizeof usage);
}

void record_seal(char *record, size_t bytes, uint64_t sequence) {
    put_u64(record + 24, sequence);
    put_u32(record + 4, crc32c(0, record + 8, bytes - 8));
}

bool record_header_read(const unsigned char bytes[SEGLOG_RECORD_BYTES],
                        struct record_header *ret_header) {
    if (get_u32(bytes) != RECORD_MAGIC) return false;
    if (bytes[12] < SEGLOG_SUCCESS || bytes[12] > SEGLOG_EXPIRED) return false;
    uint32_t count = get_u32(bytes + 8);
    bool has_usage = bytes[13] & SEGLOG_HAS_USAGE;
    if (count > SEGLOG_TEXT_BYTES_MAX + SEGLOG_USAGE_BYTES) return false;
    if (has_usage && count < SEGLOG_USAGE_BYTES) return false;
    uint16_t attempt;
    memcpy(&attempt, bytes + 14, sizeof attempt);
    *ret_header = (struct record_header){
        .crc = get_u32(bytes + 4),
        .bytes = count,
        .kind = (enum seglog_kind)bytes[12],
        .has_usage = has_usage,
        .is_reused = bytes[13] & SEGLOG_REUSED,
        .attempt = attempt,
        .line = get_u64(bytes + 16),
        .sequence = get_u64(bytes + 24),
        .batch_sequence = get_u64(bytes + 32),
        .epoch = get_u32(bytes + 40),
        .marks = bytes[13] >> MARKS_SHIFT,
        .answer = get_u32(bytes + 44),
        .shape = shape_of((enum seglog_kind)bytes[12], bytes[13] >> SHAPE_SHIFT & 3u),
    };
    return true;
}

struct usage record_usage_read(const unsigned char bytes[SEGLOG_USAGE_BYTES], bool is_reused) {
    struct usage usage = {.input_tokens = get_u32(bytes),
                          .cached_tokens = get_u32(bytes + 4),
                          .output_tokens = get_u32(bytes + 8),
                          .reasoning_tokens = get_u32(bytes + 12)};
    if (is_reused) {
        usage.reused_input_tokens = usage.input_tokens;
        usage.reused_output_tokens = usage.output_tokens;
    }
    return usage;
}
