/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_partial.h"

#include "base/crc.h"
#include "base/mem.h"
#include "base/no_memory.h"
#include "base/os.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES_MIN ((uint64_t)8 << 20)
#define PART_BYTES_MAX ((uint64_t)1 << 30)
#define PARTS_WANTED 256

/* A file that is not whole yet has B bytes and P parts; the numbers are in this machine's byte
 * order, since no other machine reads it:
 *
 *     offset     bytes
 *     0          B        the bytes of the file, in their places
 *     B          J        journal 0: the one with even numbers
 *     B + J      J        journal 1: the one with odd numbers
 *
 * and a journal, with J = 36 + 4 P:
 *
 *     0          8        magic
 *     8          8        number, one higher with each journal
 *     16         8        B
 *     24         8        bytes of a part; the last one may have fewer
 *     32         4 P      per part, the count of bytes present from its start on
 *     32 + 4 P   4        CRC-32C of the bytes before it in this journal
 *
 * A journal is valid if (1) its magic and (2) its CRC are right, (3) both sizes are those of this
 * file, and (4) no part has more bytes than it can have. Of two valid ones the higher number
 * counts. */
struct journal_head {
    char magic[8];
    uint64_t number;
    uint64_t bytes;
    uint64_t part_bytes;
};
static const char journal_magic[8] = "quernP1";

/* The size of parts depends on the file's size alone, so that every pull finds the same parts:
 * 8 MiB, doubled while that gives more than PARTS_WANTED parts. */
static uint64_t part_bytes_of(uint64_t bytes) {
    uint64_t part_bytes = PART_BYTES_MIN;
    while (part_bytes < PART_BYTES_MAX && bytes / part_bytes > PARTS_WANTED) part_bytes *= 2;
    return part_bytes;
}

static uint32_t part_count_of(uint64_t bytes) {
    uint64_t part_bytes = part_bytes_of(bytes);
    return (uint32_t)((bytes + part_bytes - 1) / part_bytes);
}

static size_t journal_bytes(uint32_t part_count) {
    return sizeof(struct journal_head) + ((size_t)part_count + 1) * sizeof(uint32_t);
}

static enum err name_partial(char ret_path[PATH_MAX], const char *blob, struct error *error) {
    if (snprintf(ret_path, PATH_MAX, "%s.quern.incomplete", blob) >= PATH_MAX)
        return err_set(error, ERR_LIMIT, "a path in the cache is too long");
    return OK;
}

uint64_t pull_partial_from(const struct pull_partial *partial, uint32_t part) {
    return part * partial->part_bytes;
}

uint64_t pull_partial_to(const struct pull_partial *partial, uint32_t part) {
    uint64_t to = (part + 1) * partial->part_bytes;
    return to < partial->bytes ? to : partial->bytes;
}

/* --- the journal --- */

/* Reads journal `which`; true if it is valid and newer than the one read before. */
static bool read_journal(struct pull_partial *partial, int which) {
    size_t count = journal_bytes(partial->part_count), crc_at = count - sizeof(uint32_t);
    unsigned char *text = malloc(count);
    struct journal_head head;
    struct error error;
    uint32_t crc;
    uint64_t done_bytes = 0;
    if (!text) no_memory();
    bool is_good = os_pread_all(partial->fd, text, count, partial->bytes + (uint64_t)which * count,
                                &error) == OK;
    if (is_good) {
        memcpy(&head, text, sizeof head);
        memcpy(&crc, text + crc_at, sizeof crc);
        is_good = memcmp(head.magic, journal_magic, sizeof head.magic) == 0 &&
                  head.bytes == partial->bytes && head.part_bytes == partial->part_bytes &&
                  head.number >= partial->number && crc == crc32c(0, text, crc_at);
    }
    for (uint32_t i = 0; is_good && i < partial->part_count; i++) {
        uint32_t done;
        memcpy(&done, text + sizeof head + i * sizeof done, sizeof done);
        done_bytes += done;
        is_good = done <= pull_partial_to(partial, i) - pull_partial_from(partial, i);
    }
    if (is_good) {
        memcpy(partial->done, text + sizeof head, partial->part_count * sizeof(uint32_t));
        partial->number = head.number + 1;
        partial->done_bytes = done_bytes;
    }
    free(text);
    return is_good;
}

static enum err write_journal(struct pull_partial *partial, struct error *error) {
    size_t count = journal_bytes(partial->part_count), crc_at = count - sizeof(uint32_t);
    struct journal_head head = {
        .number = partial->number, .bytes = partial->bytes, .part_bytes = partial->part_bytes};
    unsigned char *text = mem_alloc(count);
    memcpy(head.magic, journal_magic, sizeof head.magic);
    memcpy(text, &head, sizeof head);
    if (partial->part_count > 0)
        memcpy(text + sizeof head, partial->done, partial->part_count * sizeof(uint32_t));
    uint32_t crc = crc32c(0, text, crc_at);
    memcpy(text + crc_at, &crc, sizeof crc);
    enum err err = os_pwrite_all(partial->fd, text, count,
                                 partial->bytes + (partial->number & 1) * count, error);
    partial->number++;
    free(text);
    return err;
}

