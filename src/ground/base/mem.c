/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include "base/no_memory.h"

#include <assert.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define VEC_CAPACITY_MIN 16
#define LARGE_BYTES (256 << 10)

static void *must(void *memory) {
    if (!memory) no_memory();
    return memory;
}

void mem_set_up(void) {
#ifdef __GLIBC__
    /* By itself, malloc learns from a freed piece of 32 MiB to keep the next ones. */
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    mallopt(M_TRIM_THRESHOLD, 8 * LARGE_BYTES);
#endif
}

void mem_trim(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void *mem_new(size_t count, size_t item_bytes) {
    return must(calloc(count > 0 ? count : 1, item_bytes));
}

void *mem_alloc(size_t bytes) {
    return must(malloc(bytes > 0 ? bytes : 1));
}

void *mem_resize(void *at, size_t count, size_t item_bytes) {
    return must(reallocarray(at, count > 0 ? count : 1, item_bytes));
}

char *mem_text(const char *text) {
    return text ? must(strdup(text)) : NULL;
}

char *mem_str(struct str text) {
    char *copy = mem_alloc(text.bytes + 1);
    if (text.bytes > 0) memcpy(copy, text.at, text.bytes);
    copy[text.bytes] = '\0';
    return copy;
}

void *vec_grow(void *at, size_t count, size_t *capacity, size_t item_bytes) {
    assert(count <= *capacity);
    if (count < *capacity) return at;
    size_t wanted = *capacity < VEC_CAPACITY_MIN ? VEC_CAPACITY_MIN : 2 * *capacity;
    at = mem_resize(at, wanted, item_bytes);
    *capacity = wanted;
    return at;
}
