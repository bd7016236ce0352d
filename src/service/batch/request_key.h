/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_key: a key that two requests share only if they must have the same answer.
 *
 * The key is the SHA-256 of the endpoint, of the identity of the worker that computes the answer,
 * for decisions of the number of their prompt format, and of the body in a canonical form: members
 * in the order of their names, the last of equal names, no nulls, no white space outside strings,
 * and no members that only say who asks. The length of every part stands before it, so that no two
 * different bodies run together. Nested members keep their order, and strings their spelling:
 * requests that differ only there get different keys, which costs work and never correctness.
 *
 * Thread: any; pure.
 * Memory: none is kept. */

#include "base/hash.h"
#include "batch/line.h"

/* Whether the same worker gives this line of a batch the same answer again. False if the answer is
 * sampled without a seed, the body has more members than this reader holds, or the line is none. */
bool batch_request_is_determined(struct str text);
/* False if the answer is not determined: it is sampled (temperature is not 0 and the body gives no
 * seed), or the body has more members than this reader holds. `identity` names what computes the
 * answer, and for which owner. */
bool batch_request_key(const struct batch_line *line, struct str identity,
                       unsigned char ret_key[SHA256_BYTES]);
