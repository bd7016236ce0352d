/* SPDX-License-Identifier: Apache-2.0 */
#include "store/result_cache_internal.h"

#include "base/crc.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBES 16           /* places that a key may have */
#define BYTES_PER_PLACE 512 /* the table has one place per 512 bytes of the limit */
#define FILTER_BITS 1024    /* in the filter of a segment */

/* A place is one word of the table in memory: tag of the key (20 bits) | segment (24) | unit inside
 * the segment (20). Segments count from 1, so 0 is a free place. */
#define UNIT_BITS 20
_Static_assert(SEGMENT_BYTES / UNIT <= 1u << UNIT_BITS, "a unit's number fits");

/* A Bloom filter of the batches with answers in a segment, so that a deletion reads few files. */
struct filter {
    uint64_t words[FILTER_BITS / 64];
};

struct result_cache {
    pthread_mutex_t lock;
    char dir[PATH_MAX];
    uint32_t segments_max;
    uint32_t first, last;  /* segments that exist; records are appended to the last */
    int fds[SEGMENTS_MAX]; /* segment s has place s % SEGMENTS_MAX here and in sizes */
    uint32_t sizes[SEGMENTS_MAX];
    struct filter filters[SEGMENTS_MAX];
    uint64_t *places;
    size_t mask;
    bool is_broken; /* a write failed: no further answer is kept */
    struct buf record;
};

static int *fd_of(struct result_cache *cache, uint32_t segment) {
    return &cache->fds[segment % SEGMENTS_MAX];
}

static uint32_t *size_of(struct result_cache *cache, uint32_t segment) {
    return &cache->sizes[segment % SEGMENTS_MAX];
}

static struct filter *filter_of(struct result_cache *cache, uint32_t segment) {
    return &cache->filters[segment % SEGMENTS_MAX];
}

/* The two bits of a batch. */
static void filter_bits(const char *batch_id, uint32_t ret_bits[2]) {
    uint32_t sum = crc32c(0, batch_id, strnlen(batch_id, STORE_ID_BYTES));
    ret_bits[0] = sum % FILTER_BITS;
    ret_bits[1] = sum / FILTER_BITS % FILTER_BITS;
}

static void filter_add(struct filter *filter, const char *batch_id) {
    uint32_t bits[2];
    filter_bits(batch_id, bits);
    for (int i = 0; i < 2; i++) filter->words[bits[i] / 64] |= (uint64_t)1 << bits[i] % 64;
}

static bool filter_may_have(const struct filter *filter, const char *batch_id) {
    uint32_t bits[2];
    filter_bits(batch_id, bits);
    for (int i = 0; i < 2; i++)
        if (!(filter->words[bits[i] / 64] >> bits[i] % 64 & 1)) return false;
    return true;
}

/* --- places --- */

static uint64_t word_of(const unsigned char *key) {
    uint64_t word;
    memcpy(&word, key, sizeof word);
    return word;
}

static uint32_t segment_of(uint64_t place) {
    return (uint32_t)(place >> UNIT_BITS) & SEGMENT_MASK;
}

static bool is_live(const struct result_cache *cache, uint64_t place) {
    uint32_t segment = segment_of(place);
    return place != 0 && segment >= cache->first && segment <= cache->last;
}

static void remember(struct result_cache *cache, const unsigned char *key, uint32_t segment,
                     uint32_t offset) {
    uint64_t word = word_of(key), tag = word >> (64 - 20);
    uint64_t *best = NULL;
    for (size_t i = 0; i < PROBES; i++) {
        uint64_t *place = &cache->places[(word + i) & cache->mask];
        if (!is_live(cache, *place)) {
            best = place;
            break;
        }
        if (!best || segment_of(*place) < segment_of(*best)) best = place;
    }
    *best = tag << (SEGMENT_BITS + UNIT_BITS) | (uint64_t)segment << UNIT_BITS | offset / UNIT;
}

/* --- files --- */

static void drop_segment(struct result_cache *cache, uint32_t segment) {
    char path[PATH_MAX];
    struct error error;
    cache_segment_path(cache->dir, segment, path);
    os_close(*fd_of(cache, segment));
    *fd_of(cache, segment) = -1;
    *size_of(cache, segment) = 0;
    *filter_of(cache, segment) = (struct filter){0};
    if (os_unlink(path, &error) != OK) log_warn("event=cache_file_stays error=\"%s\"", error.text);
}

