/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* keys: from the operator's key file and the state directory to the keys of the door (http/key.h).
 *
 * Thread: main.  Memory: the caller closes the set. */

#include "http/key.h"
#include "node/secret.h"

/* The fixed keys of `key_file` (NULL: QUERN_API_KEYS_FILE, QUERN_API_KEYS or the credential
 * api-keys, where there is one), and those of `quern key` in `state_dir`. ERR_INVALID for a key
 * file without a key, or one that others can read. */
enum err keys_open(struct key_set **ret_keys, const char *key_file, const char *state_dir,
                   const struct secret_variables *variables, struct error *error) MUST_CHECK;
