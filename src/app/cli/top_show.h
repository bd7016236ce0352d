/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* top_show: one screen of `quern top`: engines and GPUs of a server, from its /metrics.
 *
 * Rates are the difference of two readings. A value that the server does not tell is NAN and is
 * shown as "-".
 *
 * Thread: main.
 * Memory: the caller's structs. */

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>

#define TOP_ENGINES_MAX 64
#define TOP_CARDS_MAX 16

enum top_engine_value {
    TOP_UP,
    TOP_RESTARTS,
    TOP_RUNNING,
    TOP_WAITING,
    TOP_PROMPT_TOKENS,
    TOP_GENERATED_TOKENS,
    TOP_KV_USED,
    TOP_LIMIT_BYTES, /* most memory of the GPU that the engine may take */
    TOP_ENGINE_VALUES
};

enum top_card_value {
    TOP_CARD_UP,
    TOP_CARD_MEMORY,
    TOP_CARD_MEMORY_USED,
    TOP_CARD_LOAD,
    TOP_CARD_POWER,
    TOP_CARD_POWER_LIMIT,
    TOP_CARD_CLOCK,
    TOP_CARD_CELSIUS,
    TOP_CARD_TOKENS_PER_S,
    TOP_CARD_JOULES, /* per 1,000 tokens */
    TOP_CARD_XIDS,
    TOP_CARD_ECC,
    TOP_CARD_VALUES
};

struct top_engine {
    double values[TOP_ENGINE_VALUES];
    double weight_bytes, kv_bytes, other_bytes; /* parts of its memory on the GPU */
    char card[64];                              /* UUID; empty: none */
};

struct top_card {
    char uuid[64], name[64];
    double values[TOP_CARD_VALUES];
    char limits[64]; /* why the clocks are lower than they could be: "power heat" */
};

struct top_reading {
    int64_t at_ns; /* 0: none was made */
    struct top_engine engines[TOP_ENGINES_MAX];
    size_t engine_count;
    struct top_card cards[TOP_CARDS_MAX];
    size_t card_count;
    double lines, batches_in_progress, queue_depth;
};

void top_show_read(struct top_reading *ret_reading, struct str metrics, int64_t at_ns);
/* `before` is the reading that rates count from; its at_ns may be 0. */
void top_show_write(struct buf *out, const struct top_reading *now,
                    const struct top_reading *before);
