/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* machine_show: the state of a server's machine and of its nodes as text, for `quern status`.
 *
 * Thread: main.
 * Memory: none. */

#include <jansson.h>

/* Prints the object of GET /v1/machine on standard output. Members that an older server does not
 * have are left out. */
void machine_show(const json_t *machine);
