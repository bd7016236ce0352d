/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/entry.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "QUERNCPY"
#define HEADER_BYTES 136
#define RECORD_BYTES 24
#define PLACE_BYTES 24 /* leader, serial, pieces */
#define PAGES_HEAD_BYTES 8
#define PAGE_HEAD_BYTES 8
#define PAGE_BYTES_MIN 512u
#define PAGE_BYTES_MAX 65536u

/* --- numbers --- */

static void put_u64(unsigned char *at, uint64_t value) {
    for (int i = 0; i < 8; i++) at[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get_u64(const char *at) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | (unsigned char)at[i];
    return value;
}

static void put_u32(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> 8 * i);
}

static uint32_t get_u32(const char *at) {
    uint32_t value = 0;
    for (int i = 3; i >= 0; i--) value = value << 8 | (unsigned char)at[i];
    return value;
}

/* --- writing --- */

void entry_begin(struct buf *entry, const struct entry_header *header) {
    unsigned char bytes[HEADER_BYTES] = {0};
    assert(strlen(header->nonce) == ENTRY_NONCE_BYTES - 1);
    for (size_t i = 0; i < 8; i++) bytes[i] = (unsigned char)MAGIC[i];
    put_u64(bytes + 8, header->number);
    put_u64(bytes + 16, header->leader);
    put_u64(bytes + 24, header->base);
    put_u64(bytes + 32, (uint64_t)header->unix_ms);
    memcpy(bytes + 40, header->nonce, 32);
    memcpy(bytes + 72, header->host, strnlen(header->host, ENTRY_HOST_BYTES - 1));
    buf_add(entry, bytes, sizeof bytes);
}

static void add_head(struct buf *entry, enum entry_kind kind, size_t path_bytes, uint64_t value,
                     uint64_t body_bytes) {
    unsigned char head[RECORD_BYTES] = {(unsigned char)kind};
    put_u32(head + 4, (uint32_t)path_bytes);
    put_u64(head + 8, value);
    put_u64(head + 16, body_bytes);
    buf_add(entry, head, sizeof head);
}

void entry_add(struct buf *entry, enum entry_kind kind, const char *path, uint64_t value,
               struct str body) {
    assert(strlen(path) < ENTRY_PATH_BYTES);
    add_head(entry, kind, strlen(path), value, body.bytes);
    buf_add_text(entry, path);
    buf_add_str(entry, body);
}

static void add_place(struct buf *entry, const struct entry_object *object) {
    unsigned char bytes[PLACE_BYTES];
    put_u64(bytes, object->leader);
    put_u64(bytes + 8, object->serial);
    put_u64(bytes + 16, object->piece_bytes);
    buf_add(entry, bytes, sizeof bytes);
}

void entry_add_object(struct buf *entry, const char *path, uint64_t bytes,
                      const struct entry_object *object) {
    add_head(entry, ENTRY_OBJECT, strlen(path), bytes, PLACE_BYTES + SHA256_BYTES);
    buf_add_text(entry, path);
    add_place(entry, object);
    buf_add(entry, object->sha256, sizeof object->sha256);
}

void entry_add_base(struct buf *entry, uint64_t first, const struct entry_object *base) {
    add_head(entry, ENTRY_BASE, 0, first, PLACE_BYTES);
    add_place(entry, base);
}

size_t entry_begin_pages(struct buf *entry, uint32_t page_bytes) {
    unsigned char head[PAGES_HEAD_BYTES] = {0};
    size_t at = entry->bytes;
    add_head(entry, ENTRY_PAGES, 0, 0, 0);
    put_u32(head, page_bytes);
    buf_add(entry, head, sizeof head);
    return at;
}

void entry_add_page(struct buf *entry, uint32_t number, const void *page, uint32_t page_bytes) {
    unsigned char head[PAGE_HEAD_BYTES] = {0};
    put_u32(head, number);
    buf_add(entry, head, sizeof head);
    buf_add(entry, page, page_bytes);
}

