/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* result_cache_internal: the files of the result cache as bytes, for the cache and for fsck.
 *
 * result_cache.h has the format. This half knows no table of keys: it lists the files of a folder
 * and walks through the records of one.
 *
 * Thread: any; the caller sees to it that nobody changes the file meanwhile.
 * Memory: none kept. */

#include "store/result_cache.h"

#include <limits.h>

#define SEGMENT_BYTES ((uint32_t)16 << 20)
#define SEGMENTS_MAX 4096
#define SEGMENT_BITS 24
#define SEGMENT_MASK ((1u << SEGMENT_BITS) - 1)
#define BODY_BYTES_MAX ((size_t)1 << 20)
#define MAGIC 0x32484351u /* "QCH2" */
#define UNIT 16           /* records begin at multiples of it */

struct cache_record {
    uint32_t magic;
    uint32_t crc; /* sum over everything after this field, the body included */
    unsigned char key[RESULT_CACHE_KEY_BYTES];
    uint32_t bytes; /* bytes of the body */
    uint32_t usage[4];
    uint32_t shape;
    char batch[STORE_ID_BYTES]; /* empty: the answer is forgotten */
};
_Static_assert(sizeof(struct cache_record) == 128, "written as it is");

/* The sum that the record has if it and its body are whole. */
uint32_t cache_record_sum(const struct cache_record *record, struct str body);

/* Writes the path of a file of the folder `dir`; an empty one if it is too long. */
void cache_segment_path(const char *dir, uint32_t segment, char ret_path[PATH_MAX]);
/* The numbers of the folder's files, ascending. */
size_t cache_segments(const char *dir, uint32_t *ret_numbers, size_t max);
/* Receives one record that begins at `at`. */
typedef enum err (*record_fn)(void *context, int fd, uint64_t at, const struct cache_record *record,
                              struct error *error);

/* Visits the records of a file until one breaks (1) or (3); *ret_end is where that is. */
enum err cache_walk(int fd, uint64_t bytes, record_fn visit, void *context, uint64_t *ret_end,
                    struct error *error) MUST_CHECK;
