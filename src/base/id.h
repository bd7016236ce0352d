/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* id: random names for things clients see, from the system's generator (libsodium).  Thread: any.
 */

#include <stddef.h>
#include <stdint.h>

/* `prefix` followed by `count` (at most 64) characters of 0-9a-f, NUL-terminated. `ret_id` has room
 * for all of it. */
void id_hex(char *ret_id, size_t id_bytes, const char *prefix, size_t count);
/* As id_hex, with 0-9a-z. */
void id_alnum(char *ret_id, size_t id_bytes, const char *prefix, size_t count);
uint64_t id_u64(void);
