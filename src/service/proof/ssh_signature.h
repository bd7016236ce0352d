/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ssh_signature: signatures of texts in the form of OpenSSH and git, so that a reader without quern
 * checks one with `ssh-keygen -Y verify`.
 *
 * A signature is base64 between two lines of dashes. Its bytes, in the notation of ssh_key.h, are
 * "SSHSIG", u32 1, string (public key), string namespace, string "", string "sha512", and a string
 * of string "ssh-ed25519" and string (64). What is signed is "SSHSIG", string namespace, string "",
 * string "sha512" and the string of the text's SHA-512.
 *
 * Thread: any; pure.
 * Memory: the caller's.
 * Invariant: two texts are never the same signature: one that is not spelled as this file writes it
 *     is refused. */

#include "proof/ssh_key.h"

/* The use that a signature is made for, so that it counts for no other. */
#define SSH_NAMESPACE "quern-manifest"

/* Appends the signature of the text, which ends in a newline. */
void ssh_sign(struct buf *out, const struct ssh_key *key, struct str text);
/* Whose signature of the text it is. ERR_CORRUPT: it is no signature, or of another text. */
enum err ssh_verify(struct str signature, struct str text,
                    unsigned char ret_public[SSH_PUBLIC_BYTES], struct error *error) MUST_CHECK;
