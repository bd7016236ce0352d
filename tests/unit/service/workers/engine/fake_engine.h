/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fake_engine: an engine process of the tests, which speaks the wire and has no model. The body of
 * a job asks it to crash, to hang, to hold the job and more; any other body is the answer.
 *
 * Thread: one.
 * Memory: the process ends with it. */

#include <stdbool.h>

/* The process "fake-engine MODE --fd 3". Modes:
 *   good    serves
 *   die     ends before HELLO
 *   fatal   refuses its model
 *   once    refuses its model if another process has left the mark
 *   card    lacks its card while the mark exists
 *   slow    waits for the mark before READY
 *   never   loads without end
 * The path of the model is the mark. Returns the exit status. */
int fake_engine_main(const char *mode);

/* Leaves the mark, as a file. False if it exists already. */
bool fake_engine_mark(const char *path);
