/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests of backups. A manifest that is taken has sane paths in ascending order, so that a
 * restore writes below its directory only, and writing it again gives the same bytes.
 *
 * If the first byte is even, the sum of the last line is made right first, so that more than the
 * sum is reached. */
#include "backup/manifest.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Gives the text an end whose sum is right; its count stays the input's. */
static void repair(struct buf *text) {
    unsigned char sum[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    struct sha256 hash;
    if (text->bytes < 66 || text->at[text->bytes - 66] != ' ') return;
    size_t end = text->bytes - 66;
    while (end > 0 && text->at[end - 1] != '\n') end--;
    sha256_init(&hash);
    sha256_add(&hash, text->at, end);
    sha256_end(&hash, sum);
    sha256_hex(sum, hex);
    memcpy(text->at + text->bytes - 65, hex, SHA256_HEX_BYTES - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct backup_manifest manifest;
    struct error error = {0};
    struct buf text, again;
    if (bytes == 0) return 0;
    buf_init(&text, BUF_UNLIMITED);
    buf_init(&again, BUF_UNLIMITED);
    buf_add(&text, data + 1, bytes - 1);
    if (*data % 2 == 0) repair(&text);
    if (backup_manifest_read(buf_str(&text), &manifest, &error) == OK) {
        for (size_t i = 0; i < manifest.count; i++) {
            const struct backup_object *object = &manifest.objects[i];
            assert(backup_path_is_sane(str_from(object->path)));
            assert(i == 0 || strcmp(manifest.objects[i - 1].path, object->path) < 0);
            assert(backup_manifest_find(&manifest, object->path) == object);
            assert(object->generation >= 1 && object->generation <= manifest.generation);
        }
        backup_manifest_write(&manifest, &again);
        assert(str_equals(buf_str(&again), buf_str(&text)));
        backup_manifest_release(&manifest);
    } else {
        assert(*error.text);
    }
    buf_release(&text);
    buf_release(&again);
    return 0;
}