static enum err add_segment(struct result_cache *cache, struct error *error) {
    char path[PATH_MAX];
    int fd;
    uint32_t segment = cache->last + 1;
    if (segment > SEGMENT_MASK)
        return err_set(error, ERR_LIMIT, "the result cache has used up its file numbers");
    while (segment - cache->first >= cache->segments_max) drop_segment(cache, cache->first++);
    cache_segment_path(cache->dir, segment, path);
    enum err err = os_create(&fd, path, 0600, error);
    if (err != OK) return err;
    cache->last = segment;
    *fd_of(cache, segment) = fd;
    *size_of(cache, segment) = 0;
    return OK;
}

struct scan {
    struct result_cache *cache;
    uint32_t segment;
};

static enum err remember_record(void *context, int fd, uint64_t at,
                                const struct cache_record *record, struct error *error) {
    struct scan *scan = context;
    (void)fd, (void)error;
    if (!record->batch[0]) return OK;
    remember(scan->cache, record->key, scan->segment, (uint32_t)at);
    filter_add(filter_of(scan->cache, scan->segment), record->batch);
    return OK;
}

/* Takes up the records of a file that an earlier process wrote, and cuts off what is none. */
static enum err open_segment(struct result_cache *cache, uint32_t segment, struct error *error) {
    char path[PATH_MAX];
    uint64_t bytes = 0, end = 0;
    struct scan scan = {cache, segment};
    cache_segment_path(cache->dir, segment, path);
    enum err err = os_open(fd_of(cache, segment), path, O_RDWR | O_NOFOLLOW, 0, error);
    int fd = *fd_of(cache, segment);
    if (err == OK) err = os_file_bytes(fd, &bytes, error);
    uint64_t read = bytes > SEGMENT_BYTES ? SEGMENT_BYTES : bytes;
    if (err == OK) err = cache_walk(fd, read, remember_record, &scan, &end, error);
    if (err == OK && end != bytes) err = os_ftruncate(fd, end, error);
    if (err == OK) *size_of(cache, segment) = (uint32_t)end;
    return err;
}

/* Opens the newest files that have no gap between their numbers, and removes the others. */
static void take_up(struct result_cache *cache) {
    uint32_t numbers[SEGMENTS_MAX];
    char path[PATH_MAX];
    struct error error;
    size_t count = cache_segments(cache->dir, numbers, SEGMENTS_MAX);
    size_t from = count;
    while (from > 0 && count - from < cache->segments_max &&
           (from == count || numbers[from - 1] + 1 == numbers[from]))
        from--;
    for (size_t i = 0; i < from; i++) {
        cache_segment_path(cache->dir, numbers[i], path);
        if (os_unlink(path, &error) != OK)
            log_warn("event=cache_file_stays error=\"%s\"", error.text);
    }
    cache->first = from < count ? numbers[from] : 1;
    cache->last = from < count ? numbers[count - 1] : 0;
    for (uint32_t segment = cache->first; segment <= cache->last; segment++)
        if (open_segment(cache, segment, &error) != OK) {
            log_warn("event=cache_file_unread error=\"%s\"", error.text);
            drop_segment(cache, segment);
        }
}

enum err result_cache_open(struct result_cache **ret_cache, const char *state_dir,
                           uint64_t bytes_max, struct error *error) {
    struct result_cache *cache = mem_new(1, sizeof *cache);
    int length = snprintf(cache->dir, sizeof cache->dir, "%s/cache", state_dir);
    if (length >= (int)sizeof cache->dir - 32) {
        free(cache);
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    }
    uint64_t segments = bytes_max / SEGMENT_BYTES;
    cache->segments_max = segments < 2              ? 2
                          : segments > SEGMENTS_MAX ? SEGMENTS_MAX
                                                    : (uint32_t)segments;
    size_t place_count = 1024;
    while (place_count < (uint64_t)cache->segments_max * SEGMENT_BYTES / BYTES_PER_PLACE)
        place_count *= 2;
    cache->places = mem_new(place_count, sizeof *cache->places);
    cache->mask = place_count - 1;
    for (size_t i = 0; i < SEGMENTS_MAX; i++) cache->fds[i] = -1;
    pthread_mutex_init(&cache->lock, NULL);
    buf_init(&cache->record, SEGMENT_BYTES);
    enum err err = os_mkdirs(cache->dir, error);
    if (err == OK) take_up(cache);
    if (err == OK && cache->last < cache->first) err = add_segment(cache, error);
    if (err != OK) {
        result_cache_close(cache);
        return err;
    }
    *ret_cache = cache;
    return OK;
}

