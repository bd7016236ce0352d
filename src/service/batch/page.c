/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/page.h"

struct page_read page_begin(const struct page *page) {
    return (struct page_read){.next = page->from,
                              .last = page->from.after,
                              .more = true,
                              .room = page->room,
                              .is_full = page->room == 0};
}

bool page_wants(const struct page *page, const struct page_read *read) {
    return read->lines < page->lines_max && read->bytes < page->bytes_max &&
           (page->counts || !read->is_full);
}

uint64_t page_skip(const struct page *page, const struct page_read *read) {
    return read->lines == 0 ? page->from.skip : 0;
}

enum err page_note(const struct page *page, struct page_read *read, uint64_t sequence,
                   uint64_t line_bytes, size_t appended, struct error *error) {
    uint64_t skip = page_skip(page, read);
    if (skip > 0 && sequence != page->from.after + 1)
        return err_set(error, ERR_CORRUPT, "the line in which the page begins is damaged");
    bool is_whole = line_bytes > 0 && skip + appended == line_bytes;
    if (!read->is_full) {
        read->next = is_whole ? (struct page_place){sequence, 0}
                              : (struct page_place){sequence - 1, skip + appended};
        read->room -= appended;
        read->is_full = !is_whole || read->room == 0;
    }
    if (!is_whole && !page->counts) return OK;
    read->lines++;
    read->bytes += line_bytes - skip;
    read->last = sequence;
    return OK;
}
