/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* call_text: the text of calls between the marks of a form, as names and arguments.
 *
 * Each reader takes a text that is calls and nothing else, or refuses it as a whole. Arguments come
 * out as the JSON text of an object, as the model wrote it where the form is JSON.
 *
 * Thread: any; pure.
 * Memory: adds to the caller's list; a text that is refused leaves the list as it was. */

#include "chat/call_list.h"

#include <jansson.h>

/* True when the array `tools` of a request has a function of this name. */
bool call_is_of_tool(const json_t *tools, struct str name);

/* {"name": "f", "arguments": {…}}; `parameters` is taken for `arguments`, and between marks
 * `tool_name` for `name`. Of members that come
 * twice the first counts. Here and below, arguments that are missing, null or an empty text are {}
 * if the name is that of a tool; else the text is no call. */
bool call_text_json(struct str text, const json_t *tools, struct call_list *calls);
/* An array of such calls. */
bool call_text_array(struct str text, const json_t *tools, struct call_list *calls);
/* Apertus' array of objects that have the name as their one key: [{"f": {…}}, …]. */
bool call_text_members(struct str text, const json_t *tools, struct call_list *calls);
/* Such calls with semicolons or white space between them. No mark tells them from an answer that is
 * JSON and has a name, so that the arguments must be there, if only as null. */
bool call_text_sequence(struct str text, const json_t *tools, struct call_list *calls);
/* A call whose name is known: the text is its arguments. */
bool call_text_arguments(struct str name, struct str text, const json_t *tools,
                         struct call_list *calls);
/* Mistral's: an array, one call, f[ARGS]{…}, f[CALL_ID]…[ARGS]{…}, f{…} or f. */
bool call_text_mistral(struct str text, const json_t *tools, struct call_list *calls);
/* Qwen3-Coder's <function=f><parameter=a>…</parameter></function>. The values are texts without
 * types: the JSON type of each comes from the schema of the parameter in `tools`, and is a string
 * where there is none. */
bool call_text_xml(struct str text, const json_t *tools, struct call_list *calls);
/* GLM's f<arg_key>a</arg_key><arg_value>…</arg_value>…, whose values are such texts; JSON is taken,
 * too. */
bool call_text_keys(struct str text, const json_t *tools, struct call_list *calls);
/* Gemma's call:f{key:value,…}, with strings between `quote` and bare keys; JSON is taken, too. */
bool call_text_gemma(struct str text, struct str quote, const json_t *tools,
                     struct call_list *calls);
/* [f(a=1, b="x"), …] with literals of Python. */
bool call_text_python(struct str text, struct call_list *calls);
