/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* names: the one answer to "which model does this request mean?".
 *
 * A request, a line of a batch, the list of models and `--model` all ask here, so that they cannot
 * disagree. The operator's aliases are applied first. The result means the model that a worker
 * serves under exactly this name, else the model that a worker serves under another name of the
 * same row of the table (names_table.c: the Hugging Face id and Ollama's names of one model, in any
 * case). `:latest` is optional, as in Ollama. Knows no file and no configuration.
 *
 * Thread: any; constant after it was made, but for `added`, which has a lock.
 * Memory: borrows all texts. */

#include "base/buf.h"
#include "protocol/names_added.h"

struct name_alias {
    const char *name;  /* with a star at its end it means all names that begin so */
    const char *model; /* may be an alias itself */
};

/* Zero is a valid start: no aliases. */
struct names {
    const struct name_alias *aliases;
    size_t alias_count;
    struct names_added
        *added; /* names that clients give; the aliases count before them; NULL: none */
};

/* True if the alias means more than one name. An exact alias comes before it, and so does one with
 * more bytes before its star. */
bool name_alias_has_star(const struct name_alias *alias);

/* Whether `worker` runs requests for `name`. *ret_served is then the worker's own name for that
 * model. `names` NULL: no aliases. */
bool names_find(const struct names *names, struct worker *worker, struct str name,
                char ret_served[MODEL_NAME_BYTES]);

/* Appends a sentence for a client that asked for a model that nobody serves: what an alias makes of
 * its name, the first served names, and, where no alias is in the way, the option that would serve
 * one of them under the wanted name. `names` NULL: no aliases. */
void names_write_advice(const struct names *names, struct buf *buf, struct str wanted,
                        const struct str *served, size_t count);

/* One row of the table. */
struct known_name {
    const char *repository; /* on Hugging Face */
    const char *ollama[3];  /* the most precise first; NULL after the last */
};

/* The row with this name; NULL if no row has it. */
const struct known_name *names_known(struct str name);
/* The names of one row, from 0 on; NULL after the last. */
const char *names_of_known(const struct known_name *known, size_t index);

extern const struct known_name names_table[];
extern const size_t names_table_count;
