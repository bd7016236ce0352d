/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/kv_pages.h"

#include <assert.h>
#include <stdlib.h>

#define NO_BLOCK UINT32_MAX

/* The window pages of one block. */
struct window {
    uint32_t holds;
    bool is_there;
    bool is_cached;
    uint32_t older; /* neighbours in the list of cached ones, or NO_BLOCK at its ends */
    uint32_t younger;
    uint64_t since; /* when it was cached */
};

struct kv_pages {
    struct kv_shape shape;
    uint32_t block_count;
    uint32_t per_block;
    uint32_t free_count;
    uint32_t *free_pages;   /* a stack */
    uint32_t *numbers;      /* (block_count, per_block) */
    struct window *windows; /* (block_count); NULL without window pages */
    uint32_t oldest;
    uint32_t youngest;
    uint32_t cached_count; /* blocks in the list */
};

enum err kv_pages_open(struct kv_pages **ret_pages, const struct kv_shape *shape,
                       uint32_t block_count, struct error *error) {
    uint32_t per_block = shape->full_pages + shape->window_pages;
    assert(shape->page_count > 0 && per_block > 0 && block_count > 0);
    struct kv_pages *pages = calloc(1, sizeof *pages);
    if (!pages) goto out_of_memory;
    pages->free_pages = calloc(shape->page_count, sizeof *pages->free_pages);
    pages->numbers = calloc((size_t)block_count * per_block, sizeof *pages->numbers);
    if (shape->window_pages > 0) pages->windows = calloc(block_count, sizeof *pages->windows);
    if (!pages->free_pages || !pages->numbers || (shape->window_pages > 0 && !pages->windows))
        goto out_of_memory;
    /* Filled backwards, so that page 0 is given first and a trace reads in order. */
    for (uint32_t i = 0; i < shape->page_count; i++)
        pages->free_pages[i] = shape->page_count - 1 - i;
    pages->shape = *shape;
    pages->block_count = block_count;
    pages->per_block = per_block;
    pages->free_count = shape->page_count;
    pages->oldest = pages->youngest = NO_BLOCK;
    *ret_pages = pages;
    return OK;

out_of_memory:
    kv_pages_close(pages);
    return err_set(error, ERR_LIMIT, "kv pages: no memory for %u pages", shape->page_count);
}

void kv_pages_close(struct kv_pages *pages) {
    if (!pages) return;
    free(pages->windows);
    free(pages->numbers);
    free(pages->free_pages);
    free(pages);
}

uint32_t kv_pages_per_block(const struct kv_pages *pages) {
    return pages->per_block;
}

uint32_t kv_pages_full_per_block(const struct kv_pages *pages) {
    return pages->shape.full_pages;
}

static uint32_t *numbers_of(const struct kv_pages *pages, uint32_t block) {
    assert(block < pages->block_count);
    return &pages->numbers[(size_t)block * pages->per_block];
}

static struct window *window_of(const struct kv_pages *pages, uint32_t block) {
    assert(block < pages->block_count);
    return &pages->windows[block];
}

bool kv_pages_give(struct kv_pages *pages, uint32_t block) {
    if (pages->free_count < pages->per_block) return false;
    uint32_t *numbers = numbers_of(pages, block);
    for (uint32_t i = 0; i < pages->per_block; i++)
        numbers[i] = pages->free_pages[--pages->free_count];
    if (pages->windows) {
        struct window *window = window_of(pages, block);
        assert(!window->is_there && window->holds == 0);
        window->is_there = true;
        window->holds = 1;
    }
    return true;
}

static void free_page(struct kv_pages *pages, uint32_t number) {
    assert(pages->free_count < pages->shape.page_count);
    pages->free_pages[pages->free_count++] = number;
}

static void free_window(struct kv_pages *pages, uint32_t block) {
    const uint32_t *numbers = numbers_of(pages, block);
    for (uint32_t i = pages->per_block; i-- > pages->shape.full_pages;)
        free_page(pages, numbers[i]);
    window_of(pages, block)->is_there = false;
}

static void list_remove(struct kv_pages *pages, uint32_t block) {
    struct window *window = window_of(pages, block);
    assert(window->is_cached && pages->cached_count > 0);
    if (window->older != NO_BLOCK)
        pages->windows[window->older].younger = window->younger;
    else
        pages->oldest = window->younger;
    if (window->younger != NO_BLOCK)
        pages->windows[window->younger].older = window->older;
    else
        pages->youngest = window->older;
    window->is_cached = false;
    pages->cached_count--;
}

