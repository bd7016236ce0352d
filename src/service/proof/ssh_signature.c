/* SPDX-License-Identifier: Apache-2.0 */
#include "proof/ssh_signature.h"

#include <sodium/crypto_hash_sha512.h>
#include <sodium/crypto_sign_ed25519.h>
#include <string.h>

#define MAGIC "SSHSIG"
#define ARMOR "SSH SIGNATURE"
#define HASH "sha512"
#define BYTES_MAX 1024
/* Where the public key lies in a signature of our namespace, and the end that is the signature. */
#define PUBLIC_AT (strlen(MAGIC) + 4 + 4 + 4 + strlen(SSH_KIND) + 4)

static void add_text(struct buf *out, const char *text) {
    ssh_add_string(out, text, strlen(text));
}

/* The bytes that Ed25519 signs. */
static void write_signed(struct buf *out, struct str text) {
    unsigned char hash[crypto_hash_sha512_BYTES];
    crypto_hash_sha512(hash, (const unsigned char *)text.at, text.bytes);
    buf_add_text(out, MAGIC);
    add_text(out, SSH_NAMESPACE);
    add_text(out, "");
    add_text(out, HASH);
    ssh_add_string(out, hash, sizeof hash);
}

/* The signature's own bytes. */
static void write_blob(struct buf *out, const unsigned char public[SSH_PUBLIC_BYTES],
                       const unsigned char signature[crypto_sign_ed25519_BYTES]) {
    struct buf part;
    buf_init(&part, BYTES_MAX);
    buf_add_text(out, MAGIC);
    ssh_add_u32(out, 1);
    ssh_add_public(&part, public);
    ssh_add_string(out, part.at, part.bytes);
    add_text(out, SSH_NAMESPACE);
    add_text(out, "");
    add_text(out, HASH);
    buf_clear(&part);
    add_text(&part, SSH_KIND);
    ssh_add_string(&part, signature, crypto_sign_ed25519_BYTES);
    ssh_add_string(out, part.at, part.bytes);
    buf_release(&part);
}

static void write_signature(struct buf *out, const unsigned char public[SSH_PUBLIC_BYTES],
                            const unsigned char signature[crypto_sign_ed25519_BYTES]) {
    struct buf blob;
    buf_init(&blob, BYTES_MAX);
    write_blob(&blob, public, signature);
    ssh_armor(out, ARMOR, buf_str(&blob));
    buf_release(&blob);
}

void ssh_sign(struct buf *out, const struct ssh_key *key, struct str text) {
    unsigned char signature[crypto_sign_ed25519_BYTES];
    struct buf bytes;
    buf_init(&bytes, BYTES_MAX);
    write_signed(&bytes, text);
    crypto_sign_ed25519_detached(signature, NULL, (const unsigned char *)bytes.at, bytes.bytes,
                                 key->secret);
    buf_release(&bytes);
    write_signature(out, key->public, signature);
}

/* Whether the text is spelled as a signature of these two is. */
static bool is_spelled(struct str text, const unsigned char public[SSH_PUBLIC_BYTES],
                       const unsigned char signature[crypto_sign_ed25519_BYTES]) {
    struct buf again;
    buf_init(&again, BYTES_MAX);
    write_signature(&again, public, signature);
    bool is_same = str_equals(buf_str(&again), text);
    buf_release(&again);
    return is_same;
}

enum err ssh_verify(struct str signature, struct str text,
                    unsigned char ret_public[SSH_PUBLIC_BYTES], struct error *error) {
    unsigned char blob[BYTES_MAX], value[crypto_sign_ed25519_BYTES];
    size_t count = 0;
    struct buf bytes;
    if (!ssh_unarmor(signature, ARMOR, blob, sizeof blob, &count) ||
        count < PUBLIC_AT + SSH_PUBLIC_BYTES + sizeof value)
        return err_set(error, ERR_CORRUPT, "its signature is damaged");
    memcpy(ret_public, blob + PUBLIC_AT, SSH_PUBLIC_BYTES);
    memcpy(value, blob + count - sizeof value, sizeof value);
    if (!is_spelled(signature, ret_public, value))
        return err_set(error, ERR_CORRUPT, "its signature is damaged, or was made for another use");
    buf_init(&bytes, BYTES_MAX);
    write_signed(&bytes, text);
    bool is_good = crypto_sign_ed25519_verify_detached(value, (const unsigned char *)bytes.at,
                                                       bytes.bytes, ret_public) == 0;
    buf_release(&bytes);
    return is_good ? OK : err_set(error, ERR_CORRUPT, "its signature is of another text");
}
