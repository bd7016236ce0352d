/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* printable: texts of others on a terminal.
 *
 * A name of a file, a model or a line may have escape sequences, which clear a screen, change its
 * title or answer as if a person typed. So a text that this program did not make is printed with
 * its control characters as \x1b, \n or \u009b, marks of direction as \u202e, and bytes that are no
 * UTF-8 as \xff. All other characters stay as they are.
 *
 * Thread: any; pure.
 * Memory: the struct, which a caller takes by value: printf("%s", printable(name).text). */

#include "base/str.h"

#define PRINTABLE_BYTES 2048 /* a longer text is cut between characters */

struct printable {
    char text[PRINTABLE_BYTES];
};

struct printable printable(const char *text); /* NULL is the empty text */
/* True if the text has a control character: C0, DEL or C1. */
bool printable_has_control(struct str text);
