/* SPDX-License-Identifier: Apache-2.0 */
#include "recurrent_world.h"

/* ---- slots ---- */

struct cuda_states states_of(const struct slots &slots, size_t padding) {
    const size_t bytes = slots.is_bf16 ? 2 : 4, count = slots.values.size() / slots.each;
    const size_t stride = slots.each * bytes + padding;
    std::vector<uint8_t> raw(count * stride, 0x5a);
    for (size_t i = 0; i < slots.values.size(); i++) {
        uint8_t *to = &raw[i / slots.each * stride + i % slots.each * bytes];
        const uint16_t half = bf16_from_f32(slots.values[i]);
        memcpy(to, slots.is_bf16 ? (const void *)&half : &slots.values[i], bytes);
    }
    return {gpu_copy(raw), stride, slots.is_bf16};
}

struct slots slots_read(const struct cuda_states &states, size_t count, size_t each) {
    struct slots slots = {std::vector<float>(count * each), each, states.is_bf16};
    const size_t bytes = states.is_bf16 ? 2 : 4;
    const std::vector<uint8_t> raw = gpu_read((uint8_t *)states.at, count * states.stride);
    for (size_t i = 0; i < count * each; i++) {
        const uint8_t *from = &raw[i / each * states.stride + i % each * bytes];
        uint16_t half;
        memcpy(&half, from, sizeof half);
        if (states.is_bf16)
            slots.values[i] = bf16_to_f32(half);
        else
            memcpy(&slots.values[i], from, bytes);
        for (size_t p = each * bytes; i % each == each - 1 && p < states.stride; p++)
            if (raw[i / each * states.stride + p] != 0x5a) report(false, "nothing between slots");
    }
    return slots;
}

double slots_apart(const struct slots &got, const struct slots &want) {
    return differ(got.values.data(), want.values.data(), want.values.size()).relative;
}

/* ---- items ---- */

struct item_list random_items(struct rng *rng, const struct item_plan &plan) {
    struct item_list list = {};
    for (uint32_t rows : plan.rows) {
        struct cuda_state_item item = {
            list.rows + (uint32_t)rng_below(rng, 3), rows, 0, 0, CUDA_STATE_NONE, 0};
        item.from = list.slots++;
        const uint64_t kind = rng_below(rng, 3);
        item.to = kind == 0 ? item.from : list.slots++;
        list.is_read.resize(list.slots, false);
        list.is_read[item.from] = kind != 2;
        if (kind == 2) item.from = CUDA_STATE_NONE;
        if (plan.has_saves && rng_below(rng, 2)) {
            item.save = list.slots++;
            item.save_rows = 1 + (uint32_t)rng_below(rng, rows);
        }
        list.rows = item.row + rows;
        list.items.push_back(item);
    }
    list.rows += 2, list.slots += 2;
    list.is_read.resize(list.slots, false);
    return list;
}

struct slots random_slots(struct rng *rng, const struct item_list &list, size_t each,
                          bool is_bf16) {
    struct slots slots = {random_floats(rng, list.slots * each, 0.7f), each, is_bf16};
    for (size_t i = 0; i < slots.values.size(); i++) {
        if (is_bf16) slots.values[i] = bf16_to_f32(bf16_from_f32(slots.values[i]));
        if (!list.is_read[i / each]) slots.values[i] = NAN;
    }
    return slots;
}

std::vector<double> slot_of(const struct slots &slots, uint32_t slot) {
    if (slot == CUDA_STATE_NONE) return std::vector<double>(slots.each, 0.0);
    const auto at = slots.values.begin() + (ptrdiff_t)(slot * slots.each);
    return std::vector<double>(at, at + (ptrdiff_t)slots.each);
}

void slot_leave(struct slots *slots, uint32_t slot, const std::vector<double> &values) {
    for (size_t i = 0; i < slots->each; i++) {
        const float value = (float)values[i];
        slots->values[slot * slots->each + i] =
            slots->is_bf16 ? bf16_to_f32(bf16_from_f32(value)) : value;
    }
}

double plain_silu(double x) {
    return x / (1 + exp(-x));
}

/* ---- Gated DeltaNet ---- */

struct delta_world random_delta(struct rng *rng, const struct delta_shape &shape,
                                const struct item_plan &plan) {
    struct delta_world world = {};
    const uint32_t keys = shape.k_heads * shape.dim, values = shape.v_heads * shape.dim;
    const size_t channels = 2 * keys + values;
    world.list = random_items(rng, plan);
    const size_t rows = world.list.rows;
    world.qkv = random_product(rng, shape.form, rows, channels, channels + 8, 1.0f);
    world.z = random_product(rng, shape.form, rows, values, values, 1.0f);
    world.a = random_product(rng, FORM_BF16, rows, shape.v_heads, shape.v_heads + 1, 1.0f);
    world.b = random_product(rng, FORM_BF16, rows, shape.v_heads, shape.v_heads + 3, 1.0f);
    world.conv = random_floats(rng, channels * 4, 0.5f);
    world.a_log = random_floats(rng, shape.v_heads, 1.5f);
    for (float &value : world.a_log) value -= 3.0f; /* some heads remember for long */
    world.dt_bias = random_floats(rng, shape.v_heads, 1.0f);
    world.norm = random_floats(rng, shape.dim, 1.0f);
    world.states = random_slots(rng, world.list, (size_t)values * shape.dim, shape.is_bf16);
    world.tails = random_slots(rng, world.list, 3 * channels, true);

    struct cuda_delta *call = &world.call;
    call->qkv = world.qkv.product, call->z = world.z.product;
    call->a = world.a.product, call->b = world.b.product;
    call->conv = gpu_copy(world.conv), call->a_log = gpu_copy(world.a_log);
    call->dt_bias = gpu_copy(world.dt_bias), call->norm = gpu_copy(world.norm);
    call->epsilon = 1e-6f;
    call->states = states_of(world.states, 64), call->tails = states_of(world.tails, 32);
    call->items = gpu_copy(world.list.items);
    call->item_count = (uint32_t)world.list.items.size(), call->rows = world.list.rows;
    call->k_heads = shape.k_heads, call->v_heads = shape.v_heads;
    call->k_dim = call->v_dim = shape.dim;
    call->heads_are_tiled = shape.is_tiled;
    call->y_stride = values + 4;
    call->y = gpu_take<uint16_t>(rows * call->y_stride);
    return world;
}

