/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_repair: the JSON of servers whose writer is laxer than RFC 8259, made valid.
 *
 * Clients in Python read it, so that such a server seems to work until quern asks it:
 *
 *     a byte-order mark before the text           is dropped
 *     half of a surrogate pair, as \uD83D or raw   becomes U+FFFD; a raw pair becomes its character
 *     NaN, Infinity, -Infinity                     become null, because JSON has no such number
 *
 * A log probability of -Infinity becomes -9999.0, which OpenAI and vLLM write for a token that
 * cannot come. Any other fault of the text stays, and the reader of JSON finds it.
 *
 * Thread: any; pure.
 * Memory: the caller's buffer. */

#include "base/buf.h"

/* Appends the text. `has_logprobs`: its numbers are log probabilities. *ret_lost is true if a
 * number became null. */
void upstream_repair(struct buf *buf, struct str text, bool has_logprobs, bool *ret_lost);