void entry_end_pages(struct buf *entry, size_t at, uint64_t page_count) {
    put_u64((unsigned char *)entry->at + at + 8, page_count);
    put_u64((unsigned char *)entry->at + at + 16, entry->bytes - at - RECORD_BYTES);
}

void entry_end(struct buf *entry) {
    unsigned char digest[SHA256_BYTES];
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, entry->at, entry->bytes);
    sha256_end(&hash, digest);
    buf_add(entry, digest, sizeof digest);
}

/* --- paths --- */

static bool is_name(struct str name) {
    if (name.bytes == 0 || name.at[0] == '.') return false;
    for (size_t i = 0; i < name.bytes; i++) {
        char byte = name.at[i];
        bool is_good = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= '0' && byte <= '9') || byte == '-' || byte == '_' || byte == '.';
        if (!is_good) return false;
    }
    return true;
}

bool entry_path_is_good(struct str path) {
    static const char *const whole[] = {"keys.jsonl", "keys.made", "signing_key",
                                        "computed_by.jsonl"};
    size_t parts = 0;
    if (path.bytes == 0 || path.bytes >= ENTRY_PATH_BYTES) return false;
    for (size_t at = 0; at <= path.bytes; parts++) {
        size_t end = str_find_byte(path, '/', at);
        if (end == SIZE_MAX) end = path.bytes;
        if (!is_name((struct str){path.at + at, end - at})) return false;
        at = end + 1;
    }
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (str_is(path, whole[i])) return true;
    if (parts == 1)
        return str_starts_with(path, STR("audit.")) && str_ends_with(path, STR("jsonl"));
    if (parts == 2) return str_starts_with(path, STR("parts/"));
    return parts == 3 &&
           (str_starts_with(path, STR("files/")) || str_starts_with(path, STR("batches/")));
}

/* --- reading --- */

static bool read_header(struct str bytes, struct entry_header *ret_header) {
    struct entry_header header = {.number = get_u64(bytes.at + 8),
                                  .leader = get_u64(bytes.at + 16),
                                  .base = get_u64(bytes.at + 24),
                                  .unix_ms = (int64_t)get_u64(bytes.at + 32)};
    memcpy(header.nonce, bytes.at + 40, ENTRY_NONCE_BYTES - 1);
    memcpy(header.host, bytes.at + 72, ENTRY_HOST_BYTES - 1);
    for (char *at = header.host; *at; at++)
        if (*at < ' ' || *at >= 0x7f || *at == '"') *at = '?';
    *ret_header = header;
    return strspn(header.nonce, "0123456789abcdef") == ENTRY_NONCE_BYTES - 1;
}

/* Reads a record that lies in the bytes. */
static bool read_record(struct str bytes, size_t *at, struct entry_record *ret_record) {
    if (bytes.bytes - *at < RECORD_BYTES) return false;
    const char *head = bytes.at + *at;
    uint32_t path_bytes = get_u32(head + 4);
    uint64_t body_bytes = get_u64(head + 16);
    size_t left = bytes.bytes - *at - RECORD_BYTES;
    if (path_bytes >= ENTRY_PATH_BYTES || path_bytes > left || body_bytes > left - path_bytes)
        return false;
    ret_record->kind = (enum entry_kind)head[0];
    ret_record->value = get_u64(head + 8);
    memcpy(ret_record->path, head + RECORD_BYTES, path_bytes);
    ret_record->path[path_bytes] = '\0';
    ret_record->body = (struct str){head + RECORD_BYTES + path_bytes, (size_t)body_bytes};
    *at += RECORD_BYTES + path_bytes + (size_t)body_bytes;
    return strlen(ret_record->path) == path_bytes;
}

static bool pages_are_good(const struct entry_record *record) {
    if (record->body.bytes < PAGES_HEAD_BYTES) return false;
    uint32_t page_bytes = entry_page_bytes(record), number;
    bool is_power = (page_bytes & (page_bytes - 1)) == 0;
    if (!is_power || page_bytes < PAGE_BYTES_MIN || page_bytes > PAGE_BYTES_MAX) return false;
    if ((record->body.bytes - PAGES_HEAD_BYTES) % (page_bytes + PAGE_HEAD_BYTES) != 0) return false;
    if (record->value > UINT32_MAX) return false;
    const char *page;
    for (size_t i = 0; entry_page(record, i, &number, &page); i++)
        if (number == 0) return false;
    return true;
}

