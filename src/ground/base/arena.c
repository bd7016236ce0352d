/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES_MIN ((size_t)16 * 1024)
#define ALIGNMENT ((size_t)16)

struct arena_chunk {
    struct arena_chunk *next;
    size_t bytes;
    size_t used;
    size_t padding; /* keeps data 16-byte aligned */
    char data[];
};

void arena_init(struct arena *arena, size_t bytes_max) {
    *arena = (struct arena){.bytes_max = bytes_max};
}

void arena_release(struct arena *arena) {
    for (struct arena_chunk *chunk = arena->chunks; chunk;) {
        struct arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    arena->chunks = NULL;
    arena->bytes_used = 0;
}

void *arena_alloc(struct arena *arena, size_t bytes) {
    if (bytes > arena->bytes_max) return NULL;
    bytes = (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    if (bytes > arena->bytes_max - arena->bytes_used) return NULL;
    struct arena_chunk *chunk = arena->chunks;
    if (!chunk || bytes > chunk->bytes - chunk->used) {
        size_t chunk_bytes = chunk ? chunk->bytes * 2 : CHUNK_BYTES_MIN;
        if (chunk_bytes > ((size_t)1 << 20)) chunk_bytes = (size_t)1 << 20;
        if (chunk_bytes < bytes) chunk_bytes = bytes;
        chunk = mem_alloc(sizeof *chunk + chunk_bytes);
        *chunk = (struct arena_chunk){.next = arena->chunks, .bytes = chunk_bytes};
        arena->chunks = chunk;
    }
    void *memory = chunk->data + chunk->used;
    chunk->used += bytes;
    arena->bytes_used += bytes;
    memset(memory, 0, bytes);
    return memory;
}

void *arena_array(struct arena *arena, size_t count, size_t bytes_each) {
    size_t bytes;
    if (__builtin_mul_overflow(count, bytes_each, &bytes)) return NULL;
    return arena_alloc(arena, bytes);
}

struct str arena_copy(struct arena *arena, struct str text) {
    char *copy = text.bytes < SIZE_MAX ? arena_alloc(arena, text.bytes + 1) : NULL;
    if (!copy) return (struct str){NULL, 0};
    if (text.bytes > 0) memcpy(copy, text.at, text.bytes);
    return (struct str){copy, text.bytes};
}
