/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* knobs: the options that are tried on an owner's file, and the values of each.
 *
 * Thread: any.
 * Memory: the caller's struct. */

#include "tune/tune.h"

#define KNOB_COUNT 7
#define KNOB_WORDS                                                                                 \
    "max-model-len|quantization|max-num-seqs|max-num-batched-tokens|kv-cache-memory-bytes|"        \
    "kv-cache-dtype|threads"

struct knob_settings {
    struct tune_setting at[TUNE_SETTINGS_MAX];
    size_t count;
    char threads[2][24]; /* texts of values that depend on the machine */
};

/* Whether an option is one of them. */
bool knobs_has(const char *name);
/* Lists the settings of the options `names` (count 0: of all) that differ from `today`, the options
 * of a run, ending in NULL. Borrows nothing of `names`. */
void knobs_list(struct knob_settings *ret_settings, const char *const *names, size_t count,
                const char *const *today);