static bool record_is_good(const struct entry_record *record) {
    bool has_path = entry_path_is_good(str_from(record->path));
    switch (record->kind) {
    case ENTRY_WRITE: return has_path && record->value <= (uint64_t)1 << 40;
    case ENTRY_REPLACE: return has_path && record->value == 0;
    case ENTRY_OBJECT:
        return has_path && record->body.bytes == PLACE_BYTES + SHA256_BYTES &&
               record->value <= (uint64_t)1 << 50 && entry_object_of(record).piece_bytes > 0;
    case ENTRY_PAGES: return !*record->path && pages_are_good(record);
    case ENTRY_BASE: return !*record->path && record->body.bytes == PLACE_BYTES;
    }
    return false;
}

static struct str records_of(struct str bytes) {
    return (struct str){bytes.at + HEADER_BYTES, bytes.bytes - HEADER_BYTES - SHA256_BYTES};
}

enum err entry_open(struct str bytes, struct entry_header *ret_header, struct error *error) {
    unsigned char digest[SHA256_BYTES];
    struct sha256 hash;
    struct entry_record record;
    if (bytes.bytes < HEADER_BYTES + SHA256_BYTES || memcmp(bytes.at, MAGIC, 8) != 0)
        return err_set(error, ERR_CORRUPT, "it is no part of a copy");
    sha256_init(&hash);
    sha256_add(&hash, bytes.at, bytes.bytes - SHA256_BYTES);
    sha256_end(&hash, digest);
    if (memcmp(digest, bytes.at + bytes.bytes - SHA256_BYTES, SHA256_BYTES) != 0)
        return err_set(error, ERR_CORRUPT, "its sum is wrong");
    if (!read_header(bytes, ret_header))
        return err_set(error, ERR_CORRUPT, "its head names no writer");
    struct str records = records_of(bytes);
    for (size_t at = 0; at < records.bytes;) {
        size_t from = at;
        if (!read_record(records, &at, &record) || !record_is_good(&record))
            return err_set(error, ERR_CORRUPT, "the record at byte %zu cannot be used",
                           HEADER_BYTES + from);
    }
    return OK;
}

bool entry_next(struct str bytes, size_t *at, struct entry_record *ret_record) {
    struct str records = records_of(bytes);
    return *at < records.bytes && read_record(records, at, ret_record);
}

struct entry_object entry_object_of(const struct entry_record *record) {
    const char *at = record->body.at;
    struct entry_object object = {get_u64(at), get_u64(at + 8), get_u64(at + 16), {0}};
    if (record->kind == ENTRY_OBJECT) memcpy(object.sha256, at + PLACE_BYTES, SHA256_BYTES);
    return object;
}

uint32_t entry_page_bytes(const struct entry_record *pages) {
    return get_u32(pages->body.at);
}

bool entry_page(const struct entry_record *pages, size_t index, uint32_t *ret_number,
                const char **ret_page) {
    size_t step = PAGE_HEAD_BYTES + (size_t)entry_page_bytes(pages);
    if (index >= (pages->body.bytes - PAGES_HEAD_BYTES) / step) return false;
    const char *at = pages->body.at + PAGES_HEAD_BYTES + index * step;
    *ret_number = get_u32(at);
    *ret_page = at + PAGE_HEAD_BYTES;
    return true;
}

void entry_piece_name(const struct entry_object *object, uint64_t piece,
                      char ret_name[ENTRY_NAME_BYTES]) {
    snprintf(ret_name, ENTRY_NAME_BYTES, "data/%012" PRIu64 "/%08" PRIu64 ".%06" PRIu64,
             object->leader, object->serial, piece);
}
