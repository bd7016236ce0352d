/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc.h"
#include "base/mem.h"
#include "base/os.h"
#include "store/result_cache_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the path of the folder; an empty one, which no folder has, if it is too long. */
static void cache_dir(const char *state_dir, char ret_dir[PATH_MAX - 32]) {
    if (snprintf(ret_dir, PATH_MAX - 32, "%s/cache", state_dir) >= PATH_MAX - 32) ret_dir[0] = '\0';
}

void cache_segment_path(const char *dir, uint32_t segment, char ret_path[PATH_MAX]) {
    int bytes = snprintf(ret_path, PATH_MAX, "%s/%08u.seg", dir, segment);
    if (bytes >= PATH_MAX) ret_path[0] = '\0';
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

size_t cache_segments(const char *dir, uint32_t *ret_numbers, size_t max) {
    DIR *folder = os_opendir(dir);
    struct dirent *entry;
    size_t count = 0;
    while (folder && count < max && (entry = readdir(folder))) {
        unsigned number;
        char tail;
        if (sscanf(entry->d_name, "%8u.se%c", &number, &tail) == 2 && tail == 'g' && number > 0 &&
            number <= SEGMENT_MASK)
            ret_numbers[count++] = number;
    }
    if (folder) closedir(folder);
    qsort(ret_numbers, count, sizeof *ret_numbers, by_number);
    return count;
}

uint32_t cache_record_sum(const struct cache_record *record, struct str body) {
    const size_t before = offsetof(struct cache_record, key);
    uint32_t sum = crc32c(0, (const char *)record + before, sizeof *record - before);
    return crc32c(sum, body.at, body.bytes);
}

enum err cache_walk(int fd, uint64_t bytes, record_fn visit, void *context, uint64_t *ret_end,
                    struct error *error) {
    struct cache_record record;
    struct error unread;
    uint64_t at = 0;
    enum err err = OK;
    while (err == OK && at + sizeof record <= bytes &&
           os_pread_all(fd, &record, sizeof record, at, &unread) == OK && record.magic == MAGIC &&
           record.bytes <= BODY_BYTES_MAX) {
        uint64_t end = at + sizeof record + record.bytes;
        if (end > bytes) break;
        err = visit(context, fd, at, &record, error);
        at = (end + UNIT - 1) / UNIT * UNIT;
    }
    *ret_end = at;
    return err;
}

/* --- without an open cache --- */

struct telling {
    result_cache_tell_fn tell;
    void *context;
    const char *file;
    bool only_whole;
    char batch_id[STORE_ID_BYTES]; /* the record before this one has it */
};

static bool is_whole(int fd, uint64_t at, const struct cache_record *record) {
    struct error unread;
    char *body = mem_alloc((size_t)record->bytes + 1);
    bool is_read = os_pread_all(fd, body, record->bytes, at + sizeof *record, &unread) == OK;
    bool is_good =
        is_read && cache_record_sum(record, (struct str){body, record->bytes}) == record->crc;
    free(body);
    return is_good;
}

static enum err tell_record(void *context, int fd, uint64_t at, const struct cache_record *record,
                            struct error *error) {
    struct telling *telling = context;
    if (!record->batch[0] || strncmp(record->batch, telling->batch_id, STORE_ID_BYTES - 1) == 0 ||
        (telling->only_whole && !is_whole(fd, at, record)))
        return OK;
    snprintf(telling->batch_id, sizeof telling->batch_id, "%.*s", STORE_ID_BYTES - 1,
             record->batch);
    return telling->tell(telling->context, telling->file, telling->batch_id, error);
}

enum err result_cache_tell(const char *state_dir, bool only_whole, result_cache_tell_fn tell,
                           void *context, struct error *error) {
    char dir[PATH_MAX - 32];
    uint32_t *numbers = mem_new(SEGMENTS_MAX, sizeof *numbers);
    enum err err = OK;
    cache_dir(state_dir, dir);
    size_t count = cache_segments(dir, numbers, SEGMENTS_MAX);
    for (size_t i = 0; i < count && err == OK; i++) {
        char path[PATH_MAX];
        uint64_t bytes, end;
        int fd = -1;
        cache_segment_path(dir, numbers[i], path);
        struct telling telling = {tell, context, path + strlen(state_dir) + 1, only_whole, ""};
        err = os_open(&fd, path, O_RDONLY | O_NOFOLLOW, 0, error);
        if (err == OK) err = os_file_bytes(fd, &bytes, error);
        if (err == OK) err = cache_walk(fd, bytes, tell_record, &telling, &end, error);
        os_close(fd);
    }
    free(numbers);
    return err;
}

enum err result_cache_remove(const char *state_dir, struct error *error) {
    char dir[PATH_MAX - 32];
    uint32_t *numbers = mem_new(SEGMENTS_MAX, sizeof *numbers);
    enum err err = OK;
    cache_dir(state_dir, dir);
    size_t count = cache_segments(dir, numbers, SEGMENTS_MAX);
    for (size_t i = 0; i < count && err == OK; i++) {
        char path[PATH_MAX];
        cache_segment_path(dir, numbers[i], path);
        err = os_unlink(path, error);
    }
    free(numbers);
    return err;
}
