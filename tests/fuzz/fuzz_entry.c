/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a copy. What is taken has records of known kinds, paths of a state directory, and
 * bodies of their form.
 *
 * If the first byte is even, the sum is made right first, so that more than the sum is reached. */
#include "copy/entry.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(const struct entry_record *record) {
    const char *page;
    uint32_t number;
    assert(strlen(record->path) < ENTRY_PATH_BYTES);
    if (record->kind == ENTRY_PAGES) {
        for (size_t i = 0; entry_page(record, i, &number, &page); i++) {
            assert(number > 0);
            assert(page >= record->body.at);
            assert(page + entry_page_bytes(record) <= record->body.at + record->body.bytes);
        }
        return;
    }
    if (record->kind == ENTRY_BASE) return;
    assert(entry_path_is_good(str_from(record->path)));
    assert(!strstr(record->path, "..") || !strstr(record->path, "/../"));
    if (record->kind == ENTRY_OBJECT) assert(entry_object_of(record).piece_bytes > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct entry_header header;
    struct entry_record record;
    struct error error = {0};
    struct buf entry;
    if (bytes == 0) return 0;
    buf_init(&entry, BUF_UNLIMITED);
    buf_add(&entry, data + 1, bytes - 1);
    if (*data % 2 == 0) entry_end(&entry);
    if (entry_open(buf_str(&entry), &header, &error) == OK) {
        assert(strlen(header.nonce) == ENTRY_NONCE_BYTES - 1);
        for (size_t at = 0; entry_next(buf_str(&entry), &at, &record);) check(&record);
    } else {
        assert(*error.text);
    }
    buf_release(&entry);
    return 0;
}
