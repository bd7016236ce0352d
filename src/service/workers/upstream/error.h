/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_error: error bodies of other servers brought to OpenAI's envelope with all four keys:
 *
 *     {"error":{"message":…}}           OpenAI, LiteLLM, vLLM and llama-server (with integer codes)
 *     {"error":{"message":…,"metadata":{"raw":…}}}   OpenRouter, whose raw text is the reason
 *     {"error":"text"}                  Ollama
 *     {"error":"Too Many Requests","message":"text"}   Spring and other frameworks
 *     {"errors":["text" or {"message":…}]}   Cloudflare and other gateways
 *     {"object":"error","message":…}    vLLM before 0.10
 *     {"detail":"text"}, {"detail":[{"loc":[…],"msg":…}]}   FastAPI
 *     {"message":"text"}                gateways
 *     [{"error":{…}}]                   Google
 *     text, HTML                        proxies
 *
 * Any other body gets a sentence with its status.
 *
 * Thread: any; pure.
 * Memory: the caller's buffer. */

#include "base/buf.h"

/* Appends the envelope. `body` is a JSON object or array in valid UTF-8, or has `at` NULL if the
 * answer `text` is none. `name` is the upstream's, for sentences. */
void upstream_error_add(struct buf *buf, struct str body, struct str text, int status,
                        const char *name);
/* The object of an error body that has the error's code: the body's `error`, the first of its
 * `errors`, its `detail`, or the body itself. */
struct str upstream_error_holder(struct str body);
/* The first element of an array; `at` is NULL for any other value. */
struct str upstream_first_element(struct str list);
/* Appends what a text that is no JSON says, on one line: a page's title or words. Cut at 300 bytes.
 */
void upstream_error_add_text(struct buf *buf, struct str text);
/* The message of an envelope as one line of valid UTF-8, cut at `room`. */
void upstream_error_line(char *ret_line, size_t room, struct str envelope);
