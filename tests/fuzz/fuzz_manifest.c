/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests of Ollama's store. For any bytes the digest is 64 hex digits or empty, so that no path
 * made of it leads anywhere else. */
#include "hub/hub_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    struct ollama_manifest manifest;
    struct error error = {0};
    if (ollama_manifest_read((struct str){copy, bytes}, &manifest, &error) == OK) {
        size_t digits = strlen(manifest.digest);
        assert(digits == 0 || digits == 64);
        assert(strspn(manifest.digest, "0123456789abcdef") == digits);
        assert(digits == 0 || manifest.bytes > 0);
    } else {
        assert(*error.text);
    }
    free(copy);
    return 0;
}
