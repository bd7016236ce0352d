/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answers: the fields of a batch's answers as columns in memory, so that a reader filters and sorts
 * a million lines at once.
 *
 * An index has one row per line of its batch and one column per field. It is made when somebody
 * first asks for it, from the batch's results in the order in which they became durable, and then
 * follows the batch. So a run that nobody looks at costs nothing, and no file of the state
 * directory depends on it: a restart, or 15 min without a question, loses the index, and the next
 * question makes it again in a few seconds. The index knows no HTTP and writes no file. Its cells
 * stay in this folder (table.h): callers see pages of line numbers, JSON, and results.
 *
 * Fields are named as docs/internals/service/answers.md says: ".status" is of the line, "score" and
 * "a.b" are of the answer, if that is a JSON object.
 *
 * Thread: one of its own ("answers", at a low priority) makes and follows the indexes. All
 *     functions but answers_open and answers_close may be called from any thread.
 * Memory: at most TABLE_BYTES_MAX (answers/table.h) of cells and 128 MiB of texts per index, and
 *     ANSWERS_INDEXES_MAX indexes.
 * Invariant: a row that is seen is the whole of its line's result. */

#include "answers/large.h"
#include "base/arena.h"
#include "base/buf.h"
#include "runner/runner.h"
#include "store/batches.h"

#define ANSWERS_INDEXES_MAX 8
#define ANSWERS_FILTERS_MAX 16
#define ANSWERS_LIMIT_MAX 1000
#define ANSWERS_TEXT_MAX 1024 /* bytes of a text that is looked for, and of a filter's name */

struct answers;
struct answers_index;

enum err answers_open(struct answers **ret_answers, struct store *store, struct runner *runner,
                      struct error *error) MUST_CHECK;
/* Every index must be dropped. NULL is allowed. */
void answers_close(struct answers *answers);

/* The index of a batch; the caller answers_drops it. Waits up to 200 ms for the index of a short
 * batch to be made; that of a long one has few rows at first. */
struct answers_index *answers_take(struct answers *answers, const struct store_batch *batch);
void answers_drop(struct answers_index *index);
/* Frees the index of a batch of which lines were erased, at once or with its last user; the next
 * answers_take makes another one. */
void answers_forget(struct answers *answers, const char *batch_id);
/* Waits up to `wait_ms` until each result that is durable at the call has its row. False if a
 * result may have none yet: a wait does not hurry an index that follows a fast run. */
bool answers_catch_up(struct answers_index *index, int64_t wait_ms);

struct answers_state {
    uint64_t indexed; /* rows: lines whose result was read */
    bool is_made;     /* the end of the durable results was reached once */
    enum err err;     /* not OK: the results cannot be read, for the reason in `error` */
    struct error error;
};
void answers_state(struct answers_index *index, struct answers_state *ret_state);

/* Lines are indexes of requests, from 0 on, as in struct seglog_record. */
#define ANSWERS_NO_LINE UINT32_MAX

/* False for a name that no line's field can have: empty, or one dot and an unknown word. */
bool answers_is_name(struct str name);
/* --- walks of rows --- */

enum answers_op {
    ANSWERS_EQ,
    ANSWERS_NE,
    ANSWERS_LT,
    ANSWERS_LE,
    ANSWERS_GT,
    ANSWERS_GE,
    ANSWERS_HAS,     /* the text contains the value, without regard to the case of ASCII letters */
    ANSWERS_IS_NULL, /* the field is absent; no value */
};

/* A condition on a field. Every op but ANSWERS_IS_NULL is false for an absent field. LT to GE
 * compare numbers if the value is one, else texts by their bytes. */
struct answers_filter {
    struct str name;
    enum answers_op op;
    struct str value;
};

/* Marks on lines, set by a caller with further knowledge of them. Zero is no marks. */
struct answers_marks {
    const unsigned char *only; /* (count) 1: the line may fit. NULL: all lines */
    const unsigned char *seen; /* (count) 1: the line was seen before. NULL: none */
    bool shows_seen;           /* pages have seen lines, too */
    uint32_t count;
};

/* Zero is every line in the order of the input. */
struct answers_query {
    const struct answers_filter *filters; /* all must hold */
    size_t filter_count;                  /* at most ANSWERS_FILTERS_MAX */
    struct str sort; /* a field's name; empty: by line. Equal values are in order of line */
    bool descending; /* lines without the field come last in both directions */
    struct str text; /* in the custom_id or the answer's text, ASCII letters in any case */
    struct answers_marks marks;
    struct str after;               /* `after` of the page before; empty: from the start */
    size_t limit;                   /* 1 to ANSWERS_LIMIT_MAX */
    struct large_turn *turn;        /* for long results; NULL: they are read in any case */
    bool (*is_gone)(void *context); /* the search ends when it is true; NULL: it never is */
    void *context;
};

