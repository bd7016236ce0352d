/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* worker_upstream: a worker that is somebody else's server: vLLM, Ollama, llama-server, LiteLLM,
 * OpenAI, anything that speaks /v1.
 *
 * What it takes waits in order, requests of clients first, and goes out as far as the limit lets
 * it (upstream_limit.h). What an upstream refuses, or what could not be sent, was not run: it goes
 * back to the runner and does not count as a try. After repeated failures nothing is sent until a
 * probe is answered (upstream_breaker.h): what waits goes back, and submit answers false. So an
 * upstream that is down costs time and no line. It never says `down`.
 *
 * Threads: one of its own, which owns the sockets and calls the events.  Memory: a copy of each
 * body it holds, and one answer for each exchange, capped. */

#include "protocol/worker.h"
#include "workers/upstream/spec.h"

#define WORKER_UPSTREAM_ANSWER_BYTES_MAX ((uint64_t)64 << 20)

/* Opens it; whether it can be reached shows later. `key` (NULL: none) is what its key file holds,
 * checked, and kept only as a header. Events may come before this returns. */
enum err worker_upstream_open(struct worker **ret_worker, const struct upstream_spec *spec,
                              const char *key, const struct worker_events *events,
                              struct error *error) MUST_CHECK;
/* Waits until it has been asked for its models once, whatever came of it. False after `timeout_ms`.
 */
bool worker_upstream_wait_asked(struct worker *worker, int64_t timeout_ms);
/* How many lines it should be given at a time: those in flight, and as many to follow them. */
uint32_t worker_upstream_lines_max(const struct upstream_spec *spec);
