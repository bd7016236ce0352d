/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* node_power: the mean power of this machine while a node works: what the processors' counters and
 * the driver of its GPUs tell.
 *
 * Each counter is a sum of joules, so its power is the sum's growth over the time between two
 * looks. A part of the machine without a counter (disks, fans, the losses of the power supply) is
 * not seen.
 *
 * Thread: one at a time.
 * Memory: one struct; it borrows nothing between calls. */

#include "costs/energy_meter.h"
#include "node/node.h"

struct node_power_card {
    char uuid[CARD_UUID_BYTES];
    double first_joules, last_joules;
    int64_t first_ns, last_ns;
};

struct node_power {
    struct energy_meter meter;
    int64_t started_ns, looked_ns;
    struct node_power_card cards[CARDS_MAX];
    size_t card_count;
};

void node_power_begin(struct node_power *ret_power);
/* Reads all counters; called at least once per minute, and at the end. */
void node_power_look(struct node_power *power, struct node *node);
/* Watts since the beginning; NAN if no counter told any. */
double node_power_watts(const struct node_power *power);