struct answers_page {
    uint32_t lines[ANSWERS_LIMIT_MAX];
    size_t count;
    bool is_matched_known; /* false if the texts of answers had to be read, and not all were */
    uint64_t matched;      /* rows that fit, seen ones included */
    uint64_t unseen;       /* rows of `matched` that were not seen; not of a search */
    bool was_read;         /* the texts of results had to be read: of `searched` rows */
    uint64_t searched;
    uint64_t left;    /* rows after this page; of a search the rows that are still to be searched */
    bool has_more;    /* call again with `after`, also if count is 0 */
    struct buf after; /* opaque; the caller releases it */
};

/* Finds a page of rows. It reads the results of at most SEARCH_LINES lines (query.c) for `text` and
 * for ANSWERS_HAS on long texts, so that a page may have fewer rows than the limit and still
 * has_more. ERR_INVALID: `after` is of no such query. ERR_CANCELLED: is_gone is true. Also the
 * errors of answers_read_result. */
enum err answers_find(struct answers_index *index, const struct answers_query *query,
                      struct answers_page *ret_page, struct error *error) MUST_CHECK;
void answers_page_release(struct answers_page *page);
/* Appends the cursor behind a line of a page, for a caller that stops there. */
void answers_write_cursor(struct buf *buf, struct answers_index *index,
                          const struct answers_query *query, uint32_t line);

/* --- single lines, and two runs --- */

/* The line with this custom_id, by a keyed hash; ANSWERS_NO_LINE if no row has it. */
uint32_t answers_find_line(struct answers_index *index, struct str custom_id);
/* The line of another run with the custom_id of this one; ANSWERS_NO_LINE if no row has it. */
uint32_t answers_match(struct answers_index *index, uint32_t line, struct answers_index *with);
/* Marks the lines whose labels (record.h) differ from those of the same custom_id in another run.
 * `marks` has `count` bytes, zero at the call. */
void answers_mark_different(struct answers_index *index, struct answers_index *with,
                            unsigned char *marks, uint32_t count);
/* The field ".entropy" of a line; false if it has none. */
bool answers_entropy(struct answers_index *index, uint32_t line, double *ret_entropy);

/* --- results and requests of lines --- */

/* A reader of single results, for one thread. */
struct answers_reader;
void answers_reader_open(struct answers_reader **ret_reader, struct answers_index *index);
void answers_reader_close(struct answers_reader *reader); /* NULL is allowed */
/* Appends a line's output or error line, without its LF, if it has at most `bytes_max` bytes;
 * *ret_bytes is its size in any case. ERR_NOT_FOUND: the line has no row, or the batch's result
 * files are gone. ERR_CORRUPT: its record is damaged, and the line runs again. */
enum err answers_read_result(struct answers_reader *reader, uint32_t line, size_t bytes_max,
                             struct buf *buf, uint64_t *ret_bytes, struct error *error) MUST_CHECK;
/* The requests of a batch, as far as the thread has read them. */
struct answers_requests {
    bool is_read;       /* the whole input was read: answers_read_request finds any line at once */
    bool has_one_shape; /* once read: all lines ask for one shape, or for the same questions */
    enum err err;       /* not OK: the input cannot be read, for the reason in `error` */
    struct error error;
};
/* Tells how far the requests are read. From the first call on, the thread reads them, after the
 * results. */
void answers_requests(struct answers_index *index, struct answers_requests *ret_requests);
/* Appends the request as it was sent, one line of the input file, without its LF. ERR_NOT_FOUND:
 * the batch has no such line, or its input file was deleted. ERR_LIMIT: it has over `bytes_max`. */
enum err answers_read_request(struct answers_index *index, uint32_t line, size_t bytes_max,
                              struct buf *buf, struct error *error) MUST_CHECK;

/* Appends the custom_id and the fields of a result line as members of an object:
 * "custom_id":"…","fields":{…}. The texts of fields are cut after 1,024 bytes. */
void answers_write_fields(struct buf *buf, struct str result);
/* The same from a row, for a result too long to be read: without long texts. */
void answers_write_row(struct buf *buf, struct answers_index *index, uint32_t line);

/* --- all rows --- */

/* Copies the names of the answers' fields, in the order of their columns, without the line's own
 * fields; returns their number, `most` at most. */
size_t answers_names(struct answers_index *index, struct arena *arena, struct str *ret_names,
                     size_t most);

/* Appends the array of fields with their values, counts and histograms, as
 * GET /v1/batches/{id}/answers/fields has it. */
void answers_write_summary(struct buf *buf, struct answers_index *index);
/* Values that were not kept, because their answers have more fields than an index has columns. */
uint64_t answers_left_out(struct answers_index *index);
