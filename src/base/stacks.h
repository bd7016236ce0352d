/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* stacks: what every thread of this process is doing, written when another process asks with
 * STACKS_SIGNAL, or when this one crashes. For a process that is about to be killed: addresses and
 * names of threads, nothing of what they work on.
 *
 *   thread 4711 loop R
 *   /usr/bin/quern(+0x1a2b) [0x55…]
 *   end
 *
 * `addr2line -fe quern 0x1a2b` names the line.
 *
 * Thread: stacks_open from main, before there are others.  Memory: none; handlers need a global,
 * the descriptor. */

#include <signal.h>

#define STACKS_SIGNAL SIGUSR1
#define STACKS_END "end\n" /* the last line */

/* A sanitizer reports crashes itself, and says more. */
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

/* From now on stacks are written to `fd`, which stays the caller's. */
void stacks_open(int fd);
