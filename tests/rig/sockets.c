/* SPDX-License-Identifier: Apache-2.0 */
#include "sockets.h"

#include "base/clock.h"
#include "base/err.h"
#include "threads.h"
#include "world.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAITING_MAX 8
#define DAEMONS_MAX 4
#define PORT 80

/* A daemon of libmicrohttpd and the thread that runs it. */
struct runner_of {
    struct MHD_Daemon *daemon;
    pthread_t thread;
    bool has_news; /* a connection has come or is to go on, which no event tells */
    bool is_stopping;
};

static int listener = -1; /* an eventfd that counts the connections in `waiting` */
static int waiting[WAITING_MAX];
static unsigned waiting_count;
static struct runner_of daemons[DAEMONS_MAX];
static const char moved; /* what all wait for */

void sockets_begin(void) {
    listener = -1;
    waiting_count = 0;
    memset(daemons, 0, sizeof daemons);
}

void sockets_moved(void) {
    threads_wake(&moved);
}

bool sockets_wait_until(int64_t due_ns) {
    return threads_wait_until(&moved, due_ns);
}

/* --- the listener --- */

enum err __wrap_listener_open(int *ret_fd, const char *host, uint16_t port, uint16_t *ret_port,
                              struct error *error);
enum err __wrap_listener_open(int *ret_fd, const char *host, uint16_t port, uint16_t *ret_port,
                              struct error *error) {
    (void)host, (void)port, (void)error;
    listener = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
    if (listener < 0) abort();
    *ret_fd = listener;
    *ret_port = PORT;
    return OK;
}

int sockets_connect(void) {
    int pair[2];
    uint64_t one = 1;
    if (listener < 0 || waiting_count == WAITING_MAX) world_fail("no connection can be made");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) abort();
    waiting[waiting_count++] = pair[1];
    if (write(listener, &one, sizeof one) != sizeof one) abort();
    sockets_moved();
    return pair[0];
}

int __wrap_accept4(int fd, struct sockaddr *ret_peer, socklen_t *ret_bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *ret_peer, socklen_t *ret_bytes, int flags) {
    const struct sockaddr_in peer = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint64_t one;
    (void)flags;
    if (waiting_count == 0) {
        errno = EAGAIN;
        return -1;
    }
    if (read(fd, &one, sizeof one) != sizeof one) abort();
    int accepted = waiting[0];
    memmove(waiting, waiting + 1, --waiting_count * sizeof *waiting);
    memcpy(ret_peer, &peer, sizeof peer);
    *ret_bytes = sizeof peer;
    return accepted;
}

/* --- bytes --- */

ssize_t __real_send(int fd, const void *bytes, size_t count, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t count, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t count, int flags) {
    threads_may_switch();
    ssize_t sent = __real_send(fd, bytes, count, flags);
    int failed = errno;
    sockets_moved();
    errno = failed;
    return sent;
}

/* TCP drops bytes that are received into nothing; a Unix socket wants a place for them. */
ssize_t __real_recv(int fd, void *ret_bytes, size_t count, int flags);
ssize_t __wrap_recv(int fd, void *ret_bytes, size_t count, int flags);
ssize_t __wrap_recv(int fd, void *ret_bytes, size_t count, int flags) {
    static char nowhere[65536];
    threads_may_switch();
    bool drops = !ret_bytes && (flags & MSG_TRUNC);
    if (drops && count > sizeof nowhere) count = sizeof nowhere;
    ssize_t got = drops ? __real_recv(fd, nowhere, count, flags & ~MSG_TRUNC)
                        : __real_recv(fd, ret_bytes, count, flags);
    int failed = errno;
    if (got > 0) sockets_moved();
    errno = failed;
    return got;
}

int __real_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how) {
    int failed = __real_shutdown(fd, how);
    sockets_moved();
    return failed;
}

/* --- waiting --- */

