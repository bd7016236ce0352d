/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* shrink: whether a smaller plan fails as a larger one did, for the rig and for the simulator of
 * copies. It knows no plan: plans are bytes without pointers, and their owner runs them.
 *
 * Thread: one.
 * Memory: the caller's. */

#include <stdbool.h>
#include <stddef.h>

struct shrink {
    bool (*run)(const void *plan); /* false: it fails, and `wrong` has the sentence */
    const char *wrong;
    size_t plan_bytes;
    char kind[48];
    unsigned runs;
};

/* From a plan that has failed just now. */
void shrink_begin(struct shrink *shrink, bool (*run)(const void *plan), const char *wrong,
                  size_t plan_bytes);
/* Runs the plan; true if it fails with the same kind of violation. False, without a run, after 200
 * runs. */
bool shrink_fails(struct shrink *shrink, const void *plan);
/* Puts `smaller` into the place of `plan` if it differs and fails alike. */
void shrink_try(struct shrink *shrink, void *plan, const void *smaller);
