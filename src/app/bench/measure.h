/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* measure: the figures of a run, from the records of its requests.
 *
 *   time to first token      first - start, of streamed requests
 *   time per output token    (end - first) / (output tokens - 1), of streamed requests with two
 *                            tokens at least
 *   gap between events       as it was seen; a server that sends several tokens per event has fewer
 *   latency                  end - start
 *
 * Thread: any.
 * Memory: none is kept. */

#include "bench/drive.h"

/* Fills run->figures. */
void bench_measure(struct bench_run *run);
/* The share of cached tokens in the prompts, in percent; 0 without prompts. */
double bench_cached_percent(const struct bench_figures *figures);
