/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tile_store: the store of a model's matrices (program/weight_store.h) for the CPU: tiles for a
 * table of kernels, from the cache of tiled weights where it has them.
 *
 * It makes the choices that depend on the kernels: which table keeps an embedding, and which
 * weights are rounded. It knows no tensor's meaning.
 *
 * Thread: one, which spreads the work over a pool; the cache has a thread of its own.
 * Memory: a matrix owns its tiles, or borrows those that the cache has mapped: then no executor may
 *     use it after tile_store_close.
 * Invariant: a matrix has the same bytes from the cache as from its rows, and a product the same
 *     result over tiles as over rows that stay in the file. */

#include "checkpoint/checkpoint.h"
#include "cpu/tiled_cache.h"
#include "program/weight_store.h"

struct tile_store;

struct tile_store_options {
    const struct checkpoint *checkpoint; /* for the cache's key; read in tile_store_open alone */
    const struct model_config *config;   /* likewise */
    const struct kernels *kernels;
    struct pool *pool;
    const struct tiled_cache_options *cache; /* NULL: no cache */
    uint64_t bytes_max; /* for tiles; experts beyond them stay in the file. 0: no limit */
};

/* Experts that stay in the model's file. */
struct tile_store_left {
    uint64_t tiled_bytes; /* what their tiles would take */
    uint64_t file_bytes;
};

struct tile_store *tile_store_open(const struct tile_store_options *options);
/* Call it before matrix_close: the cache may be writing the matrices' tiles. NULL is allowed. */
void tile_store_close(struct tile_store *store);
/* The interface for weights_open; it lives as long as the store. */
struct weight_store tile_store_interface(struct tile_store *store);
/* What stays in the file, once all matrices have their rows. */
struct tile_store_left tile_store_left(const struct tile_store *store);
/* True when the cache had the tiles of every matrix. */
bool tile_store_is_from_cache(const struct tile_store *store);
