/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* open_files: the descriptors of a server, and how many connections they allow.
 *
 * The store, the engines and the upstreams get theirs first. Without one, a connection is refused
 * and can come again; a result that cannot be written holds up every batch. What is left is for
 * connections of clients.
 *
 * Thread: the opener's.
 * Memory: none. */

#include "node/node.h"

/* Raises the soft limit on open files to the hard one: the usual soft limit of 1,024 protects
 * programs that use select, and quern is none. */
void open_files_raise(void);
/* How many connections the limit allows next to a node with these options, at most `most`.
 * ERR_LIMIT, with the limit that is needed, if it is none to speak of. */
enum err open_files_fit(const struct node_options *options, uint32_t most,
                        uint32_t *ret_connections, struct error *error) MUST_CHECK;
