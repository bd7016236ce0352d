/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* embedding: the first vector of an answer to /v1/embeddings.
 *
 * Thread: any; pure.
 * Memory: views of the body. */

#include "base/str.h"

/* The raw `embedding` of the element of `data` with the lowest index; `at` NULL if it has none, or
 * null. *ret_count is the length of `data`. */
struct str embedding_first(struct str data, uint64_t *ret_count);
