/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_error: error bodies of other servers brought to OpenAI's envelope with all four keys:
 *
 *     {"error":{"message":…}}           OpenAI, LiteLLM, vLLM and llama-server (with integer codes)
 *     {"error":"text"}                  Ollama
 *     {"object":"error","message":…}    vLLM before 0.10
 *     {"detail":"text"}, {"detail":[{"loc":[…],"msg":…}]}   FastAPI
 *     {"message":"text"}                gateways
 *
 * Any other body gets a sentence with its status.
 *
 * Thread: any; pure.
 * Memory: the caller's buffer. */

#include "base/buf.h"

/* `body` is the span of a JSON object in valid UTF-8, or empty when there is none. Appends. */
void upstream_error_add(struct buf *buf, struct str body, int status, const char *name);
