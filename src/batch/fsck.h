/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fsck: checks every promise that quern makes about batches (the invariants of
 * docs/internals/store.md) in a state directory that no server has open. It changes nothing.
 *
 * Thread: one.
 * Memory: 16 to 28 bytes per request, for one batch at a time. */

#include "store/fsck.h"

/* Reports one sentence per violation. The return value says whether the check could be made,
 * *ret_violations how many violations it found. */
enum err fsck_run(const char *state_dir, fsck_report_fn report, void *context,
                  uint64_t *ret_violations, struct error *error) MUST_CHECK;
