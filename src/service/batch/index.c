/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/index.h"

#include "base/crc.h"
#include "base/mem.h"
#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAGIC 0x58444951u /* "QIDX" */
#define VERSION 3u
#define HEADER_BYTES 128
#define BUFFERED_MAX 4096 /* entries kept in memory before they are written */
#define KEY_BITS 20
#define KEY_MASK ((1u << KEY_BITS) - 1)
#define MODEL_SHIFT (3 * KEY_BITS)
#define PREFIX_MASK (((uint64_t)1 << MODEL_SHIFT) - 1)
#define OFFSET_BITS 40 /* files of up to a terabyte */
#define OFFSET_MASK (((uint64_t)1 << OFFSET_BITS) - 1)
#define GROUP_MAX ((1u << (64 - OFFSET_BITS)) - 1)

/* An entry as it is in the file. */
struct stored_entry {
    uint64_t offset; /* with the group in its high bits */
    uint32_t bytes;
    uint32_t number;
};
static_assert(sizeof(struct stored_entry) == 16, "entries are written as they are");
#define SUM_BYTES sizeof(uint32_t)
#define PLACE_BYTES sizeof(uint32_t)
#define REQUEST_BYTES (sizeof(struct stored_entry) + SUM_BYTES + PLACE_BYTES)

/* --- the coarse order --- */

/* Mixes eight bytes at a time. Its only promise: equal bytes give equal sums. */
static uint64_t mix(uint64_t sum, struct str text) {
    size_t at = 0;
    for (; at + 8 <= text.bytes; at += 8) {
        uint64_t word;
        memcpy(&word, text.at + at, sizeof word);
        sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
        sum ^= sum >> 29;
    }
    for (; at < text.bytes; at++) sum = (sum ^ (unsigned char)text.at[at]) * 0x100000001B3u;
    sum ^= sum >> 32;
    return sum * 0x9E3779B97F4A7C15u + text.bytes;
}

uint64_t index_prefix_key(struct str model, struct str url, struct str prompt) {
    static const size_t lengths[] = {0, 256, 1024, 4096};
    uint64_t sum = mix(mix(1, model), url), key = 0;
    for (size_t i = 1; i < 4; i++) {
        size_t from = lengths[i - 1] < prompt.bytes ? lengths[i - 1] : prompt.bytes;
        size_t to = lengths[i] < prompt.bytes ? lengths[i] : prompt.bytes;
        sum = mix(sum, (struct str){to > from ? prompt.at + from : "", to - from});
        key = key << KEY_BITS | (sum >> 40 & KEY_MASK);
    }
    return key;
}

/* Folds the bits for the first 256 and 1024 bytes into 24; never 0. */
static uint64_t group_of(uint64_t prefix_key) {
    uint64_t group = ((prefix_key >> KEY_BITS) * 0x9E3779B97F4A7C15u) >> OFFSET_BITS;
    return group ? group : GROUP_MAX;
}

static struct index_entry unpacked(struct stored_entry entry) {
    return (struct index_entry){entry.offset & OFFSET_MASK, entry.bytes, entry.number, 0};
}

struct sorted {
    uint64_t key;
    uint32_t line;
};

static int compare_sorted(const void *a, const void *b) {
    const struct sorted *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->line > y->line) - (x->line < y->line);
}

/* In each run of items that agree in the bits above `shift`, puts the run's lowest line number
 * in place of the KEY_BITS bits at `shift` of *renamed. */
static void rename_level(const struct sorted *items, uint32_t count, unsigned shift,
                         uint64_t *renamed) {
    for (uint32_t from = 0, to; from < count; from = to) {
        uint32_t lowest = items[from].line;
        for (to = from; to < count && items[to].key >> shift == items[from].key >> shift; to++)
            if (items[to].line < lowest) lowest = items[to].line;
        for (uint32_t i = from; i < to; i++) renamed[i] |= (uint64_t)(lowest & KEY_MASK) << shift;
    }
}

void index_order(uint64_t *keys, uint32_t count, uint32_t *ret_order) {
    if (count == 0) return;
    struct sorted *items = mem_new(count, sizeof *items);
    for (uint32_t i = 0; i < count; i++) items[i] = (struct sorted){keys[i], i};
    qsort(items, count, sizeof *items, compare_sorted);
    /* The sums made groups; now the groups get the rank of their first request. */
    for (uint32_t i = 0; i < count; i++) keys[i] = items[i].key & ~PREFIX_MASK;
    for (unsigned level = 0; level < 3; level++) rename_level(items, count, level * KEY_BITS, keys);
    for (uint32_t i = 0; i < count; i++) items[i].key = keys[i];
    qsort(items, count, sizeof *items, compare_sorted);
    for (uint32_t i = 0; i < count; i++) ret_order[i] = items[i].line;
    free(items);
}

/* --- building --- */

