/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* template: what jinja_template_open makes of a source.  Memory: all of it lies in `arena`. */

#include "jinja/ast.h"
#include "jinja/jinja.h"

struct jinja_template {
    struct arena arena;
    struct str source; /* with newlines normalised */
    struct stmt *body;
    struct str *symbols; /* every variable name in the template; a symbol is its number here */
    uint32_t symbol_count;
    bool takes_parts;
};

/* Parses template->source into template->arena. */
enum err template_parse(struct jinja_template *template, struct error *error) MUST_CHECK;
/* Whether a loop of the template walks over the content of a message. */
bool template_walks_content(struct jinja_template *template);
