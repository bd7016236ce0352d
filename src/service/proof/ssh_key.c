/* SPDX-License-Identifier: Apache-2.0 */
#include "proof/ssh_key.h"

#include "base/base64.h"

#include <sodium/crypto_sign_ed25519.h>
#include <sodium/randombytes.h>
#include <sodium/utils.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "openssh-key-v1" /* with its NUL */
#define ARMOR "OPENSSH PRIVATE KEY"
#define LINE_CHARACTERS 70 /* per line of base64, as OpenSSH cuts it */
#define FILE_BYTES_MAX 4096
#define ALIGNMENT 8

/* --- the format --- */

void ssh_add_u32(struct buf *out, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) buf_add_byte(out, (char)(value >> shift & 0xff));
}

void ssh_add_string(struct buf *out, const void *bytes, size_t count) {
    ssh_add_u32(out, (uint32_t)count);
    buf_add(out, bytes, count);
}

void ssh_add_public(struct buf *out, const unsigned char public[SSH_PUBLIC_BYTES]) {
    ssh_add_string(out, SSH_KIND, strlen(SSH_KIND));
    ssh_add_string(out, public, SSH_PUBLIC_BYTES);
}

void ssh_armor(struct buf *out, const char *name, struct str bytes) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    base64_add(&text, bytes.at, bytes.bytes);
    buf_printf(out, "-----BEGIN %s-----\n", name);
    for (size_t at = 0; at < text.bytes; at += LINE_CHARACTERS) {
        size_t left = text.bytes - at;
        buf_add(out, text.at + at, left < LINE_CHARACTERS ? left : LINE_CHARACTERS);
        buf_add_byte(out, '\n');
    }
    buf_printf(out, "-----END %s-----\n", name);
    sodium_memzero(text.at, text.bytes);
    buf_release(&text);
}

bool ssh_unarmor(struct str text, const char *name, void *ret_bytes, size_t bytes_max,
                 size_t *ret_count) {
    char line[80];
    struct buf plain;
    snprintf(line, sizeof line, "-----BEGIN %s-----", name);
    text = str_trim(text);
    if (!str_starts_with(text, str_from(line))) return false;
    text = str_skip(text, strlen(line));
    snprintf(line, sizeof line, "-----END %s-----", name);
    if (!str_ends_with(text, str_from(line))) return false;
    text.bytes -= strlen(line);
    buf_init(&plain, FILE_BYTES_MAX);
    for (size_t i = 0; i < text.bytes; i++)
        if (text.at[i] != '\n' && text.at[i] != '\r') buf_add_byte(&plain, text.at[i]);
    bool is_good =
        !plain.overflowed && base64_read(buf_str(&plain), ret_bytes, bytes_max, ret_count);
    if (plain.at) sodium_memzero(plain.at, plain.bytes);
    buf_release(&plain);
    return is_good;
}

/* Takes a u32; false at the end of the bytes. */
static bool take_u32(struct str *rest, uint32_t *ret_value) {
    if (rest->bytes < 4) return false;
    *ret_value = 0;
    for (int i = 0; i < 4; i++) *ret_value = *ret_value << 8 | (unsigned char)rest->at[i];
    *rest = str_skip(*rest, 4);
    return true;
}

static bool take_string(struct str *rest, struct str *ret_string) {
    uint32_t bytes;
    if (!take_u32(rest, &bytes) || bytes > rest->bytes) return false;
    *ret_string = (struct str){rest->at, bytes};
    *rest = str_skip(*rest, bytes);
    return true;
}

/* Takes a string that has to be this text. */
static bool take_text(struct str *rest, const char *text) {
    struct str found;
    return take_string(rest, &found) && str_is(found, text);
}

static bool take_bytes(struct str *rest, unsigned char *ret_bytes, size_t count) {
    struct str found;
    if (!take_string(rest, &found) || found.bytes != count) return false;
    memcpy(ret_bytes, found.at, count);
    return true;
}

static bool take_public(struct str *rest, unsigned char ret_public[SSH_PUBLIC_BYTES]) {
    return take_text(rest, SSH_KIND) && take_bytes(rest, ret_public, SSH_PUBLIC_BYTES);
}

/* --- private keys --- */

void ssh_key_make(struct ssh_key *ret_key) {
    crypto_sign_ed25519_keypair(ret_key->public, ret_key->secret);
}

void ssh_key_wipe(struct ssh_key *key) {
    sodium_memzero(key, sizeof *key);
}

