/* SPDX-License-Identifier: Apache-2.0 */

/* A hostile file of tiled weights: any bytes are taken or refused, and every section of a file that
 * is taken can be read.
 *
 * The first byte says which parts are corrected first, so that more than the magic and the
 * checksums is reached: the head's fixed fields, its checksum, the checksums of the body. */

#include "cpu/tiled_format.h"

#include <assert.h>
#include <stdlib.h>

#define REPAIRS_FIELDS 1u
#define REPAIRS_BODY 2u
#define REPAIRS_HEAD 4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct tiled_key key = {{7}};

static void repair_fields(unsigned char *bytes, size_t count) {
    struct tiled_head head;
    memcpy(&head, bytes, sizeof head);
    memcpy(head.magic, tiled_magic, sizeof head.magic);
    memcpy(head.key, key.bytes, sizeof head.key);
    head.version = TILED_VERSION;
    head.section_count %= 40;
    head.sum_count = 1;
    head.head_bytes = tiled_head_bytes(head.section_count, 1);
    head.body_bytes = count > head.head_bytes ? count - head.head_bytes : 0;
    memcpy(bytes, &head, sizeof head);
}

static void repair_sums(unsigned char *bytes, size_t count, unsigned what) {
    struct tiled_head head;
    memcpy(&head, bytes, sizeof head);
    if (head.head_bytes < TILED_PAGE || head.head_bytes > count) return;
    size_t sum_at = sizeof head + (size_t)head.section_count * sizeof(struct tiled_entry);
    if (what & REPAIRS_BODY && sum_at + 4 <= head.head_bytes) {
        uint32_t crc = crc32c(0, bytes + head.head_bytes, count - (size_t)head.head_bytes);
        memcpy(bytes + sum_at, &crc, sizeof crc);
    }
    if (what & REPAIRS_HEAD) {
        head.crc = tiled_head_crc(bytes, (size_t)head.head_bytes);
        memcpy(bytes, &head, sizeof head);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    size_t count = size - 1;
    unsigned char *bytes = aligned_alloc(TILED_PAGE, tiled_page_up(count + 1));
    if (!bytes) abort();
    memcpy(bytes, data + 1, count);
    if (count >= sizeof(struct tiled_head)) {
        if (data[0] & REPAIRS_FIELDS) repair_fields(bytes, count);
        repair_sums(bytes, count, data[0]);
    }
    struct tiled *tiled;
    struct error error = {0};
    enum err err = tiled_open_bytes(&tiled, bytes, count, &key, NULL, &error);
    if (err == OK) {
        struct tiled_head head;
        memcpy(&head, bytes, sizeof head);
        for (uint32_t i = 0; i < head.section_count; i++) {
            struct tiled_entry entry;
            memcpy(&entry, bytes + sizeof head + i * sizeof entry, sizeof entry);
            const struct tiled_section *section = tiled_find(tiled, entry.name);
            assert(section);
            const unsigned char *at = section->at;
            assert(at >= bytes && section->bytes <= count - (size_t)(at - bytes));
            (void)crc32c(0, at, section->bytes);
        }
        tiled_close(tiled);
    }
    assert(err == OK || (error.text[0] != '\0' && !strchr(error.text, '\n')));
    free(bytes);
    return 0;
}