struct index_builder {
    int fd;
    uint64_t count;
    struct stored_entry buffered[BUFFERED_MAX];
    uint32_t buffered_count;
    uint32_t crc;
    uint64_t *keys;
    uint32_t *sums;
    size_t key_capacity;            /* and that of `sums` */
    char *models[INDEX_MODELS_MAX]; /* in the order in which they came */
    size_t model_count, model;      /* rank of the next entry's model */
};

enum err index_builder_open(struct index_builder **ret_builder, const char *path,
                            struct error *error) {
    struct index_builder *builder = mem_new(1, sizeof *builder);
    enum err err = os_create(&builder->fd, path, 0600, error);
    if (err != OK) {
        free(builder);
        return err;
    }
    *ret_builder = builder;
    return OK;
}

void index_builder_abort(struct index_builder *builder) {
    if (!builder) return;
    os_close(builder->fd);
    for (size_t i = 0; i < builder->model_count; i++) free(builder->models[i]);
    free(builder->keys);
    free(builder->sums);
    free(builder);
}

static enum err flush(struct index_builder *builder, struct error *error) {
    uint64_t first = builder->count - builder->buffered_count;
    size_t bytes = builder->buffered_count * sizeof *builder->buffered;
    enum err err = os_pwrite_all(builder->fd, builder->buffered, bytes,
                                 HEADER_BYTES + first * sizeof *builder->buffered, error);
    if (err != OK) return err;
    builder->crc = crc32c(builder->crc, builder->buffered, bytes);
    builder->buffered_count = 0;
    return OK;
}

void index_builder_set_model(struct index_builder *builder, struct str model) {
    size_t i = 0;
    while (i < builder->model_count && !str_is(model, builder->models[i])) i++;
    builder->model = i < INDEX_MODELS_MAX ? i : INDEX_MODELS_MAX - 1;
    if (i < builder->model_count || i >= INDEX_MODELS_MAX) return;
    builder->models[i] = mem_str(model);
    builder->model_count++;
}

/* Replaces the models' order of arrival by the order of their names. */
static void rank_models(struct index_builder *builder) {
    uint64_t ranks[INDEX_MODELS_MAX] = {0};
    for (size_t i = 0; i < builder->model_count; i++)
        for (size_t j = 0; j < builder->model_count; j++)
            ranks[i] += strcmp(builder->models[j], builder->models[i]) < 0;
    for (uint64_t i = 0; i < builder->count; i++)
        builder->keys[i] = (builder->keys[i] & PREFIX_MASK) | ranks[builder->keys[i] >> MODEL_SHIFT]
                                                                  << MODEL_SHIFT;
}

enum err index_builder_add(struct index_builder *builder, const struct index_entry *entry,
                           uint64_t prefix_key, struct error *error) {
    assert(entry->offset <= OFFSET_MASK);
    if (builder->buffered_count == BUFFERED_MAX) {
        enum err err = flush(builder, error);
        if (err != OK) return err;
    }
    if (builder->count == builder->key_capacity) {
        builder->key_capacity = builder->key_capacity ? builder->key_capacity * 3 / 2 : 4096;
        builder->keys = mem_resize(builder->keys, builder->key_capacity, sizeof *builder->keys);
        builder->sums = mem_resize(builder->sums, builder->key_capacity, sizeof *builder->sums);
    }
    builder->sums[builder->count] = entry->crc;
    builder->keys[builder->count++] = prefix_key | (uint64_t)builder->model << MODEL_SHIFT;
    builder->buffered[builder->buffered_count++] = (struct stored_entry){
        entry->offset | group_of(prefix_key) << OFFSET_BITS, entry->bytes, entry->number};
    return OK;
}

enum err index_builder_get(struct index_builder *builder, uint64_t index,
                           struct index_entry *ret_entry, struct error *error) {
    assert(index < builder->count);
    uint64_t first = builder->count - builder->buffered_count;
    if (index >= first) {
        *ret_entry = unpacked(builder->buffered[index - first]);
        return OK;
    }
    struct stored_entry stored;
    enum err err = os_pread_all(builder->fd, &stored, sizeof stored,
                                HEADER_BYTES + index * sizeof stored, error);
    if (err == OK) *ret_entry = unpacked(stored);
    return err;
}

static void write_header(unsigned char header[HEADER_BYTES], uint64_t count, uint64_t file_bytes,
                         const unsigned char *input_sha256, uint32_t crc) {
    uint32_t magic = MAGIC, version = VERSION;
    memset(header, 0, HEADER_BYTES);
    memcpy(header, &magic, 4);
    memcpy(header + 4, &version, 4);
    memcpy(header + 8, &count, 8);
    memcpy(header + 16, &file_bytes, 8);
    memcpy(header + 24, input_sha256, SHA256_BYTES);
    memcpy(header + 56, &crc, 4);
    uint32_t own = crc32c(0, header, 124);
    memcpy(header + 124, &own, 4);
}