enum err pull_partial_save(struct pull_partial *partial, struct error *error) {
    if (partial->unsaved_bytes == 0) return OK;
    enum err err = os_fdatasync(partial->fd, error);
    if (err == OK) err = write_journal(partial, error);
    if (err == OK) partial->unsaved_bytes = 0;
    return err == OK ? OK : err_prefix(error, "%.300s", partial->path);
}

/* --- opening and closing --- */

static void init(struct pull_partial *partial, uint64_t bytes) {
    partial->bytes = bytes;
    partial->part_bytes = part_bytes_of(bytes);
    partial->part_count = part_count_of(bytes);
    partial->done = mem_new(partial->part_count + 1, sizeof *partial->done);
}

/* Takes the newer valid journal; false if none is valid. */
static bool take_up(struct pull_partial *partial) {
    bool first = read_journal(partial, 0);
    bool second = read_journal(partial, 1);
    return first || second;
}

enum err pull_partial_restart(struct pull_partial *partial, struct error *error) {
    memset(partial->done, 0, partial->part_count * sizeof *partial->done);
    partial->done_bytes = partial->unsaved_bytes = 0;
    partial->ready_parts = 0;
    enum err err = os_ftruncate(partial->fd, 0, error);
    if (err == OK) err = write_journal(partial, error);
    return err == OK ? OK : err_prefix(error, "%.300s", partial->path);
}

enum err pull_partial_open(struct pull_partial *ret_partial, const char *blob, uint64_t bytes,
                           struct error *error) {
    struct pull_partial partial = {.fd = -1};
    enum err err = name_partial(partial.path, blob, error);
    if (err == OK)
        err = os_open(&partial.fd, partial.path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666, error);
    if (err != OK) return err;
    init(&partial, bytes);
    if (!take_up(&partial)) err = pull_partial_restart(&partial, error);
    if (err != OK) {
        pull_partial_close(&partial);
        return err;
    }
    *ret_partial = partial;
    return OK;
}

uint64_t pull_partial_left(const char *blob, uint64_t bytes) {
    struct pull_partial partial = {.fd = -1};
    struct error error;
    if (name_partial(partial.path, blob, &error) != OK ||
        os_open(&partial.fd, partial.path, O_RDONLY | O_NOFOLLOW, 0, &error) != OK)
        return 0;
    init(&partial, bytes);
    uint64_t left = take_up(&partial) ? partial.done_bytes : 0;
    pull_partial_close(&partial);
    return left;
}

void pull_partial_close(struct pull_partial *partial) {
    os_close(partial->fd);
    free(partial->done);
    partial->fd = -1;
    partial->done = NULL;
}

/* --- bytes --- */

enum err pull_partial_put(struct pull_partial *partial, uint64_t at, const char *bytes,
                          uint64_t count, struct error *error) {
    assert(at <= partial->bytes && count <= partial->bytes - at);
    enum err err = os_pwrite_all(partial->fd, bytes, count, at, error);
    if (err != OK) return err_prefix(error, "%.300s", partial->path);
    while (count > 0) {
        uint32_t part = (uint32_t)(at / partial->part_bytes);
        uint64_t from = pull_partial_from(partial, part), to = pull_partial_to(partial, part);
        uint64_t here = to - at < count ? to - at : count;
        uint64_t done = at + here - from;
        assert(at - from <= partial->done[part]);
        if (done > partial->done[part]) {
            partial->done_bytes += done - partial->done[part];
            partial->unsaved_bytes += done - partial->done[part];
            partial->done[part] = (uint32_t)done;
        }
        at += here;
        count -= here;
    }
    return partial->unsaved_bytes >= PULL_UNSAVED_BYTES ? pull_partial_save(partial, error) : OK;
}

uint64_t pull_partial_ready(struct pull_partial *partial) {
    while (partial->ready_parts < partial->part_count) {
        uint32_t part = partial->ready_parts;
        uint64_t from = pull_partial_from(partial, part);
        if (partial->done[part] < pull_partial_to(partial, part) - from)
            return from + partial->done[part];
        partial->ready_parts++;
    }
    return partial->bytes;
}

bool pull_partial_is_whole(const struct pull_partial *partial) {
    return partial->done_bytes == partial->bytes;
}

enum err pull_partial_finish(struct pull_partial *partial, const char *blob, struct error *error) {
    char folder[PATH_MAX];
    assert(pull_partial_is_whole(partial));
    enum err err = os_ftruncate(partial->fd, partial->bytes, error);
    if (err == OK) err = os_fsync(partial->fd, error);
    if (err == OK) err = os_rename(partial->path, blob, error);
    if (err != OK) return err_prefix(error, "%.300s", partial->path);
    snprintf(folder, sizeof folder, "%s", blob);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    return os_fsync_dir(folder, error);
}