/* q, k, v of a row after the convolution; moves the tail (3, channels) on. */
static std::vector<double> convolved(const struct delta_world &world, size_t row,
                                     std::vector<double> *tail) {
    const size_t channels = world.conv.size() / 4;
    std::vector<double> made(channels);
    for (size_t c = 0; c < channels; c++) {
        double *old = tail->data() + c;
        const double own = bf16_to_f32(bf16_from_f32((float)world.qkv.values[row * channels + c]));
        const float *taps = &world.conv[c * 4];
        made[c] = plain_silu(taps[0] * old[0] + taps[1] * old[channels] +
                             taps[2] * old[2 * channels] + taps[3] * own);
        old[0] = old[channels], old[channels] = old[2 * channels], old[2 * channels] = own;
    }
    return made;
}

static void normalise(double *x, size_t count, double factor) {
    double squares = 0;
    for (size_t i = 0; i < count; i++) squares += x[i] * x[i];
    for (size_t i = 0; i < count; i++) x[i] *= factor / sqrt(squares + 1e-6);
}

/* A value head's row: moves `state` (V, K) on and writes y. */
static void head_row(const struct delta_world &world, size_t row, uint32_t head,
                     const std::vector<double> &qkv, double *state, float *y) {
    const struct cuda_delta &call = world.call;
    const uint32_t group = call.v_heads / call.k_heads;
    const size_t D = call.k_dim, key = call.heads_are_tiled ? head % call.k_heads : head / group;
    const double *q = &qkv[key * D], *k = &qkv[(call.k_heads + key) * D];
    const double *v = &qkv[(2 * call.k_heads + head) * D];
    const double x = world.a.values[row * call.v_heads + head] + world.dt_bias[head];
    const double decay = exp(-exp((double)world.a_log[head]) * log1p(exp(x)));
    const double beta = 1 / (1 + exp(-world.b.values[row * call.v_heads + head]));
    std::vector<double> o(D);
    double squares = 0;
    for (size_t i = 0; i < D; i++) {
        double *s = state + i * D, told = 0;
        for (size_t j = 0; j < D; j++) s[j] *= decay, told += s[j] * k[j];
        for (size_t j = 0; j < D; j++) s[j] += beta * (v[i] - told) * k[j], o[i] += s[j] * q[j];
        squares += o[i] * o[i];
    }
    for (size_t i = 0; i < D; i++) {
        const double z = world.z.values[(row * call.v_heads + head) * D + i];
        y[head * D + i] = (float)(o[i] / sqrt(squares / (double)D + call.epsilon) * world.norm[i] *
                                  plain_silu(z));
    }
}

/* Where a head's state lies in a slot. */
static size_t place_of(const struct cuda_delta &call, uint32_t head) {
    const uint32_t group = call.v_heads / call.k_heads;
    return call.heads_are_tiled ? head % call.k_heads * group + head / call.k_heads : head;
}

struct delta_wants delta_wants(const struct delta_world &world) {
    const struct cuda_delta &call = world.call;
    const size_t width = (size_t)call.v_heads * call.v_dim, D = call.k_dim;
    struct delta_wants wants = {std::vector<float>(call.rows * width, NAN), world.states,
                                world.tails};
    for (const struct cuda_state_item &item : world.list.items) {
        std::vector<double> state = slot_of(world.states, item.from);
        std::vector<double> tail = slot_of(world.tails, item.from);
        for (uint32_t i = 0; i < item.rows; i++) {
            const size_t row = item.row + i;
            std::vector<double> qkv = convolved(world, row, &tail);
            for (uint32_t h = 0; h < call.k_heads; h++) {
                normalise(&qkv[h * D], D, 1 / sqrt((double)D));
                normalise(&qkv[(call.k_heads + h) * D], D, 1);
            }
            for (uint32_t h = 0; h < call.v_heads; h++)
                head_row(world, row, h, qkv, &state[place_of(call, h) * D * D],
                         &wants.y[row * width]);
            if (item.save == CUDA_STATE_NONE || i + 1 != item.save_rows) continue;
            slot_leave(&wants.states, item.save, state), slot_leave(&wants.tails, item.save, tail);
        }
        slot_leave(&wants.states, item.to, state), slot_leave(&wants.tails, item.to, tail);
    }
    return wants;
}
