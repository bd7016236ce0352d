/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stop.h"

#include "base/os_pipe.h"
#include "base/signals.h"
#include "cli/exit_status.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Globals, because a signal handler gets no context. */
static volatile bool stopping;
static volatile sig_atomic_t hangups;
static bool ends_with_terminal; /* set before the handler that reads it */

static void on_signal(int number) {
    (void)number;
    if (stopping) _exit(EXIT_INTERRUPTED);
    stopping = true;
}

const volatile bool *stop_on_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    signals_ignore_strays();
    os_pipe_stop_with(&stopping);
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

void die_with_parent(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static bool has_terminal(void) {
    int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static void on_hangup(int number) {
    int kept = errno;
    (void)number;
    if (ends_with_terminal && !has_terminal())
        stopping = true;
    else if (hangups < SIG_ATOMIC_MAX)
        hangups = hangups + 1;
    errno = kept;
}

const volatile sig_atomic_t *count_hangups(void) {
    struct sigaction action = {.sa_handler = on_hangup, .sa_flags = SA_RESTART}, before;
    sigaction(SIGHUP, NULL, &before);
    ends_with_terminal = before.sa_handler != SIG_IGN && has_terminal();
    sigaction(SIGHUP, &action, NULL);
    return &hangups;
}
