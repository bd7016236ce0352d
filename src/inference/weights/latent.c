/* SPDX-License-Identifier: Apache-2.0 */

/* The matrices of latent attention: a pair for each head, whatever the file has. */

#include "weights/weights_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the part of a head that turns, elements i and i + half of it turn together; files have them as
 * neighbours. `behind` rows stand before that part in each piece. */
static enum err make_order(struct weights_loader *loader, uint32_t pieces, uint32_t behind,
                           uint32_t **ret_order) {
    const struct latent_sizes *sizes = &loader->options.config->latent;
    const uint32_t turned = sizes->turned_dim, half = turned / 2, each = behind + turned;
    uint32_t *order = calloc((size_t)pieces * each, sizeof *order);
    if (!order)
        return err_set(loader->error, ERR_LIMIT, "no memory for the order of %u rows",
                       pieces * each);
    for (uint32_t row = 0; row < pieces * each; row++) {
        const uint32_t within = row % each, at = within - behind;
        const bool stays = within < behind || sizes->halves_turn;
        order[row] = stays ? row : row - at + 2 * (at % half) + at / half;
    }
    *ret_order = order;
    return OK;
}

/* Opens the matrix of q, and that which the input meets. */
static enum err open_products(struct weights_loader *loader, uint32_t layer,
                              struct latent *ret_latent) {
    const struct model_config *config = loader->options.config;
    const struct latent_sizes *sizes = &config->latent;
    const bool has_two = sizes->q_rank > 0;
    const enum tensor_role first = has_two ? ROLE_LATENT_Q_A : ROLE_LATENT_Q;
    struct weights_source in = {.name = tensor_name_of(first, layer),
                                .tensors = {weights_find(loader, layer, first),
                                            weights_find(loader, layer, ROLE_LATENT_KV_A)},
                                .tensor_count = 2,
                                .part_count = 2,
                                .is_multiplied = true};
    enum err err = OK;
    if (!loader->latent_q_order)
        err = make_order(loader, config->heads, sizes->still_dim, &loader->latent_q_order);
    if (err == OK && !loader->latent_entry_order)
        err = make_order(loader, 1, sizes->rank, &loader->latent_entry_order);
    if (err != OK) return err;
    for (int i = 0; i < 2; i++) in.parts[i] = weights_part_of(in.tensors[i]);
    in.parts[1].row_order = loader->latent_entry_order;
    if (!has_two) in.parts[0].row_order = loader->latent_q_order;
    err = weights_open_source(loader, &in, &ret_latent->in);
    if (err != OK || !has_two) return err;
    const struct checkpoint_tensor *q = weights_find(loader, layer, ROLE_LATENT_Q_B);
    struct weights_source q_b = {.name = tensor_name_of(ROLE_LATENT_Q_B, layer),
                                 .tensors = {q},
                                 .tensor_count = 1,
                                 .parts = {weights_part_of(q)},
                                 .part_count = 1,
                                 .is_multiplied = true};
    q_b.parts[0].row_order = loader->latent_q_order;
    return weights_open_source(loader, &q_b, &ret_latent->q_b);
}

/* The type of rows that are columns of the tensor: that of its numbers, if they have no blocks. */
static enum tensor_type turned_type(const struct checkpoint_tensor *tensor) {
    const enum tensor_type type = (enum tensor_type)tensor->type;
    return type == TENSOR_BF16 || type == TENSOR_F16 ? type : TENSOR_F32;
}

/* Opens one matrix of a head: of a tensor of three axes, or some rows of one for keys and values.
 */
static enum err open_head(struct weights_loader *loader, uint32_t layer, uint32_t head,
                          bool is_of_keys, struct matrix **ret_matrix) {
    const struct latent_sizes *sizes = &loader->options.config->latent;
    const struct checkpoint_tensor *own =
        weights_find(loader, layer, is_of_keys ? ROLE_LATENT_K_B : ROLE_LATENT_V_B);
    const struct checkpoint_tensor *both = weights_find(loader, layer, ROLE_LATENT_KV_B);
    struct weights_source source = {
        .tensors = {both ? both : own}, .tensor_count = 1, .part_count = 1, .is_multiplied = true};
    snprintf(source.name.text, sizeof source.name.text, "blk.%u.attn_%c_b.%u.weight", layer,
             is_of_keys ? 'k' : 'v', head);
    assert(source.tensors[0]);
    source.parts[0] = weights_part_of(source.tensors[0]);
    source.slice = both ? 0 : head;
    source.head = head;
    source.heads = loader->options.config->heads;
    source.is_of_head = both != NULL;
    if (both) {
        source.first_row = head * (sizes->still_dim + sizes->value_dim);
        if (!is_of_keys) source.first_row += sizes->still_dim;
        source.parts[0].rows = is_of_keys ? sizes->rank : sizes->value_dim;
        source.is_turned = is_of_keys;
        source.turned_cols = sizes->still_dim;
        if (is_of_keys) source.parts[0].type = turned_type(both);
    }
    return weights_open_source(loader, &source, ret_matrix);
}

