/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* jinja: chat templates: from a model's template and messages to the text of a prompt.
 *
 * It renders as Jinja2 3.1 does under the settings of Hugging Face transformers: trim_blocks,
 * lstrip_blocks, loop controls, no autoescape, a sandbox with a fixed list of methods. It knows no
 * model, no tokenizer and no HTTP.
 *
 * Thread: any; a compiled template is immutable, and any number of threads may render it.
 * Memory: the template owns a copy of the text; a rendering has an arena of its own, freed when it
 *     ends.
 * Invariant: output, steps and memory of a rendering stay within struct jinja_limits, its depth
 *     within fixed limits. */

#include "base/buf.h"
#include "base/text_ranges.h"

#include <jansson.h>

struct jinja_template;

struct jinja_limits {
    size_t output_bytes_max; /* (default, with 0: 8 MiB) */
    size_t steps_max;        /* statements, expressions and loop turns (default 4 million) */
    size_t memory_bytes_max; /* arena of one rendering (default 64 MiB) */
};

struct jinja_options {
    struct jinja_limits limits;
    /* The clock of strftime_now, in Unix seconds; local time is UTC plus `utc_offset_s`. */
    int64_t now_unix_s;
    int32_t utc_offset_s;
    /* The model's own variables (bos_token, …); the context's members hide those of equal name.
     * NULL: none. */
    json_t *model_context;
    /* A variable or attribute that does not exist is an error where it is printed, as under
     * Jinja2's StrictUndefined. Else it prints nothing, as chat templates expect. */
    bool is_strict;
};

/* Compiles a copy of `source`. ERR_INVALID with the line number for a syntax error or a construct
 * that is not supported; ERR_LIMIT for a template over 256 KiB or nested deeper than 64. */
enum err jinja_template_open(struct jinja_template **ret_template, struct str source,
                             struct error *error) MUST_CHECK;
void jinja_template_close(struct jinja_template *template); /* NULL is allowed */

/* Renders with the members of the JSON object `context` as variables, and appends the text to
 * `buf`. Appends to `given`, unless it is NULL, the bytes of `buf` that are the context's words:
 * all texts and keys of the context, except the roles of messages. The caller must take control
 * tokens only from the other bytes.
 *
 * ERR_INVALID: the template called raise_exception (the sentence is its message, on one line), or
 * made an error of its own ("line N: …"). ERR_LIMIT: it exceeded a limit. `buf` may hold partial
 * text after an error. Needs up to 1 MiB of stack. The strings of `context` must not change
 * meanwhile. */
enum err jinja_template_render(const struct jinja_template *template, json_t *context,
                               const struct jinja_options *options, struct buf *buf,
                               struct text_ranges *given, struct error *error) MUST_CHECK;

/* True when the template iterates over the content of a message. Then the caller must pass lists of
 * parts on, and not join them. */
bool jinja_template_takes_parts(const struct jinja_template *template);
/* True when the source names the role, such as "developer", so that the caller need not map it. */
bool jinja_template_knows_role(const struct jinja_template *template, const char *role);
/* The text that it was made of, with normalised newlines; borrowed. */
struct str jinja_template_source(const struct jinja_template *template);
