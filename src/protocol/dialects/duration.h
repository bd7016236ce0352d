/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* duration: times as Ollama's clients and options write them: "5m", "1h30m", "-1m", or a number of
 * seconds.
 *
 * Thread: any; pure.
 * Memory: none. */

#include <stdbool.h>
#include <stdint.h>

/* How long a model stays loaded after its last job, in milliseconds. */
#define KEEP_USUAL INT64_C(0)    /* as long as its worker keeps it */
#define KEEP_FOREVER INT64_C(-1) /* until another one needs its place */
#define KEEP_NOT INT64_C(1)      /* it leaves at once */

/* The seconds of a duration of Go's form, "0" included; false for any other text. */
bool duration_read(const char *text, double *ret_seconds);
/* The same of a time to keep a model: a duration, or a number of seconds, as a text. */
bool duration_read_keep(const char *text, int64_t *ret_keep_ms);
/* A number of seconds as a time to keep a model; a negative one means for ever. */
int64_t duration_keep_of(double seconds);