static void list_add_youngest(struct kv_pages *pages, uint32_t block) {
    struct window *window = window_of(pages, block);
    window->older = pages->youngest;
    window->younger = NO_BLOCK;
    if (pages->youngest != NO_BLOCK)
        pages->windows[pages->youngest].younger = block;
    else
        pages->oldest = block;
    pages->youngest = block;
    window->is_cached = true;
    pages->cached_count++;
}

void kv_pages_forget_window(struct kv_pages *pages, uint32_t block) {
    list_remove(pages, block);
    free_window(pages, block);
}

void kv_pages_take_back(struct kv_pages *pages, uint32_t block) {
    if (pages->windows) {
        const struct window *window = window_of(pages, block);
        assert(window->holds == 0 && window->is_there == window->is_cached);
        if (window->is_cached) kv_pages_forget_window(pages, block);
    }
    const uint32_t *numbers = numbers_of(pages, block);
    for (uint32_t i = pages->shape.full_pages; i-- > 0;) free_page(pages, numbers[i]);
}

uint32_t kv_pages_of(const struct kv_pages *pages, uint32_t block, uint32_t group) {
    assert(group < pages->per_block);
    return numbers_of(pages, block)[group];
}

bool kv_pages_has_window(const struct kv_pages *pages, uint32_t block) {
    return !pages->windows || window_of(pages, block)->is_there;
}

uint32_t kv_pages_window_holds(const struct kv_pages *pages, uint32_t block) {
    return pages->windows ? window_of(pages, block)->holds : 0;
}

void kv_pages_hold_window(struct kv_pages *pages, uint32_t block) {
    if (!pages->windows) return;
    struct window *window = window_of(pages, block);
    assert(window->is_there);
    if (window->is_cached) list_remove(pages, block);
    window->holds++;
}

void kv_pages_drop_window(struct kv_pages *pages, uint32_t block, bool keep, uint64_t now) {
    if (!pages->windows) return;
    struct window *window = window_of(pages, block);
    assert(window->is_there && window->holds > 0);
    if (--window->holds > 0) return;
    if (keep) {
        window->since = now;
        list_add_youngest(pages, block);
    } else {
        free_window(pages, block);
    }
}

void kv_pages_move_window(struct kv_pages *pages, uint32_t from, uint32_t to) {
    struct window *source = window_of(pages, from), *target = window_of(pages, to);
    assert(source->is_there && source->holds > 0 && !target->is_there);
    target->is_there = true;
    target->holds = source->holds;
    source->is_there = false;
    source->holds = 0;
    const uint32_t *numbers = numbers_of(pages, from);
    uint32_t *moved = numbers_of(pages, to);
    for (uint32_t i = pages->shape.full_pages; i < pages->per_block; i++) moved[i] = numbers[i];
}

bool kv_pages_oldest_window(const struct kv_pages *pages, uint32_t *ret_block,
                            uint64_t *ret_since) {
    if (pages->oldest == NO_BLOCK) return false;
    *ret_block = pages->oldest;
    *ret_since = pages->windows[pages->oldest].since;
    return true;
}

uint32_t kv_pages_free_count(const struct kv_pages *pages) {
    return pages->free_count;
}

uint32_t kv_pages_cached_count(const struct kv_pages *pages) {
    return pages->cached_count * pages->shape.window_pages;
}

static void check_list(const struct kv_pages *pages, uint32_t cached) {
    uint32_t listed = 0, older = NO_BLOCK;
    uint64_t since = 0;
    for (uint32_t at = pages->oldest; at != NO_BLOCK; at = pages->windows[at].younger) {
        assert(pages->windows);
        const struct window *window = &pages->windows[at];
        assert(window->is_cached && window->older == older && window->since >= since);
        assert(listed < pages->cached_count); /* else the list has a loop */
        listed++;
        older = at;
        since = window->since;
    }
    assert(listed == cached && cached == pages->cached_count && pages->youngest == older);
}

uint64_t kv_pages_check(const struct kv_pages *pages, uint32_t blocks_taken) {
    uint32_t there = 0, cached = 0;
    uint64_t holds = 0;
    for (uint32_t i = 0; pages->windows && i < pages->block_count; i++) {
        const struct window *window = &pages->windows[i];
        assert(window->is_there == (window->holds > 0 || window->is_cached));
        assert(window->holds == 0 || !window->is_cached);
        there += window->is_there;
        cached += window->is_cached;
        holds += window->holds;
    }
    check_list(pages, cached);
    uint64_t used = (uint64_t)blocks_taken * pages->shape.full_pages +
                    (uint64_t)there * pages->shape.window_pages;
    assert(used + pages->free_count == pages->shape.page_count);
    return holds;
}
