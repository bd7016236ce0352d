/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* device_notes: what a device finds out by trials while it warms up, kept in a file between loads.
 *
 * The trials take seconds: which algorithm of a library is the fastest for each shape. The file
 * lies in the model's folder of packed weights, the one folder that a sandboxed engine can write
 * to. It is the plugin that says what the notes hold for, and it ignores those of another card,
 * library or build and those that are damaged; then it tells new ones, and the file is replaced.
 * So a file can be removed at any time, and no failure here is more than a line in the log.
 *
 * Thread: the thread that loads.
 * Memory: none is kept. */

#include "kernels/device.h"

/* Before warm. `dir` NULL: there are no notes. */
void device_notes_recall(const struct device_table *table, struct device *device, const char *dir,
                         const char *card_uuid);
/* After warm: replaces the file if there is anything new to keep. */
void device_notes_keep(const struct device_table *table, struct device *device, const char *dir,
                       const char *card_uuid);