enum err weights_open_latent(struct weights_loader *loader, uint32_t layer,
                             struct latent *ret_latent) {
    static const enum tensor_role q_norm[] = {ROLE_LATENT_Q_NORM}, norm[] = {ROLE_LATENT_NORM};
    const uint32_t heads = loader->options.config->heads;
    ret_latent->k_b = calloc(heads, sizeof *ret_latent->k_b);
    ret_latent->v_b = calloc(heads, sizeof *ret_latent->v_b);
    if (!ret_latent->k_b || !ret_latent->v_b)
        return err_set(loader->error, ERR_LIMIT, "no memory for %u heads", heads);
    ret_latent->heads = heads;
    enum err err = open_products(loader, layer, ret_latent);
    if (err == OK) err = weights_read_vector(loader, layer, q_norm, 1, &ret_latent->q_norm);
    if (err == OK) err = weights_read_vector(loader, layer, norm, 1, &ret_latent->norm);
    for (uint32_t i = 0; i < heads && err == OK; i++)
        err = open_head(loader, layer, i, true, &ret_latent->k_b[i]);
    for (uint32_t i = 0; i < heads && err == OK; i++)
        err = open_head(loader, layer, i, false, &ret_latent->v_b[i]);
    return err;
}

/* ---- filling ---- */

void weights_end_heads(struct weights_loader *loader) {
    if (loader->open_tensor)
        checkpoint_done(loader->options.checkpoint, loader->open_tensor, &loader->open_bytes);
    loader->open_tensor = NULL;
}

/* Row r of ret_rows is column r of `count` rows of the tensor. */
static void turn_rows(const struct checkpoint_tensor *tensor, const unsigned char *rows,
                      uint32_t count, float *line, enum tensor_type type, unsigned char *ret_rows) {
    const size_t cols = (size_t)tensor->axes[0], bytes = tensor_type_row_bytes(type, 1);
    const bool is_kept = (enum tensor_type)tensor->type == type;
    for (size_t i = 0; i < count; i++, rows += tensor->row_bytes) {
        if (!is_kept) quant_row_to_f32((enum tensor_type)tensor->type, rows, cols, line);
        const unsigned char *from = is_kept ? rows : (const unsigned char *)line;
        for (size_t j = 0; j < cols; j++)
            memcpy(ret_rows + (j * count + i) * bytes, from + j * bytes, bytes);
    }
}

enum err weights_fill_head(struct weights_loader *loader, struct weights_source *source) {
    const struct weight_store *store = &loader->options.store;
    const struct checkpoint_tensor *tensor = source->tensors[0];
    if (loader->open_tensor != tensor) {
        weights_end_heads(loader);
        enum err err =
            checkpoint_read(tensor, 0, loader->options.pool, &loader->open_bytes, loader->error);
        if (err != OK) return err;
        loader->open_tensor = tensor;
    }
    const unsigned char *rows =
        loader->open_bytes.at + (size_t)source->first_row * tensor->row_bytes;
    struct matrix_part *part = &source->parts[0];
    unsigned char *turned = NULL;
    float *line = NULL;
    part->blocks = rows;
    if (source->is_turned) {
        turned = calloc(part->rows, tensor_type_row_bytes(part->type, source->turned_cols));
        line = calloc((size_t)tensor->axes[0], sizeof *line);
        part->blocks = turned;
    }
    enum err err = OK;
    if (source->is_turned && (!turned || !line))
        err = err_set(loader->error, ERR_LIMIT, "tensor %.*s: no memory to turn a head's rows",
                      STR_ARGS(tensor->spelled));
    if (err == OK) {
        if (turned) turn_rows(tensor, rows, source->turned_cols, line, part->type, turned);
        const struct weight_matrix from = weights_matrix_of(source);
        err = store->ops->fill(store->self, source->matrix, &from, loader->error);
    }
    free(turned);
    free(line);
    return err;
}
