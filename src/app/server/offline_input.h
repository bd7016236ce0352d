/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* offline_input: the requests of a run as a stream of JSONL: those of a file, or made from a table.
 *
 * The stream is the same on every call, so that its hash tells whether a run that goes on has the
 * input with which it began.
 *
 * Thread: main.
 * Memory: a piece of the file; borrows the options. */

#include "base/hash.h"
#include "table/answers.h"

struct offline_input {
    const char *path;
    uint64_t limit;                 /* most rows or lines; 0: all */
    const struct table_plan *table; /* NULL: the file has requests */
    bool has_types;                 /* a Parquet file: its columns keep their types in another */
    struct table_answers_form form; /* form of the output; TABLE_NONE: the results as they are */
};

enum err offline_input_write(const struct offline_input *input, const struct table_sink *sink,
                             struct error *error) MUST_CHECK;
/* The hash of the requests. */
enum err offline_input_sha256(const struct offline_input *input,
                              unsigned char ret_digest[SHA256_BYTES],
                              struct error *error) MUST_CHECK;
/* The sum that a finished output is marked with: of the requests and the form of their results. */
void offline_input_mark(const struct offline_input *input, const unsigned char sha256[SHA256_BYTES],
                        unsigned char ret_mark[SHA256_BYTES]);
