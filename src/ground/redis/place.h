/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* place: where a Redis or Valkey server is, as a URL tells it:
 *
 *   redis[s]://[USER@]HOST[:PORT][/][?cluster=NAME]
 *
 * A password has no place in it, because other users of the machine can read a command line.
 *
 * Thread: any; pure.
 * Memory: none. */

#include "base/err.h"

#include <stdint.h>

#define REDIS_HOST_BYTES 256
#define REDIS_USER_BYTES 128
#define REDIS_NAME_BYTES 64

struct redis_place {
    char host[REDIS_HOST_BYTES];    /* a name or an address; IPv6 without its brackets */
    char user[REDIS_USER_BYTES];    /* empty: the default user */
    char cluster[REDIS_NAME_BYTES]; /* letters, digits, ".", "_" and "-" (default "default") */
    uint16_t port;                  /* default 6379 */
    bool is_tls;
};

/* ERR_INVALID, with what is wrong, for any other text. */
enum err redis_place_read(struct redis_place *ret_place, const char *url,
                          struct error *error) MUST_CHECK;
