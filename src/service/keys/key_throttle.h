/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* key_throttle: how many wrong keys each address has sent lately, so that no client finds a key by
 * trying.
 *
 * An address may send KEY_THROTTLE_AT_ONCE wrong keys, and one more per second. Then its keys are
 * not looked at before a second is over, except those that cannot be guessed (key_set.h). No thread
 * waits: the answer says when to try again.
 *
 * The table is bounded. An address displaces the one of its row that has the most guesses left, so
 * that a flood of addresses displaces itself first. The addresses of one IPv6 network (/64) are
 * one, since one machine can have them all.
 *
 * Thread: one at a time.
 * Memory: one block of 80 KiB. */

#include "base/address.h"

#define KEY_THROTTLE_AT_ONCE 60

struct key_throttle;

struct key_throttle *key_throttle_new(void);
void key_throttle_free(struct key_throttle *throttle); /* NULL is allowed */

/* True if the address may send a key that could be wrong. */
bool key_throttle_allows(struct key_throttle *throttle, const struct address *peer, int64_t now_ms);
/* Counts a wrong key. True if it was the last of an address that has been quiet before: worth a
 * line in the log. */
bool key_throttle_count(struct key_throttle *throttle, const struct address *peer, int64_t now_ms);
