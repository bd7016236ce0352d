/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/tile_store.h"

#include "base/hash.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_MAX 4
#define TILES_EACH 4 /* tiles of a task of the pool */

struct tile_store {
    const struct kernels *kernels;
    struct pool *pool;
    bool is_encoder;
    struct tiled_cache *cache; /* NULL: no cache */
    uint64_t bytes_max;        /* 0: no limit */
    uint64_t other_bytes;      /* tiles of matrices of no expert */
    uint64_t expert_bytes;     /* tiles of experts that were filled */
    struct tile_store_left left;
};

/* ---- the choices that depend on the kernels ---- */

/* `ref` keeps a row of an embedding in one piece; where a table multiplies it, its elements lie a
 * cache line apart. */
static const struct kernels *table_for(const struct tile_store *store,
                                       const struct weight_matrix *from) {
    return from->is_multiplied ? store->kernels : kernels_choose("ref");
}

/* Encoders serve for throughput. A CPU that multiplies bf16 does so at nearly twice the speed of
 * f32, so their float weights are rounded to bf16 there. docs/internals/inference/embeddings.md has
 * the cost and the gain. */
static bool is_to_round(const struct tile_store *store, const struct weight_matrix *from,
                        const struct matrix_part *part) {
    return store->is_encoder && store->kernels->tiles_bf16_pairs && !from->is_looked_up &&
           (part->type == TENSOR_F32 || part->type == TENSOR_F16);
}

/* A router's logits decide which weights a row meets, and rates of decay are powers, so each keeps
 * the activations' bits: floats of 16 bits would make the kernels round them. */
static bool is_to_widen(const struct weight_matrix *from, const struct matrix_part *part) {
    return from->is_exact && (part->type == TENSOR_BF16 || part->type == TENSOR_F16);
}

/* The type in which a part is tiled. */
static enum tensor_type type_for(const struct tile_store *store, const struct weight_matrix *from,
                                 const struct matrix_part *part) {
    if (is_to_round(store, from, part)) return TENSOR_BF16;
    return is_to_widen(from, part) ? TENSOR_F32 : part->type;
}

/* ---- opening ---- */

/* Opens a matrix over the tiles that the cache has. False: there are none. */
static bool open_mapped(struct tile_store *store, const struct weight_matrix *from,
                        const struct matrix_part *parts, struct matrix **ret_matrix) {
    const struct tiled_section *section = tiled_cache_find(store->cache, from->name);
    struct error ignored;
    return section && matrix_open_tiled(ret_matrix, table_for(store, from), parts, from->part_count,
                                        from->cols, section->at, section->bytes, &ignored) == OK;
}

static enum err store_open(void *self, const struct weight_matrix *from, struct matrix **ret_matrix,
                           bool *ret_is_filled, struct error *error) {
    struct tile_store *store = self;
    struct matrix_part parts[PARTS_MAX];
    assert(from->part_count <= PARTS_MAX);
    for (uint32_t i = 0; i < from->part_count; i++) {
        parts[i] = from->parts[i];
        parts[i].type = type_for(store, from, &from->parts[i]);
    }
    *ret_is_filled = open_mapped(store, from, parts, ret_matrix);
    enum err err = *ret_is_filled ? OK
                                  : matrix_open(ret_matrix, table_for(store, from), parts,
                                                from->part_count, from->cols, error);
    if (err != OK) return err;
    if (from->experts == 0) store->other_bytes += (*ret_matrix)->bytes;
    tiled_cache_add(store->cache, from->name, (*ret_matrix)->memory, (*ret_matrix)->bytes);
    return OK;
}

/* ---- filling ---- */

/* Converts the rows of a part, in its order, to bf16 or f32, in memory that the caller frees as
 * ret_part->blocks. */
static enum err convert_part(const struct matrix_part *part, enum tensor_type type, uint32_t cols,
                             struct matrix_part *ret_part, struct error *error) {
    const size_t row_bytes = tensor_type_row_bytes(part->type, cols);
    const size_t new_bytes = tensor_type_row_bytes(type, cols);
    unsigned char *rows = calloc(part->rows, new_bytes);
    float *row = calloc(cols, sizeof *row);
    if (!rows || !row) {
        free(rows);
        free(row);
        return err_set(error, ERR_LIMIT, "no memory to convert %u rows of weights", part->rows);
    }
    for (size_t i = 0; i < part->rows; i++) {
        unsigned char *at = rows + i * new_bytes;
        const size_t from = part->row_order ? part->row_order[i] : i;
        quant_row_to_f32(part->type, (const unsigned char *)part->blocks + from * row_bytes, cols,
                         row);
        for (size_t j = 0; j < cols && type == TENSOR_BF16; j++) {
            const uint16_t rounded = bf16_from_f32(row[j]);
            memcpy(at + j * sizeof rounded, &rounded, sizeof rounded);
        }
        if (type == TENSOR_F32) memcpy(at, row, new_bytes);
    }
    free(row);
    *ret_part = *part;
    ret_part->type = type;
    ret_part->blocks = rows;
    ret_part->row_order = NULL; /* they are in it */
    return OK;
}

struct fill_job {
    struct matrix *matrix;
    const struct matrix_part *parts;
};

