/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* stacks: writes the call stack of every thread when another process sends STACKS_SIGNAL, or when
 * this one crashes. The text holds addresses and names of threads and no data of any request.
 *
 *   thread 4711 loop R
 *   /usr/bin/quern(+0x1a2b) [0x55…]
 *   end
 *
 * `addr2line -fe quern 0x1a2b` names the line.
 *
 * Thread: main calls stacks_open before it starts any other thread.
 * Memory: one global, the descriptor, for signal handlers have no argument. */

#include <signal.h>

#define STACKS_SIGNAL SIGUSR1
#define STACKS_END "end\n" /* the last line */

/* Sanitizers report crashes themselves and in more detail. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACKS_OF_CRASHES 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STACKS_OF_CRASHES 0
#endif
#endif
#ifndef STACKS_OF_CRASHES
#define STACKS_OF_CRASHES 1
#endif

/* Installs the handlers; stacks go to `fd`, which the caller keeps open. */
void stacks_open(int fd);
