/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "cli/command.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    /* A peer that hangs up is an error of that write, not the end of the program. */
    signal(SIGPIPE, SIG_IGN);
    const char *plan = getenv("QUERN_FAULT");
    struct error error;
    if (plan && os_fault_plan(plan, &error) != OK) {
        fprintf(stderr, "quern: %s\n", error.text);
        return EXIT_USAGE;
    }
    return command_main(argc, argv);
}
