/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* dict: insertion-ordered mappings; also the attributes of a namespace.
 *
 * Lookup is by binary search in a sorted index once there are more than a few text keys, so that
 * keys chosen by a stranger cannot make it slow; other keys are searched one by one, and charged.
 *
 * Thread: as render.  Memory: the arena of the rendering. */

#include "jinja/render.h"

enum err dict_new(struct render *render, size_t capacity, struct dict **ret_dict);
/* Adds an entry whose key is known to be new. */
enum err dict_add(struct render *render, struct dict *dict, struct value key, struct value value);
/* Adds or replaces; ERR_INVALID for a key that cannot be hashed. */
enum err dict_put(struct render *render, struct dict *dict, struct value key, struct value value);
/* NULL in *ret_entry when the key is not there. ERR_INVALID for a key that cannot be hashed. */
enum err dict_find(struct render *render, struct dict *dict, struct value key,
                   struct dict_entry **ret_entry);
/* The entry with this text as key, or NULL. */
enum err dict_find_str(struct render *render, struct dict *dict, struct str key,
                       struct dict_entry **ret_entry);
/* Whether Python would take it as a key: no list, no dict, no tuple with one inside. */
enum err dict_key_is_hashable(struct render *render, struct value key, bool *ret_hashable);
