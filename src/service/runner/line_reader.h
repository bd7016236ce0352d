/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* line_reader: reads lines of batches from their input files, with a check that they are the ones
 * that were validated.
 *
 * Thread: the one that it belongs to, without the runner's lock.
 * Memory: a buffer for one line, given back after a line of more than 1 MiB; files of `inputs`. */

#include "base/buf.h"
#include "batch/line.h"
#include "runner/inputs.h"

struct active_batch;
struct runner;

struct line_reader {
    struct runner *runner;
    struct inputs inputs;
    struct buf line;
};

void line_reader_init(struct line_reader *reader, struct runner *runner);
void line_reader_release(struct line_reader *reader);
/* Reads the line, whose parts are the reader's until the next one. ERR_CORRUPT if the input has
 * changed since validation. */
enum err line_reader_read(struct line_reader *reader, struct active_batch *batch, uint32_t number,
                          struct batch_line *ret_line, struct error *error) MUST_CHECK;
