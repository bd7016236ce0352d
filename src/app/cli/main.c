/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "cli/command.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    /* A peer that hangs up is an error of that write, not the end of the program. */
    signal(SIGPIPE, SIG_IGN);
    mem_set_up();
    /* Both variables are for tests of quern only. */
    const char *clock = getenv("QUERN_TEST_CLOCK"), *plan = getenv("QUERN_FAULT");
    struct error error;
    enum err err = clock ? clock_follow(clock, &error) : OK;
    if (err != OK) err = err_prefix(&error, "QUERN_TEST_CLOCK");
    if (err == OK && plan) err = os_fault_plan(plan, &error);
    if (err != OK) {
        fprintf(stderr, "quern: %s\n", error.text);
        return EXIT_USAGE;
    }
    if (clock) log_warn("event=test_clock file=%s", clock);
    return command_main(argc, argv);
}
