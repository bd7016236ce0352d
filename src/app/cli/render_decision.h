/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* render_decision: the prompts of a decision request, as an engine computes them.
 *
 * They are shown from their tokens, with all that the engine adds to the chat template's text: a
 * thought that is closed, the header of a final message.
 *
 * Thread: main.
 * Memory: none. */

#include "base/buf.h"
#include "engine/vocabulary.h"
#include "jinja/jinja.h"

/* Appends one JSON object per question, {"question", "prompt", "labels", "tokens"}, with
 * `separator` between them. `body` is that of /v1/systemone if it has a member `state`. ERR_INVALID
 * with the words of the API for a body that is refused. */
enum err render_decision(const struct vocabulary *vocabulary, const struct jinja_options *clock,
                         struct str body, const char *separator, struct buf *out,
                         struct error *error) MUST_CHECK;
