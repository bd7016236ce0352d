/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* asked_names: which members of a request's body may ask for a constraint of its answer, by their
 * names alone.
 *
 * Servers spell the same constraint in many ways, and most ignore members that they do not know. A
 * client that writes another server's spelling would get free text with status 200. So every member
 * of a body is one of four kinds, and a member that merely looks like a constraint is refused. The
 * module knows names and not what they mean: asked_shape.h reads the fields.
 *
 * Thread: any; pure.
 * Memory: none. */

#include "base/str.h"

#include <jansson.h>

enum asked_name {
    ASKED_NAME_PLAIN,   /* no constraint, and no look at its inside: the words are the client's */
    ASKED_NAME_FIELD,   /* a field that asked_shape.h reads */
    ASKED_NAME_FOREIGN, /* the spelling of a constraint that is not read: another server's, in
                           another case, or wrong by one character */
    ASKED_NAME_UNKNOWN, /* none of these; a constraint may be inside */
};

/* The kind of a member of the body. */
enum asked_name asked_name_find(struct str name);
/* Whether a member of a body, as raw JSON, may be a constraint or have one inside. An unknown
 * member with more bytes than a client's options have is not looked into. */
bool asked_name_is_about(struct str raw_name, struct str raw_value);
/* The kind of a member inside an object whose members are unknown: FOREIGN or UNKNOWN. */
enum asked_name asked_name_find_inside(struct str name);
/* Whether a member of this kind of name asks for nothing by its value: null, false, 0 and what is
 * empty; under a name about schemas every value that can be no schema, such as a version. */
bool asked_name_is_off(struct str name, const json_t *value);
/* Why a foreign name is refused; a sentence without its full stop. */
const char *asked_name_reason(struct str name);
