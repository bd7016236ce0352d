/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* worker_upstream: a worker that is a server of others: vLLM, Ollama, llama-server, LiteLLM, OpenAI
 * or any other with the OpenAI API.
 *
 * Jobs wait in order, requests of clients first, and are sent as the limit allows (limit.h). A job
 * that the upstream refuses, or that could not be sent, was not run: it goes back to the runner and
 * counts as no try. After repeated failures nothing is sent until a probe is answered (breaker.h):
 * waiting jobs go back, and submit answers false. So an upstream that is down costs time and no
 * line. This worker never calls `down`.
 *
 * Thread: one of its own, which owns the sockets and calls the events.
 * Memory: a copy of each body, and one answer per exchange of at most
 * WORKER_UPSTREAM_ANSWER_BYTES_MAX. */

#include "protocol/worker.h"
#include "workers/upstream/spec.h"

#define WORKER_UPSTREAM_ANSWER_BYTES_MAX ((uint64_t)64 << 20)

/* Opens the worker; no connection is made yet. `key` is the checked text of its key file, NULL for
 * none, and is kept only as a header. Events may come before this returns. */
enum err worker_upstream_open(struct worker **ret_worker, const struct upstream_spec *spec,
                              const char *key, const struct worker_events *events,
                              struct error *error) MUST_CHECK;
/* Requests that are sent later have this key, a checked text. Any thread. */
void worker_upstream_set_key(struct worker *worker, const char *key);
/* Waits until the upstream has been asked for its models once, with or without success. False after
 * `timeout_ms`. */
bool worker_upstream_wait_asked(struct worker *worker, int64_t timeout_ms);
/* Lines to give it at a time: as many as may be in flight, and as many (16 at least) to follow. */
uint32_t worker_upstream_lines_max(const struct upstream_spec *spec);
