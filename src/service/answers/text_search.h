/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* text_search: whether texts contain a part, ASCII letters in any case.
 *
 * Both the part and the texts are foreign, so that the time must not depend on how they repeat
 * themselves: the search is that of Knuth, Morris and Pratt, which looks at each byte of a text at
 * most twice. The part is folded once.
 *
 * Thread: any, once it is open.
 * Memory: 3 bytes per byte of the part; text_search_close frees it. */

#include "base/str.h"

struct text_search;

/* `part` has at most 65,535 bytes. An empty one is contained in every text. */
void text_search_open(struct text_search **ret_search, struct str part);
void text_search_close(struct text_search *search); /* NULL is allowed */
bool text_search_finds(const struct text_search *search, struct str whole);
