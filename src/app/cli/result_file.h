/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* result_file: the results of a batch as a file that appears whole.
 *
 * The lines are written to OUT.SUM.part, where SUM stands for the server and the batch. Of an ended
 * batch that file stays after a break, and the next call goes on behind its last whole line. The
 * finished file gets the name OUT by rename, and carries the SUM as an extended attribute, by which
 * a later call knows that nothing is left to do. Any other file of the name OUT is replaced only if
 * the user says so, as by `quern run`.
 *
 * Thread: main.
 * Memory: one buffer. */

#include "client/results.h"

#include <limits.h>

struct result_file {
    const char *path;
    char part[PATH_MAX];
    char sum[17];
    int fd;
    bool may_replace;
    uint64_t kept_bytes; /* whole lines from an earlier call */
    uint64_t lines;      /* lines that this call has written */
    struct buf pending;
};

struct result_wish {
    const char *path;
    const char *server, *batch_id;
    bool overwrite;
};

/* True if `path` has all results of this batch. ERR_CONFLICT if it is another file and `overwrite`
 * is false; ERR_INVALID if it cannot be written. */
enum err result_file_check(const struct result_wish *wish, bool *ret_is_finished,
                           struct error *error) MUST_CHECK;
/* Opens the part file. With `continues` what an earlier call has left is kept up to its last whole
 * line. ERR_CONFLICT if another process writes it. */
enum err result_file_open(struct result_file *ret_file, const struct result_wish *wish,
                          bool continues, struct error *error) MUST_CHECK;
/* Which bytes of the two files of the batch the part has. */
enum err result_file_place(const struct result_file *file, uint64_t output_bytes,
                           struct results_place *ret_place, struct error *error) MUST_CHECK;
/* Drops the kept lines: for a server that does not tell the sizes of its files. */
enum err result_file_restart(struct result_file *file, struct error *error) MUST_CHECK;
/* A results_line_fn whose context is a struct result_file. */
enum err result_file_take(void *context, struct str line, enum results_kind kind,
                          struct error *error) MUST_CHECK;
/* Writes the lines that were taken; those of earlier calls are before them. */
enum err result_file_flush(struct result_file *file, struct error *error) MUST_CHECK;
/* Syncs the part and gives it its name. `is_whole`: all results are in it. */
enum err result_file_finish(struct result_file *file, bool is_whole,
                            struct error *error) MUST_CHECK;
/* Closes the part, which stays if it was not finished and `keeps`. */
void result_file_close(struct result_file *file, bool keeps);
