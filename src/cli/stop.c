/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stop.h"

#include "cli/exit_status.h"

#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <unistd.h>

/* A global, because a signal handler gets no context. */
static volatile bool stopping;

static void on_signal(int number) {
    (void)number;
    if (stopping) _exit(EXIT_INTERRUPTED);
    stopping = true;
}

const volatile bool *stop_on_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &stopping;
}

/* The kernel may send it once per thread of the parent, so a second one does not end at once. */
static void on_orphaned(int number) {
    (void)number;
    stopping = true;
}

void stop_with_parent(void) {
    struct sigaction action = {.sa_handler = on_orphaned};
    sigaction(SIGHUP, &action, NULL);
    prctl(PR_SET_PDEATHSIG, SIGHUP);
}
