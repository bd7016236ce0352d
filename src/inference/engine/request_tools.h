/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_tools: the fields tools, tool_choice and parallel_tool_calls of a chat, and what they
 * mean for a model.
 *
 * A call is forced where tool_choice says so. A forced call, an answer whose tools are restricted,
 * and calls of a tool that is `strict` are held to the form of the model's family, and their
 * arguments to the schema of the parameters. Other answers are free, and calls are found in them.
 *
 * Thread: as request.h.
 * Memory: as request.h. */

#include "engine/request.h"
#include "engine/served_model.h"

/* Checks the fields and fills the members of request->tools. */
bool request_parse_tools(struct request *request, struct refusal *ret_refusal) MUST_CHECK;

/* Whether the order of an answer's messages is held without a shape: a thought that has been closed
 * by its budget must not begin again. */
bool request_holds_messages(const struct request *request);

/* Keeps the tokens of a set of marks (chat/tool_format.h) in the text of the answer. Returns the
 * marks that are control tokens. */
uint64_t request_show_marks(struct request *request, const struct vocabulary *vocabulary,
                            uint64_t marks);

/* Decides in which form calls are read from the answer, by the template that shows the tools, and
 * gives the request the shape that holds them, if any. */
bool request_prep_tools(struct request *request, const struct served_model *model,
                        const struct jinja_template *template,
                        struct refusal *ret_refusal) MUST_CHECK;
