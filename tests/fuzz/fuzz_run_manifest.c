/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests of runs, their salts, and private keys. What reads is written as the same text, if it
 * is not signed and its members are in order; a key that reads signs what it verifies. */
#include "proof/run_salts.h"
#include "proof/ssh_signature.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void try_manifest(struct str text) {
    struct manifest manifest, again;
    struct error error = {0};
    if (manifest_read(&manifest, text, &error) != OK) {
        assert(*error.text);
        return;
    }
    struct buf out;
    buf_init(&out, BUF_UNLIMITED);
    manifest_write(&out, manifest.content, NULL);
    assert(manifest_read(&again, buf_str(&out), &error) == OK);
    assert(json_equal(again.content, manifest.content) && !again.is_signed);
    manifest_release(&again);
    manifest_release(&manifest);
    buf_release(&out);
}

/* Salts that read are written as a text that reads, with the same record. */
static void try_salts(struct str text) {
    struct run_salts salts, again;
    struct error error = {0};
    if (run_salts_read(&salts, text, &error) != OK) {
        assert(*error.text);
        return;
    }
    struct buf out;
    buf_init(&out, BUF_UNLIMITED);
    run_salts_write(&out, &salts, NULL);
    assert(run_salts_read(&again, buf_str(&out), &error) == OK);
    assert(json_equal(again.erasures, salts.erasures) && again.file_count == salts.file_count);
    run_salts_release(&again);
    run_salts_release(&salts);
    buf_release(&out);
}

static void try_key(struct str text) {
    struct ssh_key key;
    unsigned char public[SSH_PUBLIC_BYTES];
    struct error error = {0};
    if (ssh_key_read(&key, text, &error) == OK) {
        struct buf signature;
        buf_init(&signature, BUF_UNLIMITED);
        ssh_sign(&signature, &key, STR("text\n"));
        assert(ssh_verify(buf_str(&signature), STR("text\n"), public, &error) == OK);
        assert(memcmp(public, key.public, sizeof public) == 0);
        buf_release(&signature);
    } else {
        assert(*error.text);
    }
    (void)(ssh_public_read(public, text, &error) == OK);
    (void)(ssh_verify(text, STR("text\n"), public, &error) == OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    try_manifest((struct str){copy, bytes});
    try_salts((struct str){copy, bytes});
    try_key((struct str){copy, bytes});
    free(copy);
    return 0;
}
