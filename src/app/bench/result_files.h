/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* result_files: a run as bytes that others' tools read.
 *
 *   requests.jsonl   one line per request of every run, failed ones included
 *   NAME.json        one object per run with the fields of `vllm bench serve --save-result`, and
 *                    one more, "quern": machine, command, round and how tokens were counted
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "bench/drive.h"
#include "bench/machine.h"

/* Appends the lines of a run's requests. */
void result_files_write_requests(struct buf *out, const struct bench_run *run);
/* Appends the object of a run. `is_detailed`: with the arrays of vLLM's --save-detailed, but for
 * the texts, which are not kept. */
void result_files_write_run(struct buf *out, const struct bench_run *run,
                            const struct machine *machine, const struct bench_drive_options *drive,
                            bool is_detailed);
/* Writes "quern-256_128-c8-r1.json" with characters that any file system takes. */
void result_files_name(char *ret_name, size_t name_bytes, const struct bench_run *run);
