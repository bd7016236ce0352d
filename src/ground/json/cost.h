/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cost: the memory that the tree of a JSON text would take, known before the tree is built.
 *
 * An object of three bytes of text is 224 bytes of tree, so that the length of a text says little
 * about its cost. One pass over the text adds up what jansson will allocate, rounded as malloc
 * rounds it. The result holds for any text: the tree of an invalid text is built up to the fault.
 *
 * Thread: any; pure.
 * Memory: none. */

#include "base/str.h"

/* The most bytes that json_read takes at its peak for a tree of `text`, without `text` itself.
 * SIZE_MAX, with *ret_deep_at, if the text nests deeper than JSON_DEPTH_MAX. */
size_t json_cost(struct str text, size_t *ret_deep_at);