void ssh_key_write(struct buf *out, const struct ssh_key *key) {
    struct buf all, part;
    buf_init(&all, FILE_BYTES_MAX);
    buf_init(&part, FILE_BYTES_MAX);
    buf_add(&all, MAGIC, sizeof MAGIC);
    ssh_add_string(&all, "none", 4);
    ssh_add_string(&all, "none", 4);
    ssh_add_string(&all, "", 0);
    ssh_add_u32(&all, 1);
    ssh_add_public(&part, key->public);
    ssh_add_string(&all, part.at, part.bytes);
    buf_clear(&part);
    uint32_t check = randombytes_random();
    ssh_add_u32(&part, check);
    ssh_add_u32(&part, check);
    ssh_add_public(&part, key->public);
    ssh_add_string(&part, key->secret, SSH_SECRET_BYTES);
    ssh_add_string(&part, "quern", strlen("quern"));
    for (char pad = 1; part.bytes % ALIGNMENT > 0; pad++) buf_add_byte(&part, pad);
    ssh_add_string(&all, part.at, part.bytes);
    ssh_armor(out, ARMOR, buf_str(&all));
    sodium_memzero(part.at, part.bytes);
    sodium_memzero(all.at, all.bytes);
    buf_release(&part);
    buf_release(&all);
}

/* Whether the secret is that of both public keys. */
static bool is_pair(const struct ssh_key *key, const unsigned char public[SSH_PUBLIC_BYTES]) {
    unsigned char made[SSH_PUBLIC_BYTES], secret[SSH_SECRET_BYTES];
    crypto_sign_ed25519_seed_keypair(made, secret, key->secret);
    bool is_one = sodium_memcmp(secret, key->secret, sizeof secret) == 0 &&
                  memcmp(made, key->public, sizeof made) == 0 &&
                  memcmp(made, public, sizeof made) == 0;
    sodium_memzero(secret, sizeof secret);
    return is_one;
}

static bool read_private(struct ssh_key *ret_key, struct str private,
                         const unsigned char public[SSH_PUBLIC_BYTES]) {
    uint32_t check, again;
    return take_u32(&private, &check) && take_u32(&private, &again) && check == again &&
           take_public(&private, ret_key->public) &&
           take_bytes(&private, ret_key->secret, SSH_SECRET_BYTES) && is_pair(ret_key, public);
}

static enum err read_key(struct ssh_key *ret_key, struct str bytes, struct error *error) {
    unsigned char public[SSH_PUBLIC_BYTES];
    struct str public_part, private_part;
    uint32_t count;
    if (!str_starts_with(bytes, (struct str){MAGIC, sizeof MAGIC}))
        return err_set(error, ERR_INVALID, "it is no private key of OpenSSH");
    bytes = str_skip(bytes, sizeof MAGIC);
    static const char *const open[] = {"none", "none", ""}; /* cipher, derivation, its options */
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (!take_text(&bytes, open[i]))
            return err_set(error, ERR_INVALID,
                           "the key has a passphrase; make one without: ssh-keygen -t ed25519 -N "
                           "''");
    if (!take_u32(&bytes, &count) || count != 1 || !take_string(&bytes, &public_part) ||
        !take_public(&public_part, public))
        return err_set(error, ERR_INVALID, "the key is not of the kind ed25519");
    if (!take_string(&bytes, &private_part) || !read_private(ret_key, private_part, public))
        return err_set(error, ERR_INVALID, "the key is damaged");
    return OK;
}

enum err ssh_key_read(struct ssh_key *ret_key, struct str text, struct error *error) {
    char bytes[FILE_BYTES_MAX];
    size_t count = 0;
    if (!ssh_unarmor(text, ARMOR, bytes, sizeof bytes, &count))
        return err_set(error, ERR_INVALID, "it is no private key of OpenSSH");
    enum err err = read_key(ret_key, (struct str){bytes, count}, error);
    sodium_memzero(bytes, sizeof bytes);
    if (err != OK) ssh_key_wipe(ret_key);
    return err;
}

/* --- public keys --- */

void ssh_public_write(const unsigned char public[SSH_PUBLIC_BYTES],
                      char ret_text[SSH_PUBLIC_TEXT_BYTES]) {
    struct buf blob, text;
    buf_init(&blob, FILE_BYTES_MAX);
    buf_init(&text, FILE_BYTES_MAX);
    ssh_add_public(&blob, public);
    base64_add(&text, blob.at, blob.bytes);
    snprintf(ret_text, SSH_PUBLIC_TEXT_BYTES, SSH_KIND " %.*s", (int)text.bytes, text.at);
    buf_release(&text);
    buf_release(&blob);
}

enum err ssh_public_read(unsigned char ret_public[SSH_PUBLIC_BYTES], struct str text,
                         struct error *error) {
    char bytes[FILE_BYTES_MAX];
    size_t count;
    struct str rest = str_trim(text);
    if (str_starts_with(rest, STR(SSH_KIND " "))) {
        rest = str_trim(str_skip(rest, strlen(SSH_KIND)));
        size_t end = str_find_byte(rest, ' ', 0);
        if (end != SIZE_MAX) rest.bytes = end;
        if (base64_read(rest, bytes, sizeof bytes, &count)) {
            struct str blob = {bytes, count};
            if (take_public(&blob, ret_public) && blob.bytes == 0) return OK;
        }
    }
    return err_set(error, ERR_INVALID, "it is no public key: " SSH_KIND " AAAA…");
}
