/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/weights.h"

#include "base/hash.h"
#include "base/mem.h"
#include "checkpoint/tensors.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The state of loading one model. */
struct loader {
    const struct checkpoint *checkpoint;
    const struct model_config *config;
    const struct kernels *kernels;
    struct pool *pool;
    uint32_t *row_order; /* (heads · head_dim) of q; its start serves k as well */
    struct weights *weights;
    struct error *error;
};

/* A tensor that tensors_check has found, or NULL. */
static const struct checkpoint_tensor *find(const struct loader *loader, uint32_t layer,
                                            enum tensor_role role) {
    struct tensor_name name = tensor_name_of(role, layer);
    return checkpoint_find(loader->checkpoint, str_from(name.text));
}

/* ---- vectors ---- */

/* Appends the elements of a vector to *at. */
static enum err read_vector(const struct loader *loader, uint32_t layer, enum tensor_role role,
                            float **at) {
    const struct checkpoint_tensor *tensor = find(loader, layer, role);
    assert(tensor);
    struct checkpoint_bytes bytes;
    enum err err = checkpoint_read(tensor, loader->pool, &bytes, loader->error);
    if (err != OK) return err;
    quant_row_to_f32((enum tensor_type)tensor->type, bytes.at, (size_t)tensor->axes[0], *at);
    checkpoint_done(loader->checkpoint, tensor, &bytes);
    for (uint64_t i = 0; i < tensor->axes[0]; i++)
        if (!isfinite((*at)[i]))
            return err_set(loader->error, ERR_INVALID,
                           "tensor %.*s: element %llu is no finite number",
                           STR_ARGS(tensor->spelled), (unsigned long long)i);
    *at += tensor->axes[0];
    return OK;
}

/* One vector, or three joined, in new memory. NULL when the architecture has none. */
static enum err load_vector(struct loader *loader, uint32_t layer, const enum tensor_role *roles,
                            size_t role_count, float **ret_vector) {
    size_t count = 0;
    for (size_t i = 0; i < role_count; i++) {
        const struct checkpoint_tensor *tensor = find(loader, layer, roles[i]);
        if (!tensor) return OK;
        count += (size_t)tensor->axes[0];
    }
    float *vector = calloc(count, sizeof *vector);
    if (!vector)
        return err_set(loader->error, ERR_LIMIT, "no memory for a vector of %zu weights", count);
    *ret_vector = vector; /* weights_close frees it, also after an error */
    loader->weights->bytes += count * sizeof *vector;
    float *at = vector;
    enum err err = OK;
    for (size_t i = 0; i < role_count && err == OK; i++)
        err = read_vector(loader, layer, roles[i], &at);
    return err;
}

static enum err load_norm(struct loader *loader, uint32_t layer, enum tensor_role role,
                          float **ret_norm) {
    enum err err = load_vector(loader, layer, &role, 1, ret_norm);
    float offset = checkpoint_norm_offset(loader->checkpoint);
    if (err != OK || offset == 0.0f || !*ret_norm) return err;
    uint64_t count = find(loader, layer, role)->axes[0];
    for (uint64_t i = 0; i < count; i++) (*ret_norm)[i] += offset;
    return OK;
}

/* ---- matrices ---- */

struct fill_job {
    struct matrix *matrix;
    uint32_t tiles_each;
};

static void fill_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    struct fill_job *job = context;
    uint32_t begin = task * job->tiles_each;
    uint32_t end = begin + job->tiles_each;
    if (end > job->matrix->tile_count) end = job->matrix->tile_count;
    matrix_fill(job->matrix, begin, end);
}

