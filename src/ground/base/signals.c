/* SPDX-License-Identifier: Apache-2.0 */
#include "base/signals.h"

#include <signal.h>
#include <stddef.h>

static void ignore(int number) {
    struct sigaction now, action = {.sa_handler = SIG_IGN};
    if (sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        sigaction(number, &action, NULL);
}

void signals_ignore_strays(void) {
    static const int strays[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF,
                                 SIGPIPE, SIGPOLL, SIGPWR,  SIGSTKFLT, SIGXFSZ};
    for (size_t i = 0; i < sizeof strays / sizeof *strays; i++) ignore(strays[i]);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++) ignore(number);
}
