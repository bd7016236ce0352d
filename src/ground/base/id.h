/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* id: random names for the objects that clients see, from the system's generator (libsodium).
 *
 * Thread: any.
 * Memory: the caller's buffer. */

#include <stddef.h>
#include <stdint.h>

/* Writes `prefix` and `count` (at most 64) characters of 0-9a-f. `ret_id` has room for them and a
 * NUL. */
void id_hex(char *ret_id, size_t id_bytes, const char *prefix, size_t count);
/* As id_hex, with 0-9a-z. */
void id_alnum(char *ret_id, size_t id_bytes, const char *prefix, size_t count);
uint64_t id_u64(void);