/* Takes a matrix that the cache has, named by its first tensor. False: the caller tiles it. */
static bool reuse(struct loader *loader, const struct kernels *kernels, const char *name,
                  const struct matrix_part *parts, uint32_t part_count, uint32_t cols,
                  struct matrix **ret_matrix) {
    struct tiled_cache *cache = loader->weights->cache;
    const struct tiled_section *section = tiled_cache_find(cache, name);
    struct error ignored;
    if (!section || matrix_open_tiled(ret_matrix, kernels, parts, part_count, cols, section->at,
                                      section->bytes, &ignored) != OK)
        return false;
    loader->weights->bytes += (*ret_matrix)->bytes;
    tiled_cache_add(cache, name, (*ret_matrix)->memory, (*ret_matrix)->bytes);
    return true;
}

static enum err make_tiles(struct loader *loader, const struct kernels *kernels, const char *name,
                           const struct matrix_part *parts, uint32_t part_count, uint32_t cols,
                           struct matrix **ret_matrix) {
    enum err err = matrix_open(ret_matrix, kernels, parts, part_count, cols, loader->error);
    if (err != OK) return err;
    struct fill_job job = {.matrix = *ret_matrix, .tiles_each = 4};
    uint32_t tasks = ((*ret_matrix)->tile_count + job.tiles_each - 1) / job.tiles_each;
    pool_run(loader->pool, fill_task, &job, tasks);
    loader->weights->bytes += (*ret_matrix)->bytes;
    tiled_cache_add(loader->weights->cache, name, (*ret_matrix)->memory, (*ret_matrix)->bytes);
    return OK;
}

/* An embedding that no head is tied to is looked up alone. `ref` keeps a row of it in one piece;
 * where a table multiplies it, its elements lie a cache line apart. */
static const struct kernels *table_for(const struct loader *loader, enum tensor_role role) {
    bool is_tied = !loader->config->architecture->is_encoder && !find(loader, 0, ROLE_HEAD);
    return role == ROLE_EMBEDDING && !is_tied ? kernels_choose("ref") : loader->kernels;
}

/* Encoders serve for throughput. A CPU that multiplies bf16 does so at nearly twice the speed of
 * f32, so their float weights are rounded to bf16 there. docs/internals/embeddings.md has the cost
 * and the gain. */
static bool is_to_round(const struct loader *loader, enum tensor_role role,
                        const struct checkpoint_tensor *tensor) {
    return loader->config->architecture->is_encoder && loader->kernels->tiles_bf16_pairs &&
           role != ROLE_EMBEDDING && (tensor->type == TENSOR_F32 || tensor->type == TENSOR_F16);
}

/* Converts the elements read of a tensor to bf16. */
static enum err round_bytes(const struct loader *loader, const struct checkpoint_tensor *tensor,
                            struct checkpoint_bytes *bytes) {
    size_t rows = (size_t)tensor->axes[1], cols = (size_t)tensor->axes[0];
    uint16_t *rounded = calloc(rows * cols, sizeof *rounded);
    float *row = calloc(cols, sizeof *row);
    if (!rounded || !row) {
        free(rounded);
        free(row);
        return err_set(loader->error, ERR_LIMIT, "no memory to round %zu rows of weights", rows);
    }
    for (size_t i = 0; i < rows; i++) {
        quant_row_to_f32((enum tensor_type)tensor->type, bytes->at + i * tensor->row_bytes, cols,
                         row);
        for (size_t j = 0; j < cols; j++) rounded[i * cols + j] = bf16_from_f32(row[j]);
    }
    free(row);
    free(bytes->owned);
    *bytes = (struct checkpoint_bytes){.at = (const unsigned char *)rounded, .owned = rounded};
    return OK;
}

/* All of a tensor as a part of a matrix; its bytes are yet to be read. */
static struct matrix_part part_of(const struct loader *loader, enum tensor_role role,
                                  const struct checkpoint_tensor *tensor) {
    bool rounds = is_to_round(loader, role, tensor);
    return (struct matrix_part){.type = rounds ? TENSOR_BF16 : (enum tensor_type)tensor->type,
                                .rows = (uint32_t)tensor->axes[1]};
}

