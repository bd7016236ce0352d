/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* beat: what a node says of itself every two seconds: which packs it has, and the state of its
 * workers.
 *
 *   u8 version of the layout, BEAT_VERSION · u8 state · u8 flags: 1 a pack is missing · u64 round ·
 *   u64 last pack of work · u64 last pack of results that was put · u64 count of beats · str name
 *   of the machine · str version of quern · u8 workers, and per worker: u32 bytes, then its fields
 *   in the order of struct beat_worker; behind the models, u8 models whose marks follow, and per
 *   model u8 has_weights and the 32 bytes of its mark.
 *
 * Fields behind those that a reader knows are skipped, in a worker as at the end of the beat.
 *
 * Thread: any; pure.
 * Memory: texts are borrowed from the bytes. */

#include "base/buf.h"
#include "protocol/worker.h"

#define BEAT_VERSION 1
#define BEAT_WORKERS_MAX 32
#define BEAT_MODELS_MAX 32 /* per worker */

enum beat_state { BEAT_SERVING, BEAT_DRAINING };

struct beat_model {
    struct str name;
    int64_t created_unix_s;
    uint32_t context_tokens_max;
    bool generates, embeds, decides;
    bool has_identity;
    unsigned char identity[WORKER_IDENTITY_BYTES];
    bool has_weights; /* as worker_ops.weights; an older node tells none */
    unsigned char weights[WORKER_IDENTITY_BYTES];
};

struct beat_worker {
    uint8_t shapes; /* enum shape_handling */
    bool ready, is_parked, is_failed, knows_names;
    uint32_t lines_max, weight; /* as for runner_worker_tune */
    uint32_t running, waiting;
    uint64_t restarts, steps;
    int64_t step_age_ms;
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t memory_bytes;
    uint32_t kv_permille;
    struct str text;
    size_t model_count;
    struct beat_model models[BEAT_MODELS_MAX];
};

struct beat {
    uint8_t state; /* enum beat_state */
    bool has_gap;  /* a pack of work did not come: the server must begin a round */
    uint64_t round, work_seq, result_seq, count;
    struct str name, version;
    size_t worker_count;
    struct beat_worker workers[BEAT_WORKERS_MAX];
};

void beat_write(struct buf *out, const struct beat *beat);
/* False for bytes that are no beat. */
bool beat_read(struct str bytes, struct beat *ret_beat);
