/* SPDX-License-Identifier: Apache-2.0 */

/* cheap_server: the control of bench/bad-clients. It does the least that a server can: accept, one
 * recv, one fixed answer. What a good client waits for next to bad ones here is the share of the
 * machine and of the programs that make the load; no server can do better.
 *
 * The oldest of PLACES connections leaves for a new one. Prints its port, and runs until killed. */

#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PLACES 896 /* as many as quern has for loopback */
#define EVENTS 64
#define ACCEPTS 16
#define LISTENER UINT64_MAX

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
static int places[PLACES], oldest, set;

static void watch(int fd, uint64_t name) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = name};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

static void take_new(int listener) {
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) return;
        if (places[oldest] >= 0) close(places[oldest]);
        places[oldest] = fd;
        watch(fd, (uint64_t)oldest);
        oldest = (oldest + 1) % PLACES;
    }
}

static void serve(int *place) {
    char bytes[4096];
    if (*place < 0) return;
    ssize_t got = recv(*place, bytes, sizeof bytes - 1, MSG_DONTWAIT);
    bytes[got > 0 ? got : 0] = '\0';
    if (strstr(bytes, "\r\n\r\n")) send(*place, answer, sizeof answer - 1, MSG_NOSIGNAL);
    if (got > 0 && !strstr(bytes, "Connection: close")) return;
    close(*place);
    *place = -1;
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(listener, (struct sockaddr *)&address, bytes) != 0 || listen(listener, 1024) != 0)
        return 1;
    getsockname(listener, (struct sockaddr *)&address, &bytes);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (int i = 0; i < PLACES; i++) places[i] = -1;
    set = epoll_create1(0);
    watch(listener, LISTENER);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(set, events, EVENTS, -1);
        for (int i = 0; i < count; i++)
            if (events[i].data.u64 == LISTENER)
                take_new(listener);
            else
                serve(&places[events[i].data.u64]);
    }
}
