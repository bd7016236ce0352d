/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/packed.h"

#include "base/mem.h"
#include "base/os.h"
#include "cpu/packed_format.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct packed {
    const unsigned char *bytes;
    size_t byte_count;
    size_t head_bytes;
    size_t body_bytes;
    uint32_t section_count;
    struct packed_section *sections; /* (section_count) */
    bool is_mapped;
};

static enum err corrupt(struct error *error, const char *what) {
    return err_set(error, ERR_CORRUPT, "packed weights: %s", what);
}

/* ---- the head and its tables ---- */

static enum err check_head(const unsigned char *bytes, size_t count, struct packed_head *ret_head,
                           struct error *error) {
    struct packed_head head;
    if (count < sizeof head) return corrupt(error, "the file is too short");
    memcpy(&head, bytes, sizeof head);
    if (memcmp(head.magic, packed_magic, sizeof head.magic) != 0)
        return corrupt(error, "the file is another kind of file");
    if (head.version != PACKED_VERSION)
        return err_set(error, ERR_CORRUPT, "packed weights: version %u, not %u", head.version,
                       PACKED_VERSION);
    if (head.section_count > PACKED_SECTIONS_MAX || head.body_bytes > count ||
        head.sum_count != packed_sum_count(head.body_bytes) ||
        head.head_bytes != packed_head_bytes(head.section_count, head.sum_count) ||
        head.head_bytes > count || head.body_bytes != count - head.head_bytes)
        return corrupt(error, "the sizes in it are not the file's");
    if (head.crc != packed_head_crc(bytes, (size_t)head.head_bytes))
        return corrupt(error, "the head is damaged");
    *ret_head = head;
    return OK;
}

/* A name in full, zeros behind it. */
static bool is_name(const char *name) {
    size_t length = strnlen(name, PACKED_NAME_BYTES);
    for (size_t i = length; i < PACKED_NAME_BYTES; i++)
        if (name[i]) return false;
    return length > 0 && length < PACKED_NAME_BYTES;
}

static enum err read_sections(struct packed *packed, struct error *error) {
    const unsigned char *at = packed->bytes + sizeof(struct packed_head);
    uint64_t end = 0;
    packed->sections =
        mem_new(packed->section_count ? packed->section_count : 1, sizeof *packed->sections);
    for (uint32_t i = 0; i < packed->section_count; i++) {
        struct packed_entry entry;
        memcpy(&entry, at + i * sizeof entry, sizeof entry);
        if (!is_name(entry.name)) return corrupt(error, "a section has no name");
        if (entry.offset % PACKED_PAGE != 0 || entry.offset < end ||
            entry.offset > packed->body_bytes || entry.bytes > packed->body_bytes - entry.offset)
            return err_set(error, ERR_CORRUPT, "packed weights: section %s lies outside",
                           entry.name);
        end = entry.offset + entry.bytes;
        struct packed_section *section = &packed->sections[i];
        memcpy(section->name, entry.name, sizeof section->name);
        section->at = packed->bytes + packed->head_bytes + entry.offset;
        section->bytes = (size_t)entry.bytes;
    }
    return OK;
}

/* ---- the body ---- */

struct sum_job {
    const struct packed *packed;
    const unsigned char *sums; /* the table; unaligned */
    atomic_uint damaged;
};

static void sum_task(void *context, uint32_t task, uint32_t worker) {
    struct sum_job *job = context;
    const struct packed *packed = job->packed;
    (void)worker;
    size_t from = task * PACKED_SUMMED_BYTES;
    size_t left = packed->body_bytes - from;
    uint32_t wanted;
    memcpy(&wanted, job->sums + task * sizeof wanted, sizeof wanted);
    uint32_t crc = crc32c(0, packed->bytes + packed->head_bytes + from,
                          left < PACKED_SUMMED_BYTES ? left : PACKED_SUMMED_BYTES);
    if (crc != wanted) atomic_fetch_add(&job->damaged, 1);
}

static enum err check_body(const struct packed *packed, uint32_t sum_count, struct pool *pool,
                           struct error *error) {
    struct sum_job job = {.packed = packed,
                          .sums = packed->bytes + sizeof(struct packed_head) +
                                  packed->section_count * sizeof(struct packed_entry)};
    if (pool)
        pool_run(pool, sum_task, &job, sum_count);
    else
        for (uint32_t task = 0; task < sum_count; task++) sum_task(&job, task, 0);
    unsigned damaged = atomic_load(&job.damaged);
    if (damaged == 0) return OK;
    return err_set(error, ERR_CORRUPT, "packed weights: %u of %u MiB are damaged", damaged,
                   sum_count);
}

/* Takes the mapping over, also when it fails. */
static enum err open_over(struct packed **ret_packed, const void *bytes, size_t count,
                          bool is_mapped, const struct packed_key *key, struct pool *pool,
                          struct error *error) {
    struct packed *packed = mem_new(1, sizeof *packed);
    packed->bytes = bytes;
    packed->byte_count = count;
    packed->is_mapped = is_mapped;
    struct packed_head head;
    enum err err = check_head(bytes, count, &head, error);
    if (err == OK && memcmp(head.key, key->bytes, sizeof head.key) != 0)
        err = err_set(error, ERR_NOT_FOUND, "packed weights: those of something else");
    if (err == OK) {
        packed->head_bytes = (size_t)head.head_bytes;
        packed->body_bytes = (size_t)head.body_bytes;
        packed->section_count = head.section_count;
        err = read_sections(packed, error);
    }
    if (err == OK) err = check_body(packed, head.sum_count, pool, error);
    if (err == OK)
        *ret_packed = packed;
    else
        packed_close(packed);
    return err;
}

enum err packed_open_bytes(struct packed **ret_packed, const void *bytes, size_t count,
                           const struct packed_key *key, struct pool *pool, struct error *error) {
    assert((uintptr_t)bytes % PACKED_PAGE == 0);
    return open_over(ret_packed, bytes, count, false, key, pool, error);
}

enum err packed_open(struct packed **ret_packed, const char *path, const struct packed_key *key,
                     struct pool *pool, struct error *error) {
    int fd;
    enum err err = os_open(&fd, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0, error);
    if (err != OK) return err;
    struct stat stat;
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) || stat.st_size <= 0) {
        os_close(fd);
        return corrupt(error, "the file is empty or no regular file");
    }
    size_t count = (size_t)stat.st_size;
    void *bytes = mmap(NULL, count, PROT_READ, MAP_SHARED, fd, 0);
    os_close(fd);
    if (bytes == MAP_FAILED)
        return err_set(error, ERR_IO, "cannot map the %zu bytes of packed weights", count);
    (void)madvise(bytes, count, MADV_WILLNEED); /* advice only */
    return open_over(ret_packed, bytes, count, true, key, pool, error);
}

void packed_close(struct packed *packed) {
    if (!packed) return;
    free(packed->sections);
    /* munmap takes no const pointer, and the mapping was never written to. */
    if (packed->is_mapped) munmap((void *)(uintptr_t)packed->bytes, packed->byte_count);
    free(packed);
}

const struct packed_section *packed_find(const struct packed *packed, const char *name) {
    for (uint32_t i = 0; i < packed->section_count; i++)
        if (strcmp(packed->sections[i].name, name) == 0) return &packed->sections[i];
    return NULL;
}
