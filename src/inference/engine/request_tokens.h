/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_tokens: the fields of a request that name tokens: stop_token_ids, logit_bias,
 * allowed_token_ids, logprob_token_ids and, by their text, bad_words. Internal to request.c.
 *
 * Thread: any.
 * Memory: fills the request's own arrays. */

#include "engine/request.h"

bool request_parse_tokens(struct request *request, uint32_t vocabulary_count,
                          struct refusal *ret_refusal) MUST_CHECK;
