/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* energy_meter: the energy that this machine's processors count, read from Linux's powercap (RAPL).
 *
 * A zone is a folder with a counter in microjoules that wraps at its max_energy_range_uj. Packages
 * count, and their memory (dram) zones; cores and graphics are parts of a package and are passed
 * over. A counter wraps after minutes to hours at full power, so the owner looks at least once per
 * minute. Many kernels let only root read the counters: then nothing is known.
 *
 * Thread: one at a time.
 * Memory: one struct, without pointers. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENERGY_ZONES_MAX 32
#define ENERGY_ZONE_PATH_BYTES 256

struct energy_zone {
    char path[ENERGY_ZONE_PATH_BYTES]; /* path of energy_uj */
    uint64_t last_uj, range_uj;        /* the counter's last value, and where it wraps */
};

struct energy_meter {
    struct energy_zone zones[ENERGY_ZONES_MAX];
    size_t zone_count;
    double joules; /* since energy_meter_open */
    bool is_lost;  /* a counter could no longer be read */
};

/* `folder`: NULL for /sys/class/powercap; a path for tests. */
void energy_meter_open(struct energy_meter *ret_meter, const char *folder);
/* Adds the energy since the last look. */
void energy_meter_look(struct energy_meter *meter);
/* Joules from the opening to the last look; NAN if the machine tells none. */
double energy_meter_joules(const struct energy_meter *meter);
