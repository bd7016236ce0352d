/* SPDX-License-Identifier: Apache-2.0 */
#include "server/certificate.h"

#include "base/os.h"
#include "node/secret.h"

#include <stdlib.h>

#define CERTIFICATE_BYTES_MAX ((size_t)1 << 20)

enum err certificate_open(struct tls **ret_tls, const char *certificate_file, const char *key_file,
                          struct error *error) {
    char *public = NULL;
    size_t public_bytes = 0;
    struct secret secret = {0};
    enum err err = secret_read_file(&secret, key_file ? key_file : certificate_file, error);
    if (err != OK) err = err_prefix(error, "--ssl-%sfile", key_file ? "key" : "cert");
    if (err == OK && key_file) {
        err = os_read_file(certificate_file, CERTIFICATE_BYTES_MAX, &public, &public_bytes, error);
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
