/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* guesses: how many wrong keys each address has sent lately, so that nobody finds a key by trying.
 *
 * An address may send GUESSES_AT_ONCE wrong keys, and one more per second. Then its keys are not
 * looked at before a second is over, except those that cannot be guessed (key.h). No thread waits:
 * the answer says when to try again.
 *
 * The table is bounded. An address displaces the one of its row that has the most guesses left, so
 * that a flood of addresses displaces itself first. The addresses of one IPv6 network (/64) are
 * one, since one machine can have them all.
 *
 * Thread: one at a time.
 * Memory: one block of 80 KiB. */

#include "base/address.h"

#define GUESSES_AT_ONCE 60

struct guesses;

struct guesses *guesses_new(void);
void guesses_free(struct guesses *guesses); /* NULL is allowed */

/* True if the address may send a key that could be wrong. */
bool guesses_are_left(struct guesses *guesses, const struct address *peer, int64_t now_ms);
/* Counts a wrong key. True if it was the last of an address that has been quiet before: worth a
 * line in the log. */
bool guesses_count(struct guesses *guesses, const struct address *peer, int64_t now_ms);
