/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD whose allocations fail: QUERN_MALLOC_COUNT of them (default 1) from
 * number QUERN_MALLOC_AT on, counted over the whole process from 1. At a good end the process
 * writes how many it made into the file QUERN_MALLOC_SAID. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *at, size_t bytes);

static atomic_ulong calls;
static unsigned long first, failing;

static bool fails(void) {
    unsigned long number = atomic_fetch_add(&calls, 1) + 1;
    if (number < first || number - first >= failing) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) {
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *at, size_t bytes) {
    return fails() ? NULL : __libc_realloc(at, bytes);
}

void *reallocarray(void *at, size_t count, size_t bytes) {
    size_t whole;
    if (!__builtin_mul_overflow(count, bytes, &whole)) return realloc(at, whole);
    errno = ENOMEM;
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("QUERN_MALLOC_AT"), *count = getenv("QUERN_MALLOC_COUNT");
    if (!at) return;
    failing = count ? strtoul(count, NULL, 10) : 1;
    first = strtoul(at, NULL, 10);
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("QUERN_MALLOC_SAID");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%lu\n", atomic_load(&calls));
    fclose(file);
}
