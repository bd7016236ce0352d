/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* input: the text that the questions of a decision request are about.
 *
 * The input is a string, or items as of the Responses API: messages, calls of functions and their
 * outputs. It becomes two texts. `system` has the messages of developers and systems. `state` has
 * all other items: user messages alone are joined by blank lines, as in vLLM; any other mix becomes
 * blocks that name the role, the call or the output.
 *
 * Thread: any.
 * Memory: owns its texts; decision_input_release frees. */

#include "base/buf.h"
#include "json/refusal.h"

#define DECISION_INPUT_BYTES_MAX ((size_t)64 * 1024 * 1024)

/* Zero is a valid start. */
struct decision_input {
    struct buf state;
    struct buf system;
    bool has_system;
};

/* Reads the member `input` of a body. False, with *ret_refusal, if it is wrong; then nothing is to
 * be released. */
bool decision_input_read(struct decision_input *ret_input, const json_t *body,
                         struct refusal *ret_refusal) MUST_CHECK;
void decision_input_release(struct decision_input *input);
