/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_whole: whether an answer of status 200 answers its request.
 *
 * Gateways answer 200 with `"choices": null`, an empty list or fewer choices than were asked for,
 * when the server after them failed. Such an answer is no result of the line. What an endpoint's
 * answer must have:
 *
 *     chat         `choices`, as many as `n`, each with a message that says something
 *     completions  `choices`, `n` per prompt, each with a text
 *     embeddings   `data`, one per input, each with numbers or base64
 *     score        `data` with scores, or `results` of a reranker, one per pair
 *     decisions    `answers`, one per question
 *
 * An empty text is an answer, since a model may end at once. A message without a text says
 * something if it has calls, thoughts, a refusal or audio, or if its finish_reason is "length" or
 * "content_filter".
 *
 * Thread: any; pure.
 * Memory: none. */

#include "protocol/request.h"

#define UPSTREAM_LACK_BYTES 120

/* `request` and `answer` are JSON objects. False: *ret_lack completes "The upstream NAME answered
 * ", as in "with 1 of 2 choices". */
bool upstream_is_whole(enum endpoint endpoint, struct str request, struct str answer,
                       char ret_lack[UPSTREAM_LACK_BYTES]);
/* True if the list is an array with at least one element. */
bool upstream_has_elements(struct str list);
