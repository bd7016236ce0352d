/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* base64: bytes as text in the standard alphabet with padding (RFC 4648 §4).
 *
 * Thread: any; pure.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"

void base64_add(struct buf *buf, const void *bytes, size_t count);
/* Reads the whole text. False if it is no base64, its padding is wrong, or it means more than
 * `bytes_max` bytes. */
bool base64_read(struct str text, void *ret_bytes, size_t bytes_max, size_t *ret_count);
