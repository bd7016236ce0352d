/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/backup_show.h"

const char *backup_show_batches(uint64_t count) {
    return count == 1 ? "batch" : "batches";
}
