/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* xml: the few elements that S3's answers have, found in the bytes of a server.
 *
 * No tree is made: an element is found by its name, whatever lies around it, and ends with the
 * first end tag of that name. S3 nests no element in one of its own name. Comments, declarations
 * and CDATA sections are passed over. An entity other than XML's five and numbers stays as it is.
 *
 * Thread: any.
 * Memory: none; results lie in the bytes.
 * Invariant: each call reads the bytes once, so its steps are at most their number. */

#include "base/str.h"

/* The content of the next element `name`, with any prefix before its name, from *at on; *at is then
 * behind it. False if none follows: *at is then the end. */
bool xml_next(struct str xml, const char *name, size_t *at, struct str *ret_content);
/* The text of the first element `name`. Control characters become blanks. False, with an empty
 * text, if there is none, it has elements of its own, or its text does not fit. */
bool xml_text(struct str xml, const char *name, char *ret_text, size_t text_bytes);
/* Writes `text` as an element's content: XML's five characters as entities. False if it does not
 * fit. */
bool xml_escape(const char *text, char *ret_text, size_t text_bytes);
