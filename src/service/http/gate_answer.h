/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gate_answer: an answer of the gate itself, as a whole HTTP message, to a request that the library
 * does not see.
 *
 * Thread: any; pure.
 * Memory: the caller's buffer. */

#include "base/buf.h"

/* Appends the message with the API's error object, the request id and Connection: close. */
void gate_answer_write(struct buf *buf, int status, const char *sentence, const char *request_id);
