/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stop.h"

#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EXIT_INTERRUPTED 130

/* A signal handler can reach nothing but a global. */
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

/* The system may tell it once for each thread of the parent: the second time is no hurry. */
static void on_orphaned(int number) {
    (void)number;
    stopping = true;
}

void stop_with_parent(void) {
    struct sigaction action = {.sa_handler = on_orphaned};
    sigaction(SIGHUP, &action, NULL);
    prctl(PR_SET_PDEATHSIG, SIGHUP);
}
