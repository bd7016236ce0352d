/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fsck: checks every promise that quern makes about batches (the invariants of
 * docs/internals/service/store.md) in a state directory that no server has open. It changes
 * nothing.
 *
 * Thread: one.
 * Memory: 16 to 28 bytes per request, for one batch at a time. */

#include "store/fsck.h"

struct fsck_found {
    uint64_t violations;
    uint64_t judgements; /* judgements in the state directory */
};

/* Reports one sentence per violation. The return value says whether the check could be made. */
enum err fsck_run(const char *state_dir, fsck_report_fn report, void *context,
                  struct fsck_found *ret_found, struct error *error) MUST_CHECK;
