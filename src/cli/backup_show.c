/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/backup_show.h"

#include <stdio.h>
#include <time.h>

void backup_show_time(int64_t unix_s, char ret_text[BACKUP_TIME_BYTES]) {
    struct tm parts;
    time_t when = (time_t)unix_s;
    if (!gmtime_r(&when, &parts) ||
        strftime(ret_text, BACKUP_TIME_BYTES, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        snprintf(ret_text, BACKUP_TIME_BYTES, "an unknown time");
}

const char *backup_show_batches(uint64_t count) {
    return count == 1 ? "batch" : "batches";
}
