/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* chat: a model's chat template (the Jinja that real templates use) from messages to prompt text.
 *
 * Renders as Jinja2 3.1 does under the settings of Hugging Face transformers: trim_blocks,
 * lstrip_blocks, loop controls, no autoescape, a sandbox with a fixed list of methods. Knows no
 * model, no tokenizer and no HTTP.
 *
 * Thread: a compiled template is immutable; any number of threads may render it.
 * Memory: the template owns its copy of the text; a rendering lives in its own arena, given back at
 * once. Invariant: output bytes, steps and depth of a rendering stay within struct jinja_limits. */

#include "base/buf.h"
#include "base/span.h"

#include <jansson.h>

struct jinja_template;

struct jinja_limits {
    size_t output_bytes_max; /* 0: 8 MiB */
    size_t steps_max;        /* statements, expressions and loop turns; 0: 4 million */
    size_t memory_bytes_max; /* arena of one rendering; 0: 64 MiB */
};

struct jinja_options {
    struct jinja_limits limits;
    /* The clock of strftime_now, in Unix seconds; local time is UTC plus `utc_offset_s`. */
    int64_t now_unix_s;
    int32_t utc_offset_s;
    /* Variables that are the model's own and not the request's (bos_token, …), for the names that
     * the context has no member of; NULL: none. */
    json_t *model_context;
};

/* Compiles a copy of `source`. ERR_INVALID with the line number for a syntax error or a construct
 * that is not supported; ERR_LIMIT for a template over 256 KiB or nested deeper than 64. */
enum err jinja_template_open(struct jinja_template **ret_template, struct str source,
                             struct error *error) MUST_CHECK;
void jinja_template_close(struct jinja_template *template); /* NULL is allowed */

/* Renders with the members of the JSON object `context` as variables and appends the text to `buf`,
 * and to `given`, unless that is NULL, which bytes of `buf` are the context's words: all texts of
 * the context, keys too, are, but for the roles of messages. Spelled-out control tokens are to be
 * taken from the other bytes only.
 * ERR_INVALID: the template called raise_exception (the sentence is its message, on one line) or
 * made an error of its own ("line N: …"); ERR_LIMIT: a limit was passed. `buf` may hold partial
 * text after an error. Needs up to 1 MiB of stack. The strings of `context` must stay as they are
 * meanwhile.
 */
enum err jinja_template_render(const struct jinja_template *template, json_t *context,
                               const struct jinja_options *options, struct buf *buf,
                               struct spans *given, struct error *error) MUST_CHECK;

/* True when the template looks at the parts of message content itself (iterates it), so that the
 * caller must pass lists of parts through instead of joining them. */
bool jinja_template_takes_parts(const struct jinja_template *template);
/* True when the source names the role, such as "developer": the caller then need not map it. */
bool jinja_template_knows_role(const struct jinja_template *template, const char *role);
