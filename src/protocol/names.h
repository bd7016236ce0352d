/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* names: the one answer to "which model does this request mean?". A request, a line of a batch, the
 * list of models and `--model` all ask here, so that they cannot disagree.
 *
 * A name means, in this order: what the operator's aliases make of it; the model that a worker
 * serves under exactly that name; the model that a worker serves under another name of the same row
 * of the table (names_table.c: the Hugging Face id and Ollama's names of one model, in any case).
 * `:latest` may be there or not, as Ollama has it.
 *
 * Knows no file and no configuration; asks any worker through worker.h.
 *
 * Thread: any; constant after it was made.  Memory: borrows all texts. */

#include "protocol/worker.h"

struct name_alias {
    const char *name;
    const char *model; /* may be an alias itself */
};

/* Zero is a valid start: no aliases. */
struct names {
    const struct name_alias *aliases;
    size_t alias_count;
};

/* Whether `worker` runs requests for `name`. *ret_served is then what the worker calls that model,
 * the name under which it can be asked for there. NULL for `names` means no aliases. */
bool names_find(const struct names *names, struct worker *worker, struct str name,
                char ret_served[MODEL_NAME_BYTES]);

/* One row of the table. */
struct known_name {
    const char *repository; /* on Hugging Face */
    const char *ollama[3];  /* the most precise first; NULL where there are fewer */
};

/* The row that has this name; NULL when none has. */
const struct known_name *names_known(struct str name);
/* Names of one row, from 0 on; NULL behind the last. */
const char *names_of_known(const struct known_name *known, size_t index);

extern const struct known_name names_table[];
extern const size_t names_table_count;
