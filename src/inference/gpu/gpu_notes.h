/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_notes: what a GPU finds out by trials while it warms up, kept in a file between loads.
 *
 * The trials take seconds: which algorithm of a library is the fastest for each shape. The file
 * lies in the model's folder of packed weights, the one folder that a sandboxed engine can write
 * to. It is the plugin that says what the notes hold for, and it ignores those of another GPU,
 * library or build and those that are damaged; then it tells new ones, and the file is replaced.
 * So a file can be removed at any time, and no failure here is more than a line in the log.
 *
 * Thread: the thread that loads.
 * Memory: none is kept. */

#include "gpu/table.h"

/* Before warm. `dir` NULL: there are no notes. */
void gpu_notes_recall(const struct gpu_table *table, struct gpu *gpu, const char *dir,
                      const char *card_uuid);
/* After warm: replaces the file if there is anything new to keep. */
void gpu_notes_keep(const struct gpu_table *table, struct gpu *gpu, const char *dir,
                    const char *card_uuid);
