/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bench_server: a `quern serve` of its own for one benchmark, with a state directory that goes with
 * it.
 *
 * It keeps no results of earlier requests, so that equal requests of two rounds are both computed.
 *
 * Thread: main.
 * Memory: the caller's struct; bench_server_stop gives everything back. */

#include "base/err.h"

#include <limits.h>
#include <sys/types.h>

/* Zero is a server that was not started. */
struct bench_server {
    pid_t pid;
    char state[PATH_MAX]; /* its folder under TMPDIR */
    char base_url[64];
};

/* Starts it and waits until it listens. `model` is as of `quern serve --model`. */
enum err bench_server_start(struct bench_server *server, const char *model,
                            struct error *error) MUST_CHECK;
void bench_server_stop(struct bench_server *server);
