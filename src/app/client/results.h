/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* results: the result lines of a batch, one by one, from its files or, while it runs, from quern.
 *
 * An ended batch has an output file and an error file; their lines come in that order, each file in
 * its own. A running batch has lines on a quern server only, in the order in which they ended.
 *
 * A line may be long and a file large: one line is in memory at a time. A connection that breaks is
 * made again, and the file goes on at the byte where it stopped, by a Range or, where the server
 * does not know ranges, by reading it again up to there.
 *
 * Thread: one.
 * Memory: one line, of at most RESULTS_LINE_BYTES_MAX. */

#include "client/objects.h"
#include "client/remote.h"

#define RESULTS_LINE_BYTES_MAX ((size_t)256 << 20)

enum results_kind {
    RESULTS_OUTPUT, /* a line of the output file */
    RESULTS_ERROR,  /* a line of the error file */
    RESULTS_LIVE,   /* a line of either kind, of a batch that runs */
};

/* Takes one line without its LF. An error ends the reading and is returned from it. */
typedef enum err (*results_line_fn)(void *context, struct str line, enum results_kind kind,
                                    struct error *error);

/* Bytes of the two files that need not be read again; they end with whole lines. */
struct results_place {
    uint64_t output_bytes, error_bytes;
    bool has_kept;     /* they stand in a file, and the sums of both files begin with them */
    int kept_fd;       /* that file: the bytes of the output file are at its start, */
    uint64_t error_at; /* and those of the error file here */
};

/* Reads the lines of an ended batch behind `from`. ERR_NOT_FOUND if a file of it no longer exists;
 * ERR_CORRUPT if a file has not as many bytes as the server says, or not its SHA-256, so that what
 * was taken is not to be trusted, or if an id is none. */
enum err results_read(struct remote *remote, const struct batch_object *batch,
                      const struct results_place *from, results_line_fn take, void *context,
                      struct error *error) MUST_CHECK;
/* Reads the lines that a running batch has on a quern server. ERR_CONFLICT from other servers. */
enum err results_read_live(struct remote *remote, const struct batch_object *batch,
                           results_line_fn take, void *context, struct error *error) MUST_CHECK;
/* What the server says of a file. */
enum err results_file(struct remote *remote, const char *file_id, struct file_object *ret_file,
                      struct error *error) MUST_CHECK;
/* Gives a batch without a name that of its input file, if the server has it. */
void results_name(struct remote *remote, struct batch_object *batch);
/* The size of a file in bytes, as the server tells it. */
enum err results_file_bytes(struct remote *remote, const char *file_id, uint64_t *ret_bytes,
                            struct error *error) MUST_CHECK;
/* Reads the lines of one file behind `from` bytes, such as an input file. */
enum err results_read_file(struct remote *remote, const char *file_id, uint64_t from,
                           enum results_kind kind, results_line_fn take, void *context,
                           struct error *error) MUST_CHECK;
