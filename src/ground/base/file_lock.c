/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_lock.h"

#include "base/clock.h"

#include <errno.h>
#include <sys/file.h>

#define STEP_MS 20

enum err file_lock(int fd, const char *name, bool is_shared, struct error *error) {
    int kind = (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
    for (int left_ms = FILE_LOCK_WAIT_MS; flock(fd, kind) != 0; left_ms -= STEP_MS) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return err_from_errno(error, errno, "cannot lock %.300s", name);
        if (left_ms <= 0) return ERR_CONFLICT;
        clock_sleep_ms(STEP_MS);
    }
    return OK;
}