int __real_epoll_wait(int set, struct epoll_event *ret_events, int most, int timeout_ms);
int __wrap_epoll_wait(int set, struct epoll_event *ret_events, int most, int timeout_ms);
int __wrap_epoll_wait(int set, struct epoll_event *ret_events, int most, int timeout_ms) {
    int64_t due_ns =
        timeout_ms < 0 ? INT64_MAX : clock_monotonic_ns() + (int64_t)timeout_ms * 1000000;
    threads_may_switch();
    for (bool in_time = timeout_ms != 0;; in_time = sockets_wait_until(due_ns)) {
        int count = __real_epoll_wait(set, ret_events, most, 0);
        if (count != 0 || !in_time) return count;
    }
}

/* All threads of a life are one of the kernel's. */
int __wrap_setpriority(__priority_which_t which, id_t who, int value);
int __wrap_setpriority(__priority_which_t which, id_t who, int value) {
    (void)which, (void)who, (void)value;
    return 0;
}

/* --- libmicrohttpd --- */

static bool has_work(const struct runner_of *own) {
    struct MHD_Daemon *daemon = own->daemon;
    MHD_UNSIGNED_LONG_LONG left_ms;
    if (own->has_news) return true;
    if (MHD_get_timeout(daemon, &left_ms) == MHD_YES && left_ms == 0) return true;
    struct pollfd set = {.fd = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
                         .events = POLLIN};
    return poll(&set, 1, 0) > 0;
}

static void *daemon_main(void *context) {
    struct runner_of *own = context;
    for (;;) {
        threads_may_switch();
        if (own->is_stopping) break;
        if (!has_work(own)) {
            (void)sockets_wait_until(INT64_MAX);
            continue;
        }
        own->has_news = false;
        (void)MHD_run(own->daemon);
        sockets_moved(); /* it has read, written or closed */
    }
    return NULL;
}

struct MHD_Daemon *__wrap_MHD_start_daemon(unsigned flags, uint16_t port,
                                           MHD_AcceptPolicyCallback policy, void *policy_context,
                                           MHD_AccessHandlerCallback handler, void *context, ...);
struct MHD_Daemon *__wrap_MHD_start_daemon(unsigned flags, uint16_t port,
                                           MHD_AcceptPolicyCallback policy, void *policy_context,
                                           MHD_AccessHandlerCallback handler, void *context, ...) {
    struct runner_of *own = daemons;
    va_list options;
    while (own->daemon) own++;
    if (own >= daemons + DAEMONS_MAX) abort();
    va_start(options, context);
    own->daemon =
        MHD_start_daemon_va((flags & ~(unsigned)MHD_USE_EPOLL_INTERNAL_THREAD) | MHD_USE_EPOLL,
                            port, policy, policy_context, handler, context, options);
    va_end(options);
    if (!own->daemon || pthread_create(&own->thread, NULL, daemon_main, own) != 0) abort();
    return own->daemon;
}

void __real_MHD_stop_daemon(struct MHD_Daemon *daemon);
void __wrap_MHD_stop_daemon(struct MHD_Daemon *daemon);
void __wrap_MHD_stop_daemon(struct MHD_Daemon *daemon) {
    struct runner_of *own = daemons;
    while (own->daemon != daemon) own++;
    own->is_stopping = true;
    sockets_moved();
    pthread_join(own->thread, NULL);
    __real_MHD_stop_daemon(daemon);
    own->daemon = NULL;
}

static void tell_news(void) {
    for (unsigned i = 0; i < DAEMONS_MAX; i++) daemons[i].has_news = true;
    sockets_moved();
}

enum MHD_Result __real_MHD_add_connection(struct MHD_Daemon *daemon, MHD_socket fd,
                                          const struct sockaddr *address, socklen_t bytes);
enum MHD_Result __wrap_MHD_add_connection(struct MHD_Daemon *daemon, MHD_socket fd,
                                          const struct sockaddr *address, socklen_t bytes);
enum MHD_Result __wrap_MHD_add_connection(struct MHD_Daemon *daemon, MHD_socket fd,
                                          const struct sockaddr *address, socklen_t bytes) {
    enum MHD_Result result = __real_MHD_add_connection(daemon, fd, address, bytes);
    tell_news();
    return result;
}

void __real_MHD_resume_connection(struct MHD_Connection *connection);
void __wrap_MHD_resume_connection(struct MHD_Connection *connection);
void __wrap_MHD_resume_connection(struct MHD_Connection *connection) {
    __real_MHD_resume_connection(connection);
    tell_news();
}
