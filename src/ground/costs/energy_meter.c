/* SPDX-License-Identifier: Apache-2.0 */
#include "costs/energy_meter.h"

#include "base/os.h"
#include "base/str.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "/sys/class/powercap"
#define TEXT_BYTES_MAX ((size_t)4096)
#define JOULES_PER_UJ 1e-6

/* Reads a file of one line; false if there is none to read. */
static bool read_line(const char *path, char *ret_text, size_t capacity) {
    char *text;
    size_t bytes;
    struct error ignored;
    if (os_read_file(path, TEXT_BYTES_MAX, &text, &bytes, &ignored) != OK) return false;
    snprintf(ret_text, capacity, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
    return true;
}

static bool read_count(const char *path, uint64_t *ret_count) {
    char text[32];
    return read_line(path, text, sizeof text) && str_to_u64(str_from(text), ret_count);
}

/* Takes the zone if it is a package, or memory, and can be read. AMD's processors have the name
 * intel-rapl, too. A second interface to the same zones (intel-rapl-mmio) would count twice. */
static void take_zone(struct energy_meter *meter, const char *folder, const char *name) {
    char path[ENERGY_ZONE_PATH_BYTES], about[64];
    struct energy_zone zone = {.last_uj = 0};
    if (strncmp(name, "intel-rapl:", 11) != 0) return;
    if (meter->zone_count == ENERGY_ZONES_MAX) return;
    snprintf(path, sizeof path, "%.150s/%.64s/name", folder, name);
    if (!read_line(path, about, sizeof about)) return;
    if (strncmp(about, "package", 7) != 0 && strcmp(about, "dram") != 0) return;
    snprintf(path, sizeof path, "%.150s/%.64s/max_energy_range_uj", folder, name);
    if (!read_count(path, &zone.range_uj)) return;
    snprintf(zone.path, sizeof zone.path, "%.150s/%.64s/energy_uj", folder, name);
    if (read_count(zone.path, &zone.last_uj)) meter->zones[meter->zone_count++] = zone;
}

void energy_meter_open(struct energy_meter *ret_meter, const char *folder) {
    *ret_meter = (struct energy_meter){.zone_count = 0};
    if (!folder) folder = FOLDER;
    DIR *entries = opendir(folder);
    if (!entries) return;
    for (const struct dirent *entry; (entry = readdir(entries));)
        take_zone(ret_meter, folder, entry->d_name);
    closedir(entries);
}

void energy_meter_look(struct energy_meter *meter) {
    for (size_t i = 0; i < meter->zone_count; i++) {
        struct energy_zone *zone = &meter->zones[i];
        uint64_t now_uj;
        if (!read_count(zone->path, &now_uj)) {
            meter->is_lost = true;
            return;
        }
        uint64_t used_uj = now_uj >= zone->last_uj ? now_uj - zone->last_uj
                                                   : zone->range_uj - zone->last_uj + now_uj;
        meter->joules += (double)used_uj * JOULES_PER_UJ;
        zone->last_uj = now_uj;
    }
}

double energy_meter_joules(const struct energy_meter *meter) {
    return meter->zone_count > 0 && !meter->is_lost ? meter->joules : NAN;
}
