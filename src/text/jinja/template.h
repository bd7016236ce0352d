/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* template: the struct behind jinja.h.
 *
 * Thread: any; immutable after jinja_template_open.
 * Memory: everything lies in `arena`. */

#include "jinja/ast.h"
#include "jinja/jinja.h"

struct jinja_template {
    struct arena arena;
    struct str source; /* the text with normalised newlines */
    struct stmt *body;
    struct str *symbols; /* all variable names of the template; a symbol is an index here */
    uint32_t symbol_count;
    bool takes_parts;
};

/* Parses template->source into template->arena. */
enum err template_parse(struct jinja_template *template, struct error *error) MUST_CHECK;
/* True when a loop of the template walks over the content of a message. */
bool template_walks_content(struct jinja_template *template);
