/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit_command.h"

#include "base/clock.h"
#include "store/audit.h"

#include <stdio.h>
#include <unistd.h>

enum err audit_by_command(const char *state_dir, const char *action, const char *subject,
                          struct error *error) {
    char actor[32];
    snprintf(actor, sizeof actor, "uid %lu", (unsigned long)getuid());
    const struct audit_entry entry = {
        .unix_s = clock_unix_s(), .action = action, .subject = subject, .actor = actor};
    return audit_add(state_dir, &entry, error);
}
