/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* memory_ledger: a prediction of where a GPU's memory goes, and settings to advise when it is
 * too little.
 *
 * A GPU lays out its memory itself and tells its own ledger (gpu/table.h). The prediction
 * has the same terms, without the gaps between them. It serves two ends: `quern models inspect`
 * asks about a GPU that this machine lacks, and a refusal names settings that fit. For a refusal,
 * each part of the GPU's own ledger changes by the factor by which its prediction changes.
 *
 * Thread: any.
 * Memory: the caller's structs. */

#include "gpu/table.h"

/* Driver, context and libraries, and 64 MiB that the plugin keeps for kernels loaded later: 594 to
 * 608 MiB on an H200 with driver 580 and cuBLASLt 13.1 (2026-11-22). It depends on no shape. */
#define GPU_CONTEXT_BYTES ((uint64_t)608 << 20)

/* The ledger of a program with as many pages as the limit has room for, at least page_count_min, at
 * most page_count_max. `used` is above the limit if the least cache does not fit. Of the program's
 * operations only those that are given count. */
struct memory_ledger gpu_ledger_predict(const struct gpu_program *program,
                                        const struct gpu_limits *limits, uint64_t limit_bytes);
/* Bytes of experts that the limits leave in the host's memory. */
uint64_t gpu_ledger_away_bytes(const struct gpu_program *program, const struct gpu_limits *limits);
/* Bytes of a page of the KV cache, with the scales of an 8-bit form. */
uint64_t gpu_ledger_page_bytes(const struct gpu_program *program, const struct gpu_limits *limits);
/* Bytes of a sequence's state in all recurrent layers; 0 without them. */
uint64_t gpu_ledger_state_bytes(const struct gpu_program *program, const struct gpu_limits *limits);

/* What prepare refused. */
struct gpu_refusal {
    const struct gpu_program *program;
    const struct gpu_limits *limits;
    const struct memory_ledger *ledger; /* the GPU's own, with the least cache */
    uint32_t urgent_sequences; /* sequences of the limits that --max-num-seqs does not count */
};

/* ERR_LIMIT with the ledger in MiB and the largest value of each setting with which it fits. */
enum err gpu_ledger_refuse(const struct gpu_refusal *refusal, struct error *error);
