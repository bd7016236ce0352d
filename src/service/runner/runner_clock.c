/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runner_internal.h"

#include "base/sync.h"

int64_t runner_now_unix_s(struct runner *runner) {
    return runner->options.now_unix_s();
}

void runner_wait(struct runner *runner, pthread_cond_t *cond, int64_t due_ns) {
    sync_wait_until(cond, &runner->lock, due_ns);
}
