/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* recurrent_world: random layers of gpu/cuda/recurrent.h with states, and in plain C with double
 * sums what a call has to leave.
 *
 * Memory: arrays of a call lie on the device until gpu_release(). */

#include "rows_of.h"

extern "C" {
#include "gpu/cuda/recurrent.h"
}

/* Slots on the host, as their kernel has them. */
struct slots {
    std::vector<float> values; /* (slots, each) */
    size_t each;
    bool is_bf16;
};
/* On the device, `padding` bytes apart. */
struct cuda_states states_of(const struct slots &slots, size_t padding);
struct slots slots_read(const struct cuda_states &states, size_t count, size_t each);
/* Distance of two slots, Euclidean and relative; infinite where one has a NaN that the other has
 * not. */
double slots_apart(const struct slots &got, const struct slots &want);

/* Sequences: how many rows each has; whether some begin, go on in another slot, or keep a state. */
struct item_plan {
    std::vector<uint32_t> rows;
    bool has_saves;
};
struct item_list {
    std::vector<cuda_state_item> items;
    uint32_t rows;  /* rows in the step; some have no item */
    uint32_t slots; /* that exist */
    std::vector<bool> is_read;
};
struct item_list random_items(struct rng *rng, const struct item_plan &plan);

/* Random states; slots that nobody may read are NaN. */
struct slots random_slots(struct rng *rng, const struct item_list &list, size_t each, bool is_bf16);
std::vector<double> slot_of(const struct slots &slots, uint32_t slot);
void slot_leave(struct slots *slots, uint32_t slot, const std::vector<double> &values);
double plain_silu(double x);

/* Part of check_recurrent(). */
void check_short_conv(struct rng *rng);
void check_mamba(struct rng *rng);

struct delta_shape {
    uint32_t k_heads, v_heads, dim;
    bool is_bf16; /* the states */
    enum product_form form;
    bool is_tiled; /* value head j uses key head j % k_heads */
};
struct delta_world {
    struct cuda_delta call;
    struct item_list list;
    struct random_product qkv, z, a, b;
    std::vector<float> conv, a_log, dt_bias, norm;
    struct slots states, tails; /* before the call */
};
struct delta_world random_delta(struct rng *rng, const struct delta_shape &shape,
                                const struct item_plan &plan);

/* What a call leaves: y of all rows, those without an item NaN, and all slots. */
struct delta_wants {
    std::vector<float> y;
    struct slots states, tails;
};
struct delta_wants delta_wants(const struct delta_world &world);