/* Reads them into `bytes` that checkpoint_done is to have in the end. */
static enum err read_part(const struct loader *loader, enum tensor_role role,
                          const struct checkpoint_tensor *tensor,
                          struct checkpoint_bytes *ret_bytes, struct matrix_part *part) {
    enum err err = checkpoint_read(tensor, loader->pool, ret_bytes, loader->error);
    if (err != OK) return err;
    if (is_to_round(loader, role, tensor)) err = round_bytes(loader, tensor, ret_bytes);
    if (err != OK)
        checkpoint_done(loader->checkpoint, tensor, ret_bytes);
    else
        part->blocks = ret_bytes->at;
    return err;
}

static enum err load_matrix(struct loader *loader, uint32_t layer, const enum tensor_role *roles,
                            uint32_t role_count, struct matrix **ret_matrix) {
    struct matrix_part parts[3];
    const struct checkpoint_tensor *tensors[3];
    struct checkpoint_bytes bytes[3];
    uint32_t count = 0;
    assert(role_count <= 3);
    for (uint32_t i = 0; i < role_count; i++) {
        tensors[i] = find(loader, layer, roles[i]);
        assert(tensors[i]);
        parts[i] = part_of(loader, roles[i], tensors[i]);
        if (roles[i] == ROLE_Q || roles[i] == ROLE_K) parts[i].row_order = loader->row_order;
    }
    struct tensor_name name = tensor_name_of(roles[0], layer);
    const struct kernels *kernels = table_for(loader, roles[0]);
    uint32_t cols = (uint32_t)tensors[0]->axes[0];
    if (reuse(loader, kernels, name.text, parts, role_count, cols, ret_matrix)) return OK;
    enum err err = OK;
    while (err == OK && count < role_count) {
        uint32_t i = count;
        err = read_part(loader, roles[i], tensors[i], &bytes[i], &parts[i]);
        if (err == OK) count++;
    }
    if (err == OK) err = make_tiles(loader, kernels, name.text, parts, count, cols, ret_matrix);
    for (uint32_t i = 0; i < count; i++) checkpoint_done(loader->checkpoint, tensors[i], &bytes[i]);
    return err;
}

/* attn_qkv.weight: one tensor with the rows of q, then k, then v. */
static enum err load_fused_qkv(struct loader *loader, uint32_t layer, struct matrix **ret_matrix) {
    const struct model_config *config = loader->config;
    const struct checkpoint_tensor *tensor = find(loader, layer, ROLE_QKV);
    uint32_t rows[3] = {config->heads * config->head_dim, config->kv_heads * config->head_dim,
                        config->kv_heads * config->head_dim};
    struct matrix_part whole = part_of(loader, ROLE_QKV, tensor), parts[3];
    struct checkpoint_bytes bytes;
    for (int i = 0; i < 3; i++) {
        parts[i] = whole;
        parts[i].rows = rows[i];
        parts[i].row_order = i < 2 ? loader->row_order : NULL;
    }
    struct tensor_name name = tensor_name_of(ROLE_QKV, layer);
    uint32_t cols = (uint32_t)tensor->axes[0];
    if (reuse(loader, loader->kernels, name.text, parts, 3, cols, ret_matrix)) return OK;
    enum err err = read_part(loader, ROLE_QKV, tensor, &bytes, &whole);
    if (err != OK) return err;
    size_t row_bytes = tensor_type_row_bytes(whole.type, (size_t)tensor->axes[0]);
    const unsigned char *at = whole.blocks;
    for (int i = 0; i < 3; i++) {
        parts[i].blocks = at;
        at += rows[i] * row_bytes;
    }
    err = make_tiles(loader, loader->kernels, name.text, parts, 3, cols, ret_matrix);
    checkpoint_done(loader->checkpoint, tensor, &bytes);
    return err;
}

/* The converter to GGUF stored row (head, half, i) of an interleaved family as (head, i, half);
 * row r of the matrix is file row row_order[r]. NULL when nothing was permuted. */
