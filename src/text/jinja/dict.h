/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* dict: insertion-ordered mappings; also the attributes of a namespace.
 *
 * With more than a few text keys, a look-up is a binary search in a sorted index, so that hostile
 * keys cannot make it slow. Other keys are searched one by one, and charged.
 *
 * Thread: as render.
 * Memory: the arena of the rendering. */

#include "jinja/render.h"

enum err dict_new(struct render *render, size_t capacity, struct dict **ret_dict);
/* Adds an entry whose key is known to be new. */
enum err dict_add(struct render *render, struct dict *dict, struct value key, struct value value);
/* Adds or replaces; ERR_INVALID for a key that cannot be hashed. */
enum err dict_put(struct render *render, struct dict *dict, struct value key, struct value value);
/* Finds an entry; *ret_entry is NULL without one. ERR_INVALID for a key that cannot be hashed. */
enum err dict_find(struct render *render, struct dict *dict, struct value key,
                   struct dict_entry **ret_entry);
/* The entry with this text as key, or NULL. */
enum err dict_find_str(struct render *render, struct dict *dict, struct str key,
                       struct dict_entry **ret_entry);
/* True for a value that Python takes as a key: no list, no dict, no tuple with one inside. */
enum err dict_key_is_hashable(struct render *render, struct value key, bool *ret_hashable);
