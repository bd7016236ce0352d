/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* card_fit: how a decoder would fit into a card's memory, from its config alone.
 *
 * It makes the program's shapes from the config, in the forms that a card can keep, and asks
 * device_ledger. It opens no card and reads no weight.
 *
 * Thread: any.
 * Memory: the caller's structs. */

#include "checkpoint/config.h"
#include "device/device_ledger.h"

/* Limits of the prediction; those of an executor without options. */
#define CARD_FIT_ROWS 2048u
#define CARD_FIT_SEQUENCES 1024u

struct card_fit_options {
    const struct model_config *config; /* of a decoder */
    bool is_tied;                      /* the embedding is the head */
    enum device_form weights;          /* DEVICE_BF16, DEVICE_E4M3 or DEVICE_INT8 */
    enum device_form kv;               /* DEVICE_BF16 or DEVICE_E4M3 */
    uint64_t memory_bytes;             /* that the engine may take */
    uint32_t sequence_tokens;          /* length of a sequence; 0: the context */
};

struct card_fit {
    struct device_ledger ledger;
    bool is_fitting; /* the ledger has room for one sequence */
    uint32_t sequence_tokens;
    uint64_t kv_bytes_per_token; /* of a sequence of that length, in the mean */
    uint64_t sequences;          /* of that length that run at once, at most CARD_FIT_SEQUENCES */
};

struct card_fit card_fit_of(const struct card_fit_options *options);