static enum err make_row_order(struct loader *loader) {
    const struct model_config *config = loader->config;
    if (!config->architecture->rope_is_interleaved || !checkpoint_is_permuted(loader->checkpoint))
        return OK;
    uint32_t half = config->head_dim / 2, rows = config->heads * config->head_dim;
    loader->row_order = calloc(rows, sizeof *loader->row_order);
    if (!loader->row_order)
        return err_set(loader->error, ERR_LIMIT, "no memory for the order of %u rows", rows);
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t head = row / config->head_dim, within = row % config->head_dim;
        loader->row_order[row] = head * config->head_dim + 2 * (within % half) + within / half;
    }
    return OK;
}

static enum err load_norms(struct loader *loader, uint32_t layer, struct layer_weights *to) {
    enum err err = load_norm(loader, layer, ROLE_ATTENTION_NORM, &to->attention_norm);
    if (err == OK) err = load_norm(loader, layer, ROLE_Q_NORM, &to->q_norm);
    if (err == OK) err = load_norm(loader, layer, ROLE_K_NORM, &to->k_norm);
    if (err == OK)
        err = load_norm(loader, layer, ROLE_POST_ATTENTION_NORM, &to->post_attention_norm);
    if (err == OK) err = load_norm(loader, layer, ROLE_FFN_NORM, &to->ffn_norm);
    if (err == OK) err = load_norm(loader, layer, ROLE_POST_FFN_NORM, &to->post_ffn_norm);
    return err;
}

static enum err load_encoder_vectors(struct loader *loader, uint32_t layer,
                                     struct encoder_layer *to) {
    const struct {
        enum tensor_role role;
        float **vector;
    } vectors[] = {
        {ROLE_OUTPUT_BIAS, &to->output_bias},
        {ROLE_ATTENTION_OUTPUT_NORM, &to->attention_norm},
        {ROLE_ATTENTION_OUTPUT_NORM_BIAS, &to->attention_norm_bias},
        {ROLE_UP_BIAS, &to->up_bias},
        {ROLE_DOWN_BIAS, &to->down_bias},
        {ROLE_LAYER_OUTPUT_NORM, &to->ffn_norm},
        {ROLE_LAYER_OUTPUT_NORM_BIAS, &to->ffn_norm_bias},
    };
    enum err err = OK;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors && err == OK; i++)
        err = load_norm(loader, layer, vectors[i].role, vectors[i].vector);
    return err;
}

static enum err load_layer(struct loader *loader, uint32_t layer) {
    static const enum tensor_role qkv[] = {ROLE_Q, ROLE_K, ROLE_V};
    static const enum tensor_role qkv_bias[] = {ROLE_Q_BIAS, ROLE_K_BIAS, ROLE_V_BIAS};
    static const enum tensor_role output[] = {ROLE_OUTPUT_PROJECTION};
    static const enum tensor_role gate_up[] = {ROLE_GATE, ROLE_UP};
    static const enum tensor_role down[] = {ROLE_DOWN};
    /* Without a gate, or with one in the same tensor, only `up` is loaded. */
    uint32_t ungated = find(loader, layer, ROLE_GATE) ? 0 : 1;
    struct layer_weights *to = &loader->weights->layers[layer];
    enum err err = find(loader, layer, ROLE_QKV) ? load_fused_qkv(loader, layer, &to->qkv)
                                                 : load_matrix(loader, layer, qkv, 3, &to->qkv);
    if (err == OK) err = load_vector(loader, layer, qkv_bias, 3, &to->qkv_bias);
    if (err == OK) err = load_matrix(loader, layer, output, 1, &to->output);
    if (err == OK) err = load_matrix(loader, layer, gate_up + ungated, 2 - ungated, &to->gate_up);
    if (err == OK) err = load_matrix(loader, layer, down, 1, &to->down);
    if (err != OK) return err;
    return loader->config->architecture->is_encoder
               ? load_encoder_vectors(loader, layer, &to->encoder)
               : load_norms(loader, layer, to);
}

