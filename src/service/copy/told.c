/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/copy_internal.h"

#include "base/clock.h"

#include <string.h>

#define FRAME_HEADER_BYTES 24
#define PAGE_HEAD_BYTES 8
#define PLACE_MS 10000 /* the longest that a large file waits for a storage that is away */

static uint32_t u32_at(const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Puts a page, in the place of an older one of its number. */
static void put_page(struct gathered *gathered, uint32_t number, const char *page) {
    uint64_t at;
    const struct str key = {(const char *)&number, sizeof number};
    if (map_get(&gathered->page_at, key, &at)) {
        memcpy(gathered->pages.at + at + PAGE_HEAD_BYTES, page, gathered->page_bytes);
        return;
    }
    map_put(&gathered->page_at, key, gathered->pages.bytes);
    entry_add_page(&gathered->pages, number, page, gathered->page_bytes);
}

static void pages_told(void *context, uint32_t page_bytes, struct str frames) {
    struct copy *copy = context;
    pthread_mutex_lock(&copy->lock);
    struct gathered *gathered = &copy->gathered;
    gathered->page_bytes = page_bytes;
    for (size_t at = 0; at < frames.bytes; at += FRAME_HEADER_BYTES + (size_t)page_bytes) {
        uint32_t count = u32_at(frames.at + at + 4); /* 0: not the last of its transaction */
        put_page(gathered, u32_at(frames.at + at), frames.at + at + FRAME_HEADER_BYTES);
        if (count) gathered->page_count = count;
    }
    copy_note(copy, false);
    pthread_mutex_unlock(&copy->lock);
}

static void written_told(void *context, const char *path, uint64_t at, struct str bytes) {
    struct copy *copy = context;
    pthread_mutex_lock(&copy->lock);
    entry_add(&copy->gathered.records, ENTRY_WRITE, path, at, bytes);
    copy_note(copy, true);
    pthread_mutex_unlock(&copy->lock);
}

static enum err placed_told(void *context, const char *path, struct error *error) {
    return copy_file(context, path, clock_monotonic_ns() + PLACE_MS * INT64_C(1000000), error);
}

static bool wait_told(void *context, int64_t until_ns) {
    return copy_wait(context, true, until_ns);
}

void copy_mirror_init(struct copy *copy) {
    copy->mirror = (struct store_mirror){copy, pages_told, written_told, placed_told, wait_told};
}
