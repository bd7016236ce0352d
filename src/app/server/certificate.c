/* SPDX-License-Identifier: Apache-2.0 */
#include "server/certificate.h"

#include "base/os.h"
#include "secrets/gcp_name.h"
#include "secrets/secret.h"

#include <stdlib.h>

#define CERTIFICATE_BYTES_MAX ((size_t)1 << 20)

/* The certificate is no secret, but may lie next to its key in Secret Manager. */
static enum err read_public(const char *path, char **ret_text, size_t *ret_bytes,
                            struct error *error) {
    struct secret secret;
    if (!gcp_name_is(path))
        return os_read_file(path, CERTIFICATE_BYTES_MAX, ret_text, ret_bytes, error);
    enum err err = secret_read_file(&secret, path, error);
    if (err != OK) return err;
    *ret_text = secret.text;
    *ret_bytes = secret.bytes;
    return OK;
}

enum err certificate_open(struct tls **ret_tls, const char *certificate_file, const char *key_file,
                          struct error *error) {
    char *public = NULL;
    size_t public_bytes = 0;
    struct secret secret = {0};
    enum err err = secret_read_file(&secret, key_file ? key_file : certificate_file, error);
    if (err != OK) err = err_prefix(error, "--ssl-%sfile", key_file ? "key" : "cert");
    if (err == OK && key_file) {
        err = read_public(certificate_file, &public, &public_bytes, error);
        if (err != OK) err = err_prefix(error, "--ssl-certfile");
    }
    struct tls_pem key = {.text = {secret.text, secret.bytes}, .where = secret.where};
    struct tls_pem certificate = {.text = {public, public_bytes}, .where = certificate_file};
    if (!key_file) certificate.text = key.text;
    if (err == OK) err = tls_open(ret_tls, &certificate, &key, error);
    secret_release(&secret);
    free(public);
    return err;
}
