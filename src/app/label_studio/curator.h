/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* curator: who made an annotation, by the annotator's e-mail, or "label-studio:NUMBER".
 *
 * Thread: any; pure.
 * Memory: the caller's. */

#include <jansson.h>

#define CURATOR_BYTES 65 /* a curator of quern has at most 64 characters */

/* `users`: those that the token may see, an array; NULL: none. */
void curator_name(const json_t *users, const json_t *annotation, char ret_name[CURATOR_BYTES]);
