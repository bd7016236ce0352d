/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* names_added: further names of models, given and taken away while the server runs. A name is one
 * with and without the default tag `:latest`, as in Ollama. It keeps nothing on a disk.
 *
 * Thread: any; a lock of its own.
 * Memory: at most NAMES_ADDED_MAX entries; names_added_close frees them. */

#include "protocol/worker.h"

#define NAMES_ADDED_MAX 256

struct names_added;

struct name_added {
    char name[MODEL_NAME_BYTES]; /* without the default tag */
    char model[MODEL_NAME_BYTES];
};

struct names_added *names_added_open(void);
void names_added_close(struct names_added *added); /* NULL is allowed */
/* The name without the default tag. */
struct str names_added_plain(struct str name);
/* Adds a name, or gives it another model. False if there are too many, or a text is too long. */
bool names_added_put(struct names_added *added, struct str name, struct str model);
/* Whether another name would fit. */
bool names_added_has_room(struct names_added *added);
/* False if there is no such name. */
bool names_added_remove(struct names_added *added, struct str name);
/* Copies the model that the name stands for. False if there is no such name. */
bool names_added_find(struct names_added *added, struct str name, char ret_model[MODEL_NAME_BYTES]);
/* Copies a name of that model. False if it has none. */
bool names_added_of(struct names_added *added, struct str model, char ret_name[MODEL_NAME_BYTES]);
/* Copies all entries and returns their number. */
size_t names_added_list(struct names_added *added, struct name_added ret_names[NAMES_ADDED_MAX]);