static enum err write_rest(struct index_builder *builder, uint64_t file_bytes,
                           const unsigned char *input_sha256, struct error *error) {
    enum err err = flush(builder, error);
    if (err != OK) return err;
    uint32_t count = (uint32_t)builder->count;
    uint32_t *order = mem_new((size_t)count + 1, sizeof *order);
    rank_models(builder);
    index_order(builder->keys, count, order);
    uint64_t at = HEADER_BYTES + builder->count * sizeof(struct stored_entry);
    uint32_t crc = crc32c(builder->crc, builder->sums, count * SUM_BYTES);
    crc = crc32c(crc, order, count * PLACE_BYTES);
    err = os_pwrite_all(builder->fd, builder->sums, count * SUM_BYTES, at, error);
    if (err == OK)
        err = os_pwrite_all(builder->fd, order, count * PLACE_BYTES, at + count * SUM_BYTES, error);
    free(order);
    if (err != OK) return err;
    unsigned char header[HEADER_BYTES];
    write_header(header, builder->count, file_bytes, input_sha256, crc);
    err = os_pwrite_all(builder->fd, header, sizeof header, 0, error);
    /* The index can be made again, so a failed sync is only an error. */
    return err == OK ? os_fdatasync(builder->fd, error) : err;
}

enum err index_builder_finish(struct index_builder *builder, uint64_t file_bytes,
                              const unsigned char input_sha256[SHA256_BYTES], struct error *error) {
    enum err err = write_rest(builder, file_bytes, input_sha256, error);
    index_builder_abort(builder);
    return err;
}

/* --- reading --- */

struct line_index {
    void *map;
    size_t map_bytes;
    uint32_t count;
    const struct stored_entry *entries;
    const uint32_t *sums;
    const uint32_t *order;
};

/* Checks the header, the sums and every number in the index, so that readers need not. */
static bool check(struct line_index *index, const unsigned char *input_sha256) {
    const unsigned char *header = index->map;
    uint32_t magic, version, crc, own;
    uint64_t count, file_bytes;
    if (index->map_bytes < HEADER_BYTES) return false;
    memcpy(&magic, header, 4);
    memcpy(&version, header + 4, 4);
    memcpy(&count, header + 8, 8);
    memcpy(&file_bytes, header + 16, 8);
    memcpy(&crc, header + 56, 4);
    memcpy(&own, header + 124, 4);
    if (magic != MAGIC || version != VERSION || own != crc32c(0, header, 124)) return false;
    if (memcmp(header + 24, input_sha256, SHA256_BYTES) != 0) return false;
    if (count > UINT32_MAX / 32 || index->map_bytes != HEADER_BYTES + count * REQUEST_BYTES)
        return false;
    if (crc32c(0, header + HEADER_BYTES, index->map_bytes - HEADER_BYTES) != crc) return false;
    index->count = (uint32_t)count;
    index->entries = (const struct stored_entry *)(const void *)(header + HEADER_BYTES);
    index->sums = (const uint32_t *)(const void *)(index->entries + count);
    index->order = index->sums + count;
    for (uint32_t i = 0; i < index->count; i++) {
        const struct index_entry entry = unpacked(index->entries[i]);
        if (entry.offset > file_bytes || entry.bytes > file_bytes - entry.offset) return false;
        if (index->order[i] >= index->count) return false;
    }
    return true;
}

static enum err map_file(struct line_index *index, const char *path, struct error *error) {
    int fd;
    uint64_t bytes;
    enum err err = os_open(&fd, path, O_RDONLY, 0, error);
    if (err != OK) return err;
    err = os_file_bytes(fd, &bytes, error);
    if (err == OK && bytes < HEADER_BYTES)
        err = err_set(error, ERR_CORRUPT, "the line index %s is cut short", path);
    if (err == OK) {
        index->map_bytes = (size_t)bytes;
        index->map = mmap(NULL, index->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (index->map == MAP_FAILED) {
            index->map = NULL;
            err = err_from_errno(error, errno, "cannot map %s", path);
        }
    }
    os_close(fd);
    return err;
}

enum err index_open(struct line_index **ret_index, const char *path,
                    const unsigned char input_sha256[SHA256_BYTES], struct error *error) {
    struct line_index *index = mem_new(1, sizeof *index);
    enum err err = map_file(index, path, error);
    if (err == OK && !check(index, input_sha256))
        err = err_set(error, ERR_CORRUPT, "the line index %s is damaged or of another file", path);
    if (err != OK) {
        index_close(index);
        return err;
    }
    *ret_index = index;
    return OK;
}

void index_close(struct line_index *index) {
    if (!index) return;
    if (index->map) munmap(index->map, index->map_bytes);
    free(index);
}

uint32_t index_count(const struct line_index *index) {
    return index->count;
}

struct index_entry index_entry(const struct line_index *index, uint32_t line) {
    assert(line < index->count);
    struct index_entry entry = unpacked(index->entries[line]);
    entry.crc = index->sums[line];
    return entry;
}

uint32_t index_line_at(const struct line_index *index, uint32_t place) {
    assert(place < index->count);
    return index->order[place];
}

uint32_t index_group_at(const struct line_index *index, uint32_t place) {
    return (uint32_t)(index->entries[index_line_at(index, place)].offset >> OFFSET_BITS);
}
