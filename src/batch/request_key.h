/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_key: what two requests have in common exactly when they must have the same answer.
 *
 * The key is the SHA-256 of the endpoint, of what computes the answer, and of the body in a
 * canonical form: members in order of their names, the last of equal names, no nulls, no white
 * space outside of strings, without the members that say who asks. Every part is preceded by its
 * length, so no two different bodies run together. Members inside of members keep their order, and
 * strings their spelling: requests that differ in these only are taken for different ones, which
 * costs work and never correctness.
 *
 * Thread: any; pure.  Memory: none kept. */

#include "base/hash.h"
#include "batch/line.h"

/* False when the answer is not determined: it is sampled (temperature is not 0 and no seed is
 * given), or the body has more members than are looked at. `identity` names what computes it, and
 * for whom. */
bool batch_request_key(const struct batch_line *line, struct str identity,
                       unsigned char ret_key[SHA256_BYTES]);
