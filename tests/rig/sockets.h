/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sockets: the server's sockets, its epoll sets and libmicrohttpd in the world of threads.c.
 *
 * A connection is a Unix pair of the kernel's, in which bytes move at once; there is no port and no
 * network. The rig's program is linked with --wrap for the calls that wait or let others go on, so
 * that each of these is a place at which the seed chooses who goes on. libmicrohttpd is the real
 * one. It is started without a thread of its own, and a simulated thread runs it.
 *
 * Thread: the simulated ones of a life.
 * Memory: a queue of connections that wait to be accepted. */

#include <stdbool.h>
#include <stdint.h>

/* The life begins: there is no listener. */
void sockets_begin(void);
/* A client's end of a new connection with the server, which does not block. */
int sockets_connect(void);
/* Waits until a byte or a connection has moved anywhere. False if the deadline came first. */
bool sockets_wait_until(int64_t due_ns);
/* Something has moved: all who wait look again. */
void sockets_moved(void);
