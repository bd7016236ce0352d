/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ssh_key: Ed25519 keys in the files of OpenSSH, which `ssh-keygen -t ed25519` makes as well.
 *
 * Only keys without a passphrase are read. A private key is the bytes below in base64, between two
 * lines of dashes. Integers are big-endian; a string is a u32 length and its bytes.
 *
 *   "openssh-key-v1" and a NUL
 *   string "none", string "none", string ""    cipher, derivation and its options
 *   u32 1                                      number of keys
 *   string                                     the public key: string "ssh-ed25519", string (32)
 *   string                                     u32 check, the same u32, string "ssh-ed25519",
 *                                              string (32) public, string (64) secret, string
 *                                              comment, and bytes 1, 2, 3 … to a multiple of 8
 *
 * A private key is valid if (1) every field lies inside its string, (2) the names are those above,
 * (3) the two numbers are equal, and (4) both public keys are that of the secret.
 *
 * Thread: any; pure.
 * Memory: the caller's; the caller wipes a key (ssh_key_wipe). */

#include "base/buf.h"
#include "base/err.h"

#define SSH_PUBLIC_BYTES 32
#define SSH_SECRET_BYTES 64
#define SSH_PUBLIC_TEXT_BYTES 96 /* "ssh-ed25519 AAAA…" with the final NUL */
#define SSH_KIND "ssh-ed25519"

struct ssh_key {
    unsigned char public[SSH_PUBLIC_BYTES];
    unsigned char secret[SSH_SECRET_BYTES]; /* the seed and the public key, as libsodium has it */
};

void ssh_key_make(struct ssh_key *ret_key);
void ssh_key_wipe(struct ssh_key *key);
/* Appends the file of a private key. */
void ssh_key_write(struct buf *out, const struct ssh_key *key);
/* ERR_INVALID with a sentence that never quotes the text. */
enum err ssh_key_read(struct ssh_key *ret_key, struct str text, struct error *error) MUST_CHECK;

/* "ssh-ed25519 AAAA…", the line of a .pub file without its comment. */
void ssh_public_write(const unsigned char public[SSH_PUBLIC_BYTES],
                      char ret_text[SSH_PUBLIC_TEXT_BYTES]);
/* Reads such a line, with or without a comment. ERR_INVALID for any other text. */
enum err ssh_public_read(unsigned char ret_public[SSH_PUBLIC_BYTES], struct str text,
                         struct error *error) MUST_CHECK;

/* For this folder: appends a string of the format; the base64 of bytes between the lines
 * "-----BEGIN NAME-----" and "-----END NAME-----"; and reads the latter, at most `bytes_max`. */
void ssh_add_string(struct buf *out, const void *bytes, size_t count);
void ssh_add_u32(struct buf *out, uint32_t value);
void ssh_add_public(struct buf *out, const unsigned char public[SSH_PUBLIC_BYTES]);
void ssh_armor(struct buf *out, const char *name, struct str bytes);
bool ssh_unarmor(struct str text, const char *name, void *ret_bytes, size_t bytes_max,
                 size_t *ret_count);
