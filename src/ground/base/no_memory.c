/* SPDX-License-Identifier: Apache-2.0 */
#include "base/no_memory.h"

#include <stdlib.h>
#include <unistd.h>

void no_memory(void) {
    static const char sentence[] =
        "quern: no memory for what it needs now, so that the process ends; what was acknowledged "
        "is on the disk, and the next start goes on from there\n";
    (void)!write(STDERR_FILENO, sentence, sizeof sentence - 1);
    abort();
}