void result_cache_close(struct result_cache *cache) {
    if (!cache) return;
    for (size_t i = 0; i < SEGMENTS_MAX; i++) os_close(cache->fds[i]);
    pthread_mutex_destroy(&cache->lock);
    buf_release(&cache->record);
    free(cache->places);
    free(cache);
}

/* --- putting and getting --- */

/* Fills cache->record. */
static void write_record(struct result_cache *cache, const unsigned char *key, const char *batch_id,
                         struct str body, const struct result_cache_facts *facts) {
    const struct usage *usage = &facts->usage;
    struct cache_record record = {
        .magic = MAGIC,
        .bytes = (uint32_t)body.bytes,
        .usage = {(uint32_t)usage->input_tokens, (uint32_t)usage->cached_tokens,
                  (uint32_t)usage->output_tokens, (uint32_t)usage->reasoning_tokens},
        .shape = facts->shape};
    memcpy(record.key, key, sizeof record.key);
    memcpy(record.batch, batch_id, strnlen(batch_id, sizeof record.batch - 1));
    record.crc = cache_record_sum(&record, body);
    buf_clear(&cache->record);
    buf_add(&cache->record, &record, sizeof record);
    buf_add_str(&cache->record, body);
    while (cache->record.bytes % UNIT) buf_add_byte(&cache->record, '\0');
}

static enum err append(struct result_cache *cache, const unsigned char *key, const char *batch_id,
                       struct error *error) {
    size_t bytes = cache->record.bytes;
    if (*size_of(cache, cache->last) + bytes > SEGMENT_BYTES) {
        enum err err = add_segment(cache, error);
        if (err != OK) return err;
    }
    uint32_t at = *size_of(cache, cache->last);
    enum err err = os_pwrite_all(*fd_of(cache, cache->last), cache->record.at, bytes, at, error);
    if (err != OK) {
        struct error later; /* the first error is told */
        if (os_ftruncate(*fd_of(cache, cache->last), at, &later) != OK)
            drop_segment(cache, cache->last);
        return err;
    }
    *size_of(cache, cache->last) += (uint32_t)bytes;
    remember(cache, key, cache->last, at);
    filter_add(filter_of(cache, cache->last), batch_id);
    return OK;
}

void result_cache_put(struct result_cache *cache, const unsigned char key[RESULT_CACHE_KEY_BYTES],
                      const char *batch_id, struct str body,
                      const struct result_cache_facts *facts) {
    struct error error;
    if (body.bytes > BODY_BYTES_MAX) return;
    pthread_mutex_lock(&cache->lock);
    if (!cache->is_broken) {
        write_record(cache, key, batch_id, body, facts);
        if (append(cache, key, batch_id, &error) != OK) {
            log_warn("event=cache_off error=\"%s\"", error.text);
            cache->is_broken = true;
        }
    }
    pthread_mutex_unlock(&cache->lock);
}