/* The first `count` rows of a matrix as floats: ret_rows (count, width). */
static enum err read_rows(struct loader *loader, enum tensor_role role, size_t count,
                          float *ret_rows) {
    const struct checkpoint_tensor *tensor = find(loader, 0, role);
    size_t width = loader->config->width;
    struct checkpoint_bytes bytes;
    enum err err = checkpoint_read(tensor, loader->pool, &bytes, loader->error);
    if (err != OK) return err;
    for (size_t i = 0; i < count; i++)
        quant_row_to_f32((enum tensor_type)tensor->type, bytes.at + i * tensor->row_bytes, width,
                         ret_rows + i * width);
    checkpoint_done(loader->checkpoint, tensor, &bytes);
    return OK;
}

/* Where each position begins: its own vector, and the first token type's. */
static enum err load_positions(struct loader *loader) {
    bool is_rotary = loader->config->architecture->is_rotary_encoder;
    size_t width = loader->config->width, count = is_rotary ? 1 : loader->config->context_max;
    float *at = loader->weights->positions = calloc(count * width, sizeof *at);
    float *type = calloc(width, sizeof *type);
    if (!at || !type) {
        free(type);
        return err_set(loader->error, ERR_LIMIT, "no memory for %zu positions", count);
    }
    loader->weights->bytes += count * width * sizeof *at;
    enum err err = read_rows(loader, ROLE_TOKEN_TYPES, 1, type);
    if (err == OK && !is_rotary) err = read_rows(loader, ROLE_POSITIONS, count, at);
    for (size_t i = 0; i < count * width && err == OK; i++) at[i] += type[i % width];
    free(type);
    return err;
}

static enum err load_ends(struct loader *loader) {
    static const enum tensor_role embedding[] = {ROLE_EMBEDDING}, head[] = {ROLE_HEAD};
    struct weights *weights = loader->weights;
    enum err err = load_matrix(loader, 0, embedding, 1, &weights->embedding);
    if (err != OK) return err;
    if (loader->config->architecture->is_encoder) {
        err = load_positions(loader);
        if (err == OK) err = load_norm(loader, 0, ROLE_EMBEDDING_NORM, &weights->embedding_norm);
        if (err == OK)
            err = load_norm(loader, 0, ROLE_EMBEDDING_NORM_BIAS, &weights->embedding_norm_bias);
        return err;
    }
    if (find(loader, 0, ROLE_HEAD))
        err = load_matrix(loader, 0, head, 1, &weights->head);
    else
        weights->head = weights->embedding;
    return err == OK ? load_norm(loader, 0, ROLE_OUTPUT_NORM, &weights->output_norm) : err;
}

static enum err load_all(struct loader *loader) {
    enum err err = make_row_order(loader);
    if (err == OK) err = load_ends(loader);
    for (uint32_t i = 0; i < loader->weights->layer_count && err == OK; i++)
        err = load_layer(loader, i);
    return err;
}

/* The type that holds most parameters, which users call the quantisation of the file. */
static void count_parameters(const struct checkpoint *checkpoint, struct weights *weights) {
    uint64_t by_type[TENSOR_TYPE_END] = {0};
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const struct checkpoint_tensor *tensor = checkpoint_tensor_at(checkpoint, i);
        uint64_t elements = 1;
        for (uint32_t axis = 0; axis < tensor->axis_count; axis++) elements *= tensor->axes[axis];
        weights->parameters += elements;
        assert(tensor->type < TENSOR_TYPE_END);
        by_type[tensor->type] += elements;
        if (by_type[tensor->type] > by_type[weights->type])
            weights->type = (enum tensor_type)tensor->type;
    }
}

