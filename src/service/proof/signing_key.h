/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* signing_key: the file of the key that signs manifests. It is made when it is first needed, mode
 * 0600, in the form of OpenSSH, so that a key of `ssh-keygen -t ed25519` may lie there instead.
 *
 * Thread: any; of several makers at a time the first one's key stays.
 * Memory: the caller wipes the key (ssh_key_wipe). */

#include "proof/ssh_key.h"

#define SIGNING_KEY_NAME "signing_key" /* in a state directory */

/* Reads the key. ERR_NOT_FOUND: there is none; ERR_INVALID: it is no key, or others than its owner
 * can read it. */
enum err signing_key_read(struct ssh_key *ret_key, const char *path,
                          struct error *error) MUST_CHECK;
/* Reads the key, or makes one, with the folder. */
enum err signing_key_get(struct ssh_key *ret_key, const char *path, struct error *error) MUST_CHECK;
