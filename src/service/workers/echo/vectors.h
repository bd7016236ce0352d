/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* echo_vectors: the embeddings of the echo worker: one vector of length 1 per text, made of the
 * text's bytes alone, so that equal texts have equal vectors and other texts nearly never.
 *
 * Thread: any; pure.
 * Memory: the caller's buffer. */

#include "base/buf.h"

#define ECHO_DIMENSIONS_DEFAULT 8
#define ECHO_DIMENSIONS_MAX 4096

/* Appends the array of the `data` member. It understands `input` in its four forms,
 * `encoding_format` and `dimensions`, and checks nothing. */
void echo_write_vectors(struct buf *buf, struct str body);
