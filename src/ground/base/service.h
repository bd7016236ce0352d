/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* service: the words of this process to the service manager that started it.
 *
 * systemd names a datagram socket in $NOTIFY_SOCKET and takes `NAME=value` lines there: READY=1,
 * STATUS=…, STOPPING=1, WATCHDOG=1 (sd_notify(3)). With $WATCHDOG_USEC it ends a process that has
 * not said WATCHDOG=1 for that time. The protocol is small, so no library is linked for it. Without
 * these variables every call does nothing.
 *
 * A beat says that one thread goes on: the thread that the purpose of the process depends on. So
 * this thread alone calls service_beat; a beat from a timer would only say that the timer works.
 *
 * Thread: service_open and service_close belong to main, while no other thread calls; service_tell
 *     from any; the beats from one.
 * Memory: static; one descriptor. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* ERR_INVALID for a NOTIFY_SOCKET that is neither a path nor an abstract name ("@…"), and for a
 * WATCHDOG_USEC that is no number. OK if the variables do not exist. */
enum err service_open(struct error *error) MUST_CHECK;
void service_close(void);
/* Whether a service manager listens. */
bool service_is_open(void);

/* Sends lines, printf-like, without a last LF. Waits at most SERVICE_SEND_MS for a busy manager; a
 * message that cannot be sent is dropped. */
#define SERVICE_SEND_MS 5000
#define SERVICE_TEXT_BYTES 512 /* longer messages are cut */
void service_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sends WATCHDOG=1 if half of the manager's time has passed since the last one. Never waits. */
void service_beat(void);
/* The monotonic time at which service_beat is due; SYNC_NEVER without a watchdog. */
int64_t service_beat_due_ns(void);