static void fill_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    struct fill_job *job = context;
    uint32_t begin = task * TILES_EACH;
    uint32_t end = begin + TILES_EACH;
    if (end > job->matrix->tile_count) end = job->matrix->tile_count;
    matrix_fill(job->matrix, job->parts, begin, end);
}

/* True if there is no memory for the tiles of an expert, and its rows can stay where they are. */
static bool is_to_leave(const struct tile_store *store, const struct matrix *matrix,
                        const struct weight_matrix *from) {
    if (store->bytes_max == 0 || from->experts == 0 || !from->is_mapped) return false;
    for (uint32_t i = 0; i < from->part_count; i++)
        if (from->parts[i].row_order ||
            type_for(store, from, &from->parts[i]) != from->parts[i].type)
            return false;
    return store->other_bytes + store->expert_bytes + matrix->bytes > store->bytes_max;
}

static void leave(struct tile_store *store, struct matrix *matrix,
                  const struct weight_matrix *from) {
    matrix_leave(matrix, from->parts);
    store->left.tiled_bytes += matrix->bytes;
    for (uint32_t i = 0; i < from->part_count; i++)
        store->left.file_bytes +=
            from->parts[i].rows * (uint64_t)tensor_type_row_bytes(from->parts[i].type, from->cols);
}

static enum err store_fill(void *self, struct matrix *matrix, const struct weight_matrix *from,
                           struct error *error) {
    struct tile_store *store = self;
    if (is_to_leave(store, matrix, from)) {
        leave(store, matrix, from);
        return OK;
    }
    if (from->experts > 0) store->expert_bytes += matrix->bytes;
    struct matrix_part parts[PARTS_MAX];
    void *converted[PARTS_MAX] = {NULL};
    enum err err = OK;
    for (uint32_t i = 0; i < from->part_count && err == OK; i++) {
        parts[i] = from->parts[i];
        const enum tensor_type type = type_for(store, from, &parts[i]);
        if (type == parts[i].type) continue;
        err = convert_part(&from->parts[i], type, from->cols, &parts[i], error);
        if (err == OK) converted[i] = (void *)(uintptr_t)parts[i].blocks;
    }
    if (err == OK) {
        struct fill_job job = {.matrix = matrix, .parts = parts};
        pool_run(store->pool, fill_task, &job, (matrix->tile_count + TILES_EACH - 1) / TILES_EACH);
    }
    for (uint32_t i = 0; i < from->part_count; i++) free(converted[i]);
    return err;
}

/* Starts to write the cache's file, if it lacked a matrix. */
static enum err store_finish(void *self, struct error *error) {
    (void)error;
    struct tile_store *store = self;
    /* A copy of the tiles would need those that were not laid. */
    if (store->left.tiled_bytes == 0) tiled_cache_store(store->cache);
    return OK;
}

struct weight_store tile_store_interface(struct tile_store *store) {
    static const struct weight_store_ops ops = {
        .open = store_open, .fill = store_fill, .finish = store_finish};
    return (struct weight_store){.ops = &ops, .self = store};
}

/* ---- the cache ---- */

/* Hashes all that the tiled bytes follow from; the stamp stands for the weights themselves. */
static void make_key(const struct tile_store_options *options, struct tiled_key *ret_key) {
    const struct checkpoint *checkpoint = options->checkpoint;
    const struct model_config *config = options->config;
    const struct tiled_key *stamp = &options->cache->stamp;
    const uint32_t numbers[] = {TILED_VERSION, MATRIX_TILING, config->heads, config->kv_heads,
                                config->head_dim};
    const char *const names[] = {QUERN_VERSION, options->kernels->name, config->architecture->name};
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, stamp->bytes, sizeof stamp->bytes);
    sha256_add(&hash, numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        sha256_add(&hash, names[i], strlen(names[i]) + 1);
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const struct checkpoint_tensor *tensor = checkpoint_tensor_at(checkpoint, i);
        sha256_add(&hash, tensor->name.at, tensor->name.bytes);
        sha256_add(&hash, &tensor->type, sizeof tensor->type);
        sha256_add(&hash, tensor->axes, sizeof tensor->axes);
    }
    sha256_end(&hash, ret_key->bytes);
}

struct tile_store *tile_store_open(const struct tile_store_options *options) {
    struct tile_store *store = mem_new(1, sizeof *store);
    store->kernels = options->kernels;
    store->pool = options->pool;
    store->is_encoder = options->config->architecture->is_encoder;
    store->bytes_max = options->bytes_max;
    /* The reference keeps the file's own rows, so it has no tiles to save. */
    if (options->cache && options->cache->dir && !options->kernels->keeps_blocks) {
        struct tiled_key key;
        make_key(options, &key);
        store->cache = tiled_cache_open(options->cache, &key, options->pool);
    }
    return store;
}

void tile_store_close(struct tile_store *store) {
    if (!store) return;
    tiled_cache_close(store->cache);
    free(store);
}

struct tile_store_left tile_store_left(const struct tile_store *store) {
    return store->left;
}

bool tile_store_is_from_cache(const struct tile_store *store) {
    return tiled_cache_has_all(store->cache);
}
