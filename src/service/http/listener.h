/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* listener: the socket that the gate listens on.
 *
 * Thread: any.
 * Memory: one descriptor, the caller's. */

#include "base/err.h"

#include <stdint.h>

/* `host` is a numeric address; *ret_port is the real port. ERR_UNAVAILABLE if the address is taken.
 * *ret_fd may be open after an error, too. */
enum err listener_open(int *ret_fd, const char *host, uint16_t port, uint16_t *ret_port,
                       struct error *error) MUST_CHECK;
