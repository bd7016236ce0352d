/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answers_internal: the inside of the indexes, shared by answers.c (their set and their thread),
 * build.c (from results to rows), find.c, match.c, summary.c, read.c and requests.c. For this
 * folder only.
 *
 * Thread: `lock` of struct answers guards the list and the first group of each index. `rows` guards
 *     table and has_table, `requests` the last group. The third group belongs to the thread of
 *     answers.c.
 * Memory: answers.c owns the indexes; one without users may be freed.
 * Invariant: `rows` is never waited for with `lock` held. */

#include "answers/answers.h"
#include "answers/record.h"
#include "answers/table.h"
#include "batch/jsonl_file.h"
#include "store/erased.h"

#include <pthread.h>

#define ANSWERS_PIECE_BYTES ((size_t)1 << 20) /* bytes of results, read at once */

/* Where a line of the input begins. */
struct request_place {
    uint64_t line, offset;
};

struct answers_index {
    struct answers *answers;
    char batch_id[STORE_ID_BYTES];
    struct answers_index *next;
    uint32_t users;
    bool is_outdated;  /* lines of the batch were erased since; it goes with its last user */
    uint32_t waiting;  /* calls that wait for rows: it is followed, however old the last query */
    int64_t asked_ns;  /* time of the last answers_take */
    int64_t due_ns;    /* earliest time of the next look */
    int64_t paid_ns;   /* CPU time of the server at which the next look is allowed */
    int64_t latest_ns; /* time at which it is allowed in any case */
    int64_t seen_ns;   /* start of the last look that reached the end of the log; 0: none did */
    bool is_behind;    /* the last look did not reach it */
    bool has_ended;    /* the batch has ended */
    bool is_complete;  /* the batch has ended, and nothing is left to be read */
    enum err err;
    struct error error;
    bool wants_requests;
    struct answers_requests read_requests;

    pthread_rwlock_t rows;
    bool has_table; /* the number of lines is known */
    struct table table;

    struct runner_results *results; /* NULL before the first look */
    uint64_t after;                 /* sequence number of the last row */
    struct record record;
    struct buf array_texts;  /* texts of the array that becomes a cell */
    struct jsonl_file input; /* requests that were not read yet */
    uint32_t input_lines;    /* requests that were read, and those before them that were erased */
    size_t erased_at;        /* the next one in `erased` */
    bool has_shape;          /* the first request was read */
    uint64_t shape;          /* hash of the shape that the first request asks for; 0: none */
    bool has_one_shape;

    pthread_mutex_t requests;
    struct request_place *places; /* (place_count) by line, one per REQUESTS_STEP lines at least */
    size_t place_count, place_capacity;
    char input_id[STORE_ID_BYTES];    /* the input that they are of; empty: none was opened */
    struct store_erased_lines erased; /* requests that it has no more */
};

struct answers {
    struct store *store;
    struct runner *runner;
    int64_t cores; /* number of cores of the machine */
    pthread_mutex_t lock;
    pthread_cond_t work; /* wakes the thread of answers.c */
    pthread_cond_t told; /* an index has seen the end of its log */
    pthread_t thread;
    struct buf piece; /* results of the look under way */
    bool is_stopping;
    struct answers_index *indexes;
    unsigned char key[16]; /* key of the hashes of texts; random per start of the server */
};

/* build.c: reads one piece of the results into rows, on the thread of answers.c. *ret_more is false
 * at the end of the durable results. *ret_ended is true if the batch has ended, too. */
enum err index_build(struct answers_index *index, bool *ret_more, bool *ret_ended,
                     struct error *error) MUST_CHECK;

/* requests.c: reads a piece of the input, on the thread of answers.c. *ret_more is false at its
 * end. */
enum err index_read_requests(struct answers_index *index, bool *ret_more,
                             struct error *error) MUST_CHECK;

/* build.c: true if the batch has ended. */
bool index_has_ended(const struct answers_index *index);

/* summary.c: appends a finite number in the fewest digits that read back as the same double. */
void number_write(struct buf *buf, double number);
