/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* base64: bytes as text in the standard alphabet with padding (RFC 4648 §4).
 *
 * Thread: any; pure.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"

void base64_add(struct buf *buf, const void *bytes, size_t count);
