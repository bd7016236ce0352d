/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* manifest_options: the options of a run that its manifest notes, and the file of the key that
 * signs manifests.
 *
 * Thread: main.
 * Memory: the caller's. */

#include "cli/engine_options.h"
#include "replay/replay.h"

#include <limits.h>

/* The options of the engine that differ from their defaults, as a list of options and values. Those
 * that only say where something is kept, or that load code, are left out. The caller owns it. */
json_t *manifest_settings(const struct engine_choice *choice);
/* The kind of an option in such a list. */
enum replay_setting manifest_setting_kind(const char *option);
/* The key's file in the usual state directory; empty if that has no place. */
void manifest_key_usual(char ret_path[PATH_MAX]);
