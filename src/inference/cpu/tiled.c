/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/tiled.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/os.h"
#include "cpu/tiled_format.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct tiled {
    const unsigned char *bytes;
    size_t byte_count;
    size_t head_bytes;
    size_t body_bytes;
    uint32_t section_count;
    struct tiled_section *sections; /* (section_count) */
    struct map by_name;             /* their indices: experts make thousands */
    bool is_mapped;
};

static enum err corrupt(struct error *error, const char *what) {
    return err_set(error, ERR_CORRUPT, "packed weights: %s", what);
}

/* ---- the head and its tables ---- */

static enum err check_head(const unsigned char *bytes, size_t count, struct tiled_head *ret_head,
                           struct error *error) {
    struct tiled_head head;
    if (count < sizeof head) return corrupt(error, "the file is too short");
    memcpy(&head, bytes, sizeof head);
    if (memcmp(head.magic, tiled_magic, sizeof head.magic) != 0)
        return corrupt(error, "the file is another kind of file");
    if (head.version != TILED_VERSION)
        return err_set(error, ERR_CORRUPT, "packed weights: version %u, not %u", head.version,
                       TILED_VERSION);
    if (head.section_count > TILED_SECTIONS_MAX || head.body_bytes > count ||
        head.sum_count != tiled_sum_count(head.body_bytes) ||
        head.head_bytes != tiled_head_bytes(head.section_count, head.sum_count) ||
        head.head_bytes > count || head.body_bytes != count - head.head_bytes)
        return corrupt(error, "the sizes in it are not the file's");
    if (head.crc != tiled_head_crc(bytes, (size_t)head.head_bytes))
        return corrupt(error, "the head is damaged");
    *ret_head = head;
    return OK;
}

/* True for a name with zeros behind it. */
static bool is_name(const char *name) {
    size_t length = strnlen(name, TILED_NAME_BYTES);
    for (size_t i = length; i < TILED_NAME_BYTES; i++)
        if (name[i]) return false;
    return length > 0 && length < TILED_NAME_BYTES;
}

static enum err read_sections(struct tiled *tiled, struct error *error) {
    const unsigned char *at = tiled->bytes + sizeof(struct tiled_head);
    uint64_t end = 0;
    tiled->sections =
        mem_new(tiled->section_count ? tiled->section_count : 1, sizeof *tiled->sections);
    for (uint32_t i = 0; i < tiled->section_count; i++) {
        struct tiled_entry entry;
        memcpy(&entry, at + i * sizeof entry, sizeof entry);
        if (!is_name(entry.name)) return corrupt(error, "a section has no name");
        if (entry.offset % TILED_PAGE != 0 || entry.offset < end ||
            entry.offset > tiled->body_bytes || entry.bytes > tiled->body_bytes - entry.offset)
            return err_set(error, ERR_CORRUPT, "packed weights: section %s lies outside",
                           entry.name);
        end = entry.offset + entry.bytes;
        struct tiled_section *section = &tiled->sections[i];
        memcpy(section->name, entry.name, sizeof section->name);
        section->at = tiled->bytes + tiled->head_bytes + entry.offset;
        section->bytes = (size_t)entry.bytes;
        map_put_new(&tiled->by_name, str_from(section->name), i, NULL);
    }
    return OK;
}

/* ---- the body ---- */

struct sum_job {
    const struct tiled *tiled;
    const unsigned char *sums; /* the table; unaligned */
    atomic_uint damaged;
};

static void sum_task(void *context, uint32_t task, uint32_t worker) {
    struct sum_job *job = context;
    const struct tiled *tiled = job->tiled;
    (void)worker;
    size_t from = task * TILED_SUMMED_BYTES;
    size_t left = tiled->body_bytes - from;
    uint32_t wanted;
    memcpy(&wanted, job->sums + task * sizeof wanted, sizeof wanted);
    uint32_t crc = crc32c(0, tiled->bytes + tiled->head_bytes + from,
                          left < TILED_SUMMED_BYTES ? left : TILED_SUMMED_BYTES);
    if (crc != wanted) atomic_fetch_add(&job->damaged, 1);
}

static enum err check_body(const struct tiled *tiled, uint32_t sum_count, struct pool *pool,
                           struct error *error) {
    struct sum_job job = {.tiled = tiled,
                          .sums = tiled->bytes + sizeof(struct tiled_head) +
                                  tiled->section_count * sizeof(struct tiled_entry)};
    if (pool)
        pool_run(pool, sum_task, &job, sum_count);
    else
        for (uint32_t task = 0; task < sum_count; task++) sum_task(&job, task, 0);
    unsigned damaged = atomic_load(&job.damaged);
    if (damaged == 0) return OK;
    return err_set(error, ERR_CORRUPT, "packed weights: %u of %u MiB are damaged", damaged,
                   sum_count);
}

/* Takes over the mapping, also after an error. */
static enum err open_over(struct tiled **ret_tiled, const void *bytes, size_t count, bool is_mapped,
                          const struct tiled_key *key, struct pool *pool, struct error *error) {
    struct tiled *tiled = mem_new(1, sizeof *tiled);
    map_init(&tiled->by_name);
    tiled->bytes = bytes;
    tiled->byte_count = count;
    tiled->is_mapped = is_mapped;
    struct tiled_head head;
    enum err err = check_head(bytes, count, &head, error);
    if (err == OK && memcmp(head.key, key->bytes, sizeof head.key) != 0)
        err = err_set(error, ERR_NOT_FOUND, "packed weights: those of something else");
    if (err == OK) {
        tiled->head_bytes = (size_t)head.head_bytes;
        tiled->body_bytes = (size_t)head.body_bytes;
        tiled->section_count = head.section_count;
        err = read_sections(tiled, error);
    }
    if (err == OK) err = check_body(tiled, head.sum_count, pool, error);
    if (err == OK)
        *ret_tiled = tiled;
    else
        tiled_close(tiled);
    return err;
}

enum err tiled_open_bytes(struct tiled **ret_tiled, const void *bytes, size_t count,
                          const struct tiled_key *key, struct pool *pool, struct error *error) {
    assert((uintptr_t)bytes % TILED_PAGE == 0);
    return open_over(ret_tiled, bytes, count, false, key, pool, error);
}

enum err tiled_open(struct tiled **ret_tiled, const char *path, const struct tiled_key *key,
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
    return open_over(ret_tiled, bytes, count, true, key, pool, error);
}

void tiled_close(struct tiled *tiled) {
    if (!tiled) return;
    free(tiled->sections);
    map_release(&tiled->by_name);
    /* munmap takes no const pointer, and the mapping was never written to. */
    if (tiled->is_mapped) munmap((void *)(uintptr_t)tiled->bytes, tiled->byte_count);
    free(tiled);
}

const struct tiled_section *tiled_find(const struct tiled *tiled, const char *name) {
    uint64_t index;
    return map_get(&tiled->by_name, str_from(name), &index) ? &tiled->sections[index] : NULL;
}
