/* SPDX-License-Identifier: Apache-2.0 */
#include "api/damaged.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

void damaged_init(struct damaged *damaged) {
    *damaged = (struct damaged){.next = 0};
    pthread_mutex_init(&damaged->lock, NULL);
}

void damaged_release(struct damaged *damaged) {
    pthread_mutex_destroy(&damaged->lock);
}

static bool find(const struct damaged *damaged, const char *sha256_hex) {
    for (size_t i = 0; i < DAMAGED_MAX; i++)
        if (strcmp(damaged->sums[i], sha256_hex) == 0) return true;
    return false;
}

void damaged_add(struct damaged *damaged, const char *sha256_hex) {
    pthread_mutex_lock(&damaged->lock);
    bool is_new = *sha256_hex && !find(damaged, sha256_hex);
    if (is_new) {
        snprintf(damaged->sums[damaged->next], SHA256_HEX_BYTES, "%s", sha256_hex);
        damaged->next = (damaged->next + 1) % DAMAGED_MAX;
    }
    pthread_mutex_unlock(&damaged->lock);
    if (is_new)
        log_error("event=file_damaged sha256=%s; its bytes are not those that were stored, and its "
                  "transfer was broken off; quern fsck names it",
                  sha256_hex);
}

bool damaged_has(struct damaged *damaged, const char *sha256_hex) {
    pthread_mutex_lock(&damaged->lock);
    bool has = find(damaged, sha256_hex);
    pthread_mutex_unlock(&damaged->lock);
    return has;
}
