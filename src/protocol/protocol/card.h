/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* GPU: the values that are told about a GPU: where an engine's memory on it goes, its load, power
 * and errors.
 *
 * The ledger comes from the engine, once its model is loaded. The rest comes from the driver, which
 * the server asks (node/card_watch.h), because an engine's sandbox forbids the calls. These are
 * plain structs, so that the API tells about GPUs and knows no driver.
 *
 * Thread: any.
 * Memory: none. */

#include <stdbool.h>
#include <stdint.h>

#define CARDS_MAX 16
#define CARD_UUID_BYTES 64
#define CARD_NAME_BYTES 96

/* Parts of an engine's memory, in the order of struct memory_ledger (gpu/table.h). */
enum card_part {
    CARD_PART_CONTEXT,
    CARD_PART_WEIGHTS,
    CARD_PART_ACTIVATIONS,
    CARD_PART_LOGITS,
    CARD_PART_STEPS,
    CARD_PART_WORKSPACE,
    CARD_PART_STATES,
    CARD_PART_KV,
    CARD_PARTS
};

/* All zero: the engine runs on the CPU. */
struct card_ledger {
    uint64_t limit_bytes; /* most that the engine may take */
    uint64_t part_bytes[CARD_PARTS];
};

enum card_value {
    CARD_MEMORY_BYTES,
    CARD_MEMORY_USED_BYTES,
    CARD_UTILISATION,        /* share of the last moments in which a kernel ran, 0..1 */
    CARD_MEMORY_UTILISATION, /* likewise, in which memory was read or written */
    CARD_POWER_WATTS,
    CARD_POWER_LIMIT_WATTS,
    CARD_ENERGY_JOULES, /* since the driver was loaded */
    CARD_SM_CLOCK_HERTZ,
    CARD_MEMORY_CLOCK_HERTZ,
    CARD_CELSIUS,
    CARD_ECC_ERRORS, /* uncorrected, since the driver was loaded */
    CARD_VALUES
};

/* Reasons why the clocks are lower than they could be. */
enum card_brake { CARD_BRAKE_POWER, CARD_BRAKE_HEAT, CARD_BRAKE_HARDWARE, CARD_BRAKES };

struct card_status {
    char uuid[CARD_UUID_BYTES];
    char name[CARD_NAME_BYTES];
    bool is_up;                 /* the driver answered in the last 10 s; else the values are old */
    double values[CARD_VALUES]; /* NAN: not told by the GPU */
    bool brakes[CARD_BRAKES];
    uint64_t xid_count; /* errors that the driver reported since the watch began */
    uint32_t xid_last;  /* number of the last one; 0: none */
    /* Over the last minute; NAN until two samples exist. */
    double tokens_per_s;           /* generated, by all engines on the GPU */
    double joules_per_1000_tokens; /* NAN without tokens, too */
};