/* Reads the record at the place; false unless it is valid and the key's. */
static bool read_place(struct result_cache *cache, uint64_t place, const unsigned char *key,
                       struct buf *ret_body, struct result_cache_facts *ret_facts) {
    struct cache_record record;
    struct error error;
    int fd = *fd_of(cache, segment_of(place));
    uint64_t at = (place & ((1u << UNIT_BITS) - 1)) * UNIT;
    if (os_pread_all(fd, &record, sizeof record, at, &error) != OK || record.magic != MAGIC ||
        memcmp(record.key, key, sizeof record.key) != 0 || record.bytes > BODY_BYTES_MAX)
        return false;
    size_t start = ret_body->bytes;
    char *room = buf_reserve(ret_body, record.bytes);
    if (!room || os_pread_all(fd, room, record.bytes, at + sizeof record, &error) != OK)
        return false;
    if (cache_record_sum(&record, (struct str){room, record.bytes}) != record.crc) {
        log_warn("event=cache_record_damaged segment=%u", segment_of(place));
        buf_truncate(ret_body, start);
        return false;
    }
    buf_commit(ret_body, record.bytes);
    /* A newer version may know more ends. */
    *ret_facts = (struct result_cache_facts){
        {record.usage[0], record.usage[1], record.usage[2], record.usage[3], 0, 0},
        record.shape <= SHAPE_UNCHECKED ? (enum shape_end)record.shape : SHAPE_NONE};
    return true;
}

bool result_cache_get(struct result_cache *cache, const unsigned char key[RESULT_CACHE_KEY_BYTES],
                      struct buf *ret_body, struct result_cache_facts *ret_facts) {
    uint64_t word = word_of(key), tag = word >> (64 - 20);
    bool found = false;
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < PROBES && !found; i++) {
        uint64_t place = cache->places[(word + i) & cache->mask];
        if (is_live(cache, place) && place >> (SEGMENT_BITS + UNIT_BITS) == tag)
            found = read_place(cache, place, key, ret_body, ret_facts);
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

/* --- forgetting --- */

struct forgetting {
    struct result_cache *cache;
    const char *batch_id;
    struct filter others; /* the batches whose answers stay */
    bool has_others;
    uint64_t count;
};

/* Leaves a record of the same length without a batch, a key and a body. */
static enum err blank_record(void *context, int fd, uint64_t at, const struct cache_record *record,
                             struct error *error) {
    struct forgetting *forgetting = context;
    struct buf *blank = &forgetting->cache->record;
    if (strncmp(record->batch, forgetting->batch_id, sizeof record->batch) != 0) {
        if (!record->batch[0]) return OK;
        filter_add(&forgetting->others, record->batch);
        forgetting->has_others = true;
        return OK;
    }
    const struct cache_record head = {.magic = MAGIC, .bytes = record->bytes};
    buf_clear(blank);
    buf_add(blank, &head, sizeof head);
    for (uint32_t i = 0; i < record->bytes; i++) buf_add_byte(blank, '\0');
    forgetting->count++;
    return os_pwrite_all(fd, blank->at, blank->bytes, at, error);
}

/* With the lock. */
static enum err forget_in(struct result_cache *cache, uint32_t segment, const char *batch_id,
                          struct error *error) {
    struct forgetting forgetting = {.cache = cache, .batch_id = batch_id};
    uint64_t end;
    int fd = *fd_of(cache, segment);
    if (fd < 0 || !filter_may_have(filter_of(cache, segment), batch_id)) return OK;
    enum err err = cache_walk(fd, *size_of(cache, segment), blank_record, &forgetting, &end, error);
    if (err == OK && end < *size_of(cache, segment))
        err = err_set(error, ERR_IO, "the result cache cannot be read at %llu of file %u",
                      (unsigned long long)end, segment);
    if (err == OK && !forgetting.has_others) err = os_ftruncate(fd, 0, error);
    if (err == OK && forgetting.count > 0) err = os_fdatasync(fd, error);
    if (err != OK) return err;
    if (!forgetting.has_others) *size_of(cache, segment) = 0;
    *filter_of(cache, segment) = forgetting.others;
    return OK;
}

enum err result_cache_forget(struct result_cache *cache, const char *batch_id,
                             struct error *error) {
    enum err err = OK;
    if (!cache) return OK;
    pthread_mutex_lock(&cache->lock);
    uint32_t last = cache->last;
    pthread_mutex_unlock(&cache->lock);
    for (uint32_t segment = 1; err == OK && segment <= last; segment++) {
        pthread_mutex_lock(&cache->lock); /* for one file, so that lines go on in between */
        if (segment < cache->first) segment = cache->first;
        err = forget_in(cache, segment, batch_id, error);
        pthread_mutex_unlock(&cache->lock);
    }
    return err;
}
