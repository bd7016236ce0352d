/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* result_cache: answers by the key of their request, on disk, up to a number of bytes.
 *
 * It is a cache: no promise rests on what it has, nothing that is put is synced, and a failed read
 * or write is a miss.
 * Files "cache/00000001.seg" and on hold up to 16 MiB of records each. When all files together
 * reach the limit, the oldest file is removed as a whole. It knows no request and no JSON; the key
 * is made by batch/request_key.h.
 *
 * A file is records, each from a multiple of 16 bytes on, zeros in the gaps. A record, all numbers
 * unsigned and little-endian:
 *
 *     0   u32       magic, the characters "QCH2"
 *     4   u32       CRC-32C of everything from offset 8 to the end of the body
 *     8   32 bytes  key of the request
 *    40   u32       bytes of the body
 *    44   u32       input tokens
 *    48   u32       cached tokens
 *    52   u32       output tokens
 *    56   u32       reasoning tokens
 *    60   u32       how the answer keeps its shape (enum shape_end)
 *    64   64 bytes  id of the batch that the answer was made for, NULs behind it
   128   body
 *
 * Who deletes a batch, or its output file, has its answers forgotten (answers_forget.h): their
 * records keep magic and length and become zeros, and a file without other answers becomes empty,
 * both durably. An answer that another batch has got from here as well is that of its maker.
 *
 * A record is valid if
 *   (1) the magic is there,
 *   (2) its key is the request's and its batch has an id,
 *   (3) the body has at most 1 MiB and ends inside the file, and
 *   (4) the CRC is that of the bytes it covers.
 * Opening a cache remembers the key of each record up to the first place that breaks (1) or (3),
 * and cuts the file off there. (2) and (4) are checked when an answer is asked for.
 *
 * Thread: any; a lock lets in one at a time.
 * Memory: 16 to 32 bytes per KiB of its limit, allocated when it is opened, and 544 KiB.
 * Invariant: a body that comes back is the one that was put under this key. */

#include "base/buf.h"
#include "store/batches.h"

#define RESULT_CACHE_KEY_BYTES 32
#define RESULT_CACHE_BYTES_DEFAULT ((uint64_t)256 << 20)

struct result_cache;

/* The limit `bytes_max` is rounded down to whole files of 16 MiB, and is 2 to 4096 of them. */
enum err result_cache_open(struct result_cache **ret_cache, const char *state_dir,
                           uint64_t bytes_max, struct error *error) MUST_CHECK;
void result_cache_close(struct result_cache *cache); /* NULL is allowed */

/* What is kept with a body. */
struct result_cache_facts {
    struct usage usage;   /* the reused counts are 0 */
    enum shape_end shape; /* at most SHAPE_UNCHECKED: errors are not kept */
};

/* Keeps a copy of the body for the batch. A body over 1 MiB is not kept. */
void result_cache_put(struct result_cache *cache, const unsigned char key[RESULT_CACHE_KEY_BYTES],
                      const char *batch_id, struct str body,
                      const struct result_cache_facts *facts);
/* Appends the body; false for a miss. */
bool result_cache_get(struct result_cache *cache, const unsigned char key[RESULT_CACHE_KEY_BYTES],
                      struct buf *ret_body, struct result_cache_facts *ret_facts);
/* Removes the answers that were put for a batch, durably; NULL is an empty cache. After an error
 * some are left, and a further call goes on. */
enum err result_cache_forget(struct result_cache *cache, const char *batch_id,
                             struct error *error) MUST_CHECK;

/* Removes the files of a cache that nobody opens. */
enum err result_cache_remove(const char *state_dir, struct error *error) MUST_CHECK;
/* Receives a file, such as "cache/00000001.seg", and a batch with answers in it. */
typedef enum err (*result_cache_tell_fn)(void *context, const char *file, const char *batch_id,
                                         struct error *error);
/* Tells the batches of all files, one as often as others stand in between. A record that a power
 * cut has torn is a miss for every reader, and may name a batch that never was: `only_whole` leaves
 * it out, at the cost of reading it. */
enum err result_cache_tell(const char *state_dir, bool only_whole, result_cache_tell_fn tell,
                           void *context, struct error *error) MUST_CHECK;
