/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/faults.h"

bool faults_note(struct faults *faults, int64_t now_ns) {
    if (++faults->count < FAULTS_SICK) return false;
    bool is_new = faults->count == FAULTS_SICK;
    if (!is_new && now_ns < faults->due_ns) return false; /* it was in flight already */
    if (!is_new && faults->probes < FAULTS_DOUBLINGS) faults->probes++;
    faults->due_ns = now_ns + (FAULTS_PAUSE_NS << faults->probes);
    return is_new;
}