enum err weights_check(const struct checkpoint *checkpoint, const struct model_config *config,
                       struct error *error) {
    return tensors_check(checkpoint, config, error);
}

/* Hashes all that the tiled bytes follow from; the stamp stands for the weights themselves. */
static void make_key(const struct loader *loader, const struct tiled_key *stamp,
                     struct tiled_key *ret_key) {
    const struct model_config *config = loader->config;
    const uint32_t numbers[] = {TILED_VERSION, MATRIX_TILING, config->heads, config->kv_heads,
                                config->head_dim};
    const char *const names[] = {QUERN_VERSION, loader->kernels->name, config->architecture->name};
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, stamp->bytes, sizeof stamp->bytes);
    sha256_add(&hash, numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        sha256_add(&hash, names[i], strlen(names[i]) + 1);
    for (size_t i = 0; i < checkpoint_tensor_count(loader->checkpoint); i++) {
        const struct checkpoint_tensor *tensor = checkpoint_tensor_at(loader->checkpoint, i);
        sha256_add(&hash, tensor->name.at, tensor->name.bytes);
        sha256_add(&hash, &tensor->type, sizeof tensor->type);
        sha256_add(&hash, tensor->axes, sizeof tensor->axes);
    }
    sha256_end(&hash, ret_key->bytes);
}

/* The reference keeps the file's own rows, so it has no tiles to save. */
static void open_cache(struct loader *loader, const struct tiled_cache_options *options) {
    struct tiled_key key;
    if (!options || !options->dir || loader->kernels->keeps_blocks) return;
    make_key(loader, &options->stamp, &key);
    loader->weights->cache = tiled_cache_open(options, &key, loader->pool);
}

enum err weights_open(struct weights **ret_weights, const struct checkpoint *checkpoint,
                      const struct model_config *config, const struct kernels *kernels,
                      struct pool *pool, const struct tiled_cache_options *cache,
                      struct error *error) {
    enum err err = weights_check(checkpoint, config, error);
    if (err != OK) return err;
    struct weights *weights = mem_new(1, sizeof *weights);
    weights->layer_count = config->layers;
    weights->layers = mem_new(config->layers, sizeof *weights->layers);
    struct loader loader = {.checkpoint = checkpoint,
                            .config = config,
                            .kernels = kernels,
                            .pool = pool,
                            .weights = weights,
                            .error = error};
    count_parameters(checkpoint, weights);
    open_cache(&loader, cache);
    err = load_all(&loader);
    free(loader.row_order);
    if (err != OK) {
        weights_close(weights);
        return err;
    }
    tiled_cache_store(weights->cache);
    *ret_weights = weights;
    return OK;
}

static void close_layer(struct layer_weights *layer) {
    matrix_close(layer->qkv);
    matrix_close(layer->output);
    matrix_close(layer->gate_up);
    matrix_close(layer->down);
    free(layer->attention_norm);
    free(layer->q_norm);
    free(layer->k_norm);
    free(layer->qkv_bias);
    free(layer->post_attention_norm);
    free(layer->ffn_norm);
    free(layer->post_ffn_norm);
    free(layer->encoder.output_bias);
    free(layer->encoder.attention_norm);
    free(layer->encoder.attention_norm_bias);
    free(layer->encoder.up_bias);
    free(layer->encoder.down_bias);
    free(layer->encoder.ffn_norm);
    free(layer->encoder.ffn_norm_bias);
}

void weights_close(struct weights *weights) {
    if (!weights) return;
    tiled_cache_close(weights->cache); /* which may be reading the matrices */
    for (uint32_t i = 0; i < weights->layer_count; i++) close_layer(&weights->layers[i]);
    free(weights->layers);
    if (weights->head != weights->embedding) matrix_close(weights->head);
    matrix_close(weights->embedding);
    free(weights->output_norm);
    free(weights->positions);
    free(weights->embedding_norm);
    free(weights->embedding_norm_bias);
    free(weights);
}
