/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* harmony_format: what the messages of harmony.h may be, as formats of grammar/tags.h.
 *
 * Thread: any; pure.
 * Memory: results are the caller's; formats that go into another one are taken over. */

#include "chat/harmony.h"

#include <jansson.h>
#include <stdint.h>

/* The marks that end a body, as strings that a text must not have. */
json_t *harmony_ends(void);

/* The message of the channel final, whose body is `text`; NULL: any text. `marks`: as in
 * tag_words.h. */
json_t *harmony_final(uint64_t marks, json_t *text);

/* Messages that may begin with one of the channel commentary for the user, before a call. */
json_t *harmony_with_preamble(uint64_t marks, json_t *messages);
