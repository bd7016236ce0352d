/* SPDX-License-Identifier: Apache-2.0 */

/* The orders of rows: a matrix has other neighbours than its file. */

#include "weights/weights_internal.h"

#include <stdlib.h>

/* Row r of the matrix is file row row_order[r]. In the part of a head that turns, elements i and
 * i + half of it turn together. Files have them as neighbours where the converter to GGUF permuted
 * the rows of an interleaved family, or where the family turns neighbours. */
static enum err make_head_order(struct weights_loader *loader) {
    const struct model_config *config = loader->options.config;
    const struct architecture *architecture = config->architecture;
    const bool are_neighbours =
        architecture->pairs_are_neighbours ||
        (architecture->rope_is_interleaved && checkpoint_is_permuted(loader->options.checkpoint));
    const uint32_t turning = config_rotary_dim(config), half = turning / 2;
    const uint32_t rows = config->heads * config->head_dim;
    if (!are_neighbours) return OK;
    loader->row_order = calloc(rows, sizeof *loader->row_order);
    if (!loader->row_order)
        return err_set(loader->error, ERR_LIMIT, "no memory for the order of %u rows", rows);
    for (uint32_t row = 0; row < rows; row++) {
        const uint32_t within = row % config->head_dim;
        loader->row_order[row] =
            within < turning ? row - within + 2 * (within % half) + within / half : row;
    }
    return OK;
}

/* Row r of gate | up is file row halves_order[r], where the file has gate 0, up 0, gate 1, … */
static enum err make_halves_order(struct weights_loader *loader) {
    const uint32_t ffn = loader->options.config->expert_ffn;
    if (!checkpoint_alternates_experts(loader->options.checkpoint)) return OK;
    loader->halves_order = calloc(2 * (size_t)ffn, sizeof *loader->halves_order);
    if (!loader->halves_order)
        return err_set(loader->error, ERR_LIMIT, "no memory for the order of %u rows", 2 * ffn);
    for (uint32_t i = 0; i < 2 * ffn; i++) loader->halves_order[i] = 2 * (i % ffn) + i / ffn;
    return OK;
}

enum err weights_make_row_order(struct weights_loader *loader) {
    enum err err = make_head_order(loader);
    return err == OK ? make_halves_order(loader) : err;
}

/* The rows of q alone, then those of the gate alone: in the file each head has both. */
enum err weights_make_gated_order(struct weights_loader *loader) {
    const struct model_config *config = loader->options.config;
    const uint32_t dim = config->head_dim, rows = config->heads * dim;
    if (loader->gated_order) return OK;
    loader->gated_order = calloc(2 * (size_t)rows, sizeof *loader->gated_order);
    if (!loader->gated_order)
        return err_set(loader->error, ERR_LIMIT, "no memory for the order of %u rows", 2 * rows);
    for (uint32_t row = 0; row < rows; row++) {
        loader->gated_order[row] = row / dim * 2 * dim + row % dim;
        loader->gated_order[rows + row] = loader->gated_order[row] + dim;
    }
    return OK;
}

/* Where a family stores them together, a key head's rows are q, k, and v and gate of its value
 * heads. Rows of the matrix are q of all heads, then k, v and gate. */
static enum err make_delta_order(struct weights_loader *loader) {
    const struct recurrent_sizes *sizes = &loader->options.config->recurrent;
    const uint32_t share = sizes->value_heads / sizes->key_heads * sizes->value_dim;
    const uint32_t widths[] = {sizes->key_dim, sizes->key_dim, share, share};
    const uint32_t each = 2 * sizes->key_dim + 2 * share, rows = each * sizes->key_heads;
    if (loader->delta_order) return OK;
    uint32_t *order = loader->delta_order = calloc(rows, sizeof *order);
    if (!order)
        return err_set(loader->error, ERR_LIMIT, "no memory for the order of %u rows", rows);
    for (uint32_t part = 0, first = 0; part < 4; first += widths[part++])
        for (uint32_t head = 0; head < sizes->key_heads; head++)
            for (uint32_t i = 0; i < widths[part]; i++) *order++ = head * each + first + i;
    return OK;
}

/* A key head's rows are beta of its value heads, then alpha. */
static enum err make_rates_order(struct weights_loader *loader) {
    const struct recurrent_sizes *sizes = &loader->options.config->recurrent;
    const uint32_t heads = sizes->value_heads, share = heads / sizes->key_heads;
    if (loader->rates_order) return OK;
    uint32_t *order = loader->rates_order = calloc(2 * (size_t)heads, sizeof *order);
    if (!order)
        return err_set(loader->error, ERR_LIMIT, "no memory for the order of %u rows", 2 * heads);
    for (uint32_t i = 0; i < heads; i++) {
        order[heads + i] = i / share * 2 * share + i % share;
        order[i] = order[heads + i] + share;
    }
    return OK;
}

enum err weights_make_delta_orders(struct weights_loader *loader) {
    enum err err = make_delta_order(loader);
    return err == OK ? make_rates_order(loader) : err;
}
