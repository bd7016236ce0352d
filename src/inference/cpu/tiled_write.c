/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/no_memory.h"
#include "base/os.h"
#include "cpu/tiled_format.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The body while it is written, one MiB at a time. */
struct body {
    int fd;
    uint64_t file_at;
    const atomic_bool *stop;
    unsigned char *waiting; /* (TILED_SUMMED_BYTES) */
    size_t waiting_bytes;
    unsigned char *sums; /* where the next checksum goes */
};

static enum err flush(struct body *body, struct error *error) {
    if (body->stop && atomic_load(body->stop))
        return err_set(error, ERR_CANCELLED, "packed weights: told to stop");
    uint32_t crc = crc32c(0, body->waiting, body->waiting_bytes);
    memcpy(body->sums, &crc, sizeof crc);
    body->sums += sizeof crc;
    enum err err =
        os_pwrite_all(body->fd, body->waiting, body->waiting_bytes, body->file_at, error);
    body->file_at += body->waiting_bytes;
    body->waiting_bytes = 0;
    return err;
}

/* Adds bytes; zeros for NULL. */
static enum err add(struct body *body, const unsigned char *bytes, size_t count,
                    struct error *error) {
    while (count > 0) {
        size_t room = TILED_SUMMED_BYTES - body->waiting_bytes;
        size_t part = count < room ? count : room;
        if (bytes) {
            memcpy(body->waiting + body->waiting_bytes, bytes, part);
            bytes += part;
        } else {
            memset(body->waiting + body->waiting_bytes, 0, part);
        }
        body->waiting_bytes += part;
        count -= part;
        enum err err = OK;
        if (body->waiting_bytes == TILED_SUMMED_BYTES) err = flush(body, error);
        if (err != OK) return err;
    }
    return OK;
}

static uint64_t body_bytes_of(const struct tiled_section *sections, size_t count) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes = tiled_page_up(bytes) + sections[i].bytes;
    return bytes;
}

uint64_t tiled_file_bytes(const struct tiled_section *sections, size_t count) {
    uint64_t body_bytes = body_bytes_of(sections, count);
    return tiled_head_bytes(count, tiled_sum_count(body_bytes)) + body_bytes;
}

/* The head and the section table in new memory of head_bytes; the checksums are zero yet. */
static unsigned char *make_head(const struct tiled_key *key, const struct tiled_section *sections,
                                size_t count, struct tiled_head *ret_head) {
    struct tiled_head head = {.version = TILED_VERSION, .section_count = (uint32_t)count};
    memcpy(head.magic, tiled_magic, sizeof head.magic);
    memcpy(head.key, key->bytes, sizeof head.key);
    head.body_bytes = body_bytes_of(sections, count);
    head.sum_count = (uint32_t)tiled_sum_count(head.body_bytes);
    head.head_bytes = tiled_head_bytes(count, head.sum_count);
    unsigned char *bytes = mem_new(1, (size_t)head.head_bytes);
    memcpy(bytes, &head, sizeof head);
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        struct tiled_entry entry = {.offset = tiled_page_up(offset), .bytes = sections[i].bytes};
        assert(strnlen(sections[i].name, TILED_NAME_BYTES) < TILED_NAME_BYTES);
        memcpy(entry.name, sections[i].name, strlen(sections[i].name));
        memcpy(bytes + sizeof head + i * sizeof entry, &entry, sizeof entry);
        offset = entry.offset + entry.bytes;
    }
    *ret_head = head;
    return bytes;
}

/* Writes and syncs the whole file. */
static enum err write_file(int fd, const struct tiled_key *key,
                           const struct tiled_section *sections, size_t count,
                           const atomic_bool *stop, struct error *error) {
    struct tiled_head head;
    unsigned char *bytes = make_head(key, sections, count, &head);
    struct body body = {.fd = fd,
                        .file_at = head.head_bytes,
                        .stop = stop,
                        .waiting = malloc(TILED_SUMMED_BYTES),
                        .sums = bytes + sizeof head + count * sizeof(struct tiled_entry)};
    if (!body.waiting) no_memory();
    enum err err = OK;
    uint64_t at = 0; /* offset in the body */
    for (size_t i = 0; i < count && err == OK; i++) {
        size_t gap = (size_t)(tiled_page_up(at) - at);
        err = add(&body, NULL, gap, error);
        if (err == OK) err = add(&body, sections[i].at, sections[i].bytes, error);
        at += gap + sections[i].bytes;
    }
    if (err == OK && body.waiting_bytes > 0) err = flush(&body, error);
    head.crc = tiled_head_crc(bytes, (size_t)head.head_bytes);
    memcpy(bytes, &head, sizeof head);
    if (err == OK) err = os_pwrite_all(fd, bytes, (size_t)head.head_bytes, 0, error);
    if (err == OK) err = os_fsync(fd, error);
    free(body.waiting);
    free(bytes);
    return err;
}

enum err tiled_write(const char *path, const struct tiled_key *key,
                     const struct tiled_section *sections, size_t count, const atomic_bool *stop,
                     struct error *error) {
    char beside[PATH_MAX];
    int fd;
    assert(count <= TILED_SECTIONS_MAX);
    if (snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof beside)
        return err_set(error, ERR_LIMIT, "packed weights: a path of %zu bytes", strlen(path));
    enum err err = os_open(&fd, beside, O_WRONLY | O_CREAT | O_EXCL, 0600, error);
    if (err != OK) return err;
    err = write_file(fd, key, sections, count, stop, error);
    os_close(fd);
    if (err == OK) err = os_rename(beside, path, error);
    if (err == OK) return os_fsync_parent(path, error);
    struct error ignored;
    if (os_unlink(beside, &ignored) != OK) return err; /* the next sweep of the folder removes it */
    return err;
}
