/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_messages: checks the messages of a chat. It changes nothing.
 *
 * Thread: any.
 * Memory: none is kept. */

#include "json/refusal.h"

/* `body` is the whole request. False and *ret_refusal if something is wrong. Arguments of tool
 * calls are JSON of their own, whose trees take their memory from *room. */
bool request_check_messages(const json_t *body, size_t *room,
                            struct refusal *ret_refusal) MUST_CHECK;
