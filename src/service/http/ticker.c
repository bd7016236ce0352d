/* SPDX-License-Identifier: Apache-2.0 */
#include "http/ticker.h"

#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The library's 128 events, less two that are of no connection: its own wake-up and ours. */
#define CONNECTIONS_LEAST 126

enum err ticker_open(struct ticker *ticker, struct MHD_Daemon *daemon, struct error *error) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
    /* The library passes over an event without a pointer, and reads nothing: each write is an
     * edge. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    ticker->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ticker->event >= 0 && info &&
        epoll_ctl(info->epoll_fd, EPOLL_CTL_ADD, ticker->event, &event) == 0)
        return OK;
    return err_from_errno(error, errno, "cannot watch the HTTP library's thread");
}

void ticker_add(struct ticker *ticker) {
    atomic_fetch_add(&ticker->connections, 1);
}

void ticker_remove(struct ticker *ticker) {
    unsigned before = atomic_fetch_sub(&ticker->connections, 1);
    assert(before > 0);
    (void)before;
}

bool ticker_tick(struct ticker *ticker) {
    if (atomic_load(&ticker->connections) < CONNECTIONS_LEAST) return false;
    uint64_t one = 1;
    ssize_t written = write(ticker->event, &one, sizeof one);
    assert(written == sizeof one); /* the sum of all ticks fits */
    (void)written;
    return true;
}

void ticker_close(struct ticker *ticker) {
    os_close(ticker->event);
}
