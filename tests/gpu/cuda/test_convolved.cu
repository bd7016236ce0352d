/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of the short convolution and of Mamba-2. */

#include "recurrent_world.h"

#include <algorithm>

static double rounded(double value, bool is_bf16) {
    return is_bf16 ? bf16_to_f32(bf16_from_f32((float)value)) : value;
}

/* One channel's convolution; moves its inputs, `apart` from each other, on. */
static double convolve(const float *taps, int count, double own, double *old, size_t apart) {
    double sum = taps[count - 1] * own;
    for (int i = 0; i + 1 < count; i++) sum += taps[i] * old[i * apart];
    for (int i = 0; i + 2 < count; i++) old[i * apart] = old[(i + 1) * apart];
    old[(size_t)(count - 2) * apart] = own;
    return sum;
}

/* ---- short convolution ---- */

static bool check_short_case(struct rng *rng, uint32_t width, bool is_bf16, enum product_form form,
                             const struct item_plan &plan, bool has_decoded = true) {
    const struct item_list list = random_items(rng, plan);
    std::vector<struct cuda_state_item> items = list.items;
    const auto is_alone = [](const struct cuda_state_item &item) {
        return item.rows == 1 && item.save == CUDA_STATE_NONE;
    };
    std::stable_partition(items.begin(), items.end(), is_alone);
    const struct random_product in =
        random_product(rng, form, list.rows, 3 * width, 3 * width + 4, 1);
    const std::vector<float> taps = random_floats(rng, width * 3, 0.5f);
    const struct slots tails = random_slots(rng, list, 2 * width, is_bf16);
    struct slots want_tails = tails;
    struct cuda_short_conv call = {in.product,
                                   gpu_copy(taps),
                                   states_of(tails, 16),
                                   gpu_copy(items),
                                   (uint32_t)items.size(),
                                   list.rows,
                                   width,
                                   gpu_take<uint16_t>(list.rows * (width + 4)),
                                   width + 4};
    if (has_decoded)
        call.decoded_count = (uint32_t)std::count_if(items.begin(), items.end(), is_alone);
    MUST_BE_OK(cuda_short_conv(&call, stream, error));
    gpu_settle();
    std::vector<float> want(list.rows * width, NAN), got(list.rows * width);
    for (const struct cuda_state_item &item : list.items) {
        std::vector<double> tail = slot_of(tails, item.from);
        for (uint32_t row = item.row; row < item.row + item.rows; row++) {
            const double *at = &in.values[row * 3 * (size_t)width];
            for (uint32_t c = 0; c < width; c++)
                want[row * width + c] =
                    (float)(at[width + c] * convolve(&taps[c * 3], 3,
                                                     rounded(at[c] * at[2 * width + c], is_bf16),
                                                     &tail[c], width));
            if (item.save != CUDA_STATE_NONE && row + 1 == item.row + item.save_rows)
                slot_leave(&want_tails, item.save, tail);
        }
        slot_leave(&want_tails, item.to, tail);
    }
    const std::vector<uint16_t> y = gpu_read(call.y, list.rows * call.y_stride);
    for (size_t i = 0; i < got.size(); i++)
        got[i] = bf16_to_f32(y[i / width * call.y_stride + i % width]);
    const double of_tails = slots_apart(slots_read(call.tails, list.slots, 2 * width), want_tails);
    const double of_y = differ(got.data(), want.data(), got.size()).relative;
    const bool is_well = of_y <= 4e-3 && of_tails <= (is_bf16 ? 1e-3 : 1e-6);
    if (!is_well) note("width %u, %u rows: y %.2e, tails %.2e", width, list.rows, of_y, of_tails);
    gpu_release();
    return is_well;
}

void check_short_conv(struct rng *rng) {
    const struct item_plan single = {{1, 1, 1, 1, 1}, false};
    const struct item_plan mixed = {{1, 2, 3, 16, 1, 17, 40, 13, 2, 5}, true};
    for (bool is_bf16 : {false, true})
        report(check_short_case(rng, 2048, is_bf16, FORM_BF16, single) &&
                   check_short_case(rng, 2048, is_bf16, FORM_INT32, single, false) &&
                   check_short_case(rng, 516, is_bf16, FORM_BF16, mixed, false) &&
                   check_short_case(rng, 128, is_bf16, FORM_BF16_SCALED, mixed) &&
                   check_short_case(rng, 516, is_bf16, FORM_BF16, mixed) &&
                   check_short_case(rng, 4, is_bf16, FORM_INT32, mixed) &&
                   check_short_case(rng, 1024, is_bf16, FORM_BF16, {{200}, true}),
               "short_conv: tokens and prompts, tails in %s", is_bf16 ? "bf16" : "float32");
    struct cuda_short_conv call = {};
    struct error error = {};
    call.item_count = 1, call.width = 6;
    report(cuda_short_conv(&call, stream, &error) == ERR_INVALID && error.text[0],
           "short_conv: a width of 6 is refused");
}

/* ---- Mamba-2 ---- */

enum mamba_end { GATE_FIRST, NORM_FIRST, NO_NORM };
struct mamba_shape {
    uint32_t heads, groups, head_dim, state_dim;
    bool is_bf16;
    enum product_form form;
    enum mamba_end end;
};
struct mamba_world {
    struct cuda_mamba call;
    struct random_product z, xbc, dt;
    std::vector<float> conv, bias, dt_bias, a_log, d, norm;
};

static struct mamba_world random_mamba(struct rng *rng, const struct mamba_shape &shape,
                                       const struct item_list &list) {
    struct mamba_world world = {};
    const uint32_t D = shape.heads * shape.head_dim;
    const uint32_t channels = D + 2 * shape.groups * shape.state_dim;
    world.z = random_product(rng, shape.form, list.rows, D, D + 4, 1.0f);
    world.xbc = random_product(rng, shape.form, list.rows, channels, channels + 8, 1.0f);
    world.dt = random_product(rng, FORM_BF16, list.rows, shape.heads, shape.heads + 1, 1.0f);
    world.conv = random_floats(rng, channels * 4, 0.5f),
    world.bias = random_floats(rng, channels, 0.3f);
    world.dt_bias = random_floats(rng, shape.heads, 1.0f);
    world.a_log = random_floats(rng, shape.heads, 1.0f),
    world.d = random_floats(rng, shape.heads, 1.0f);
    world.norm = random_floats(rng, D, 1.0f);
    struct cuda_mamba *call = &world.call;
    call->z = world.z.product, call->xbc = world.xbc.product, call->dt = world.dt.product;
    call->conv = gpu_copy(world.conv), call->conv_bias = gpu_copy(world.bias);
    call->dt_bias = gpu_copy(world.dt_bias), call->a_log = gpu_copy(world.a_log);
    call->d = gpu_copy(world.d), call->dt_min = 0.1f, call->dt_max = 2.0f;
    call->norm = shape.end == NO_NORM ? NULL : gpu_copy(world.norm);
    call->norm_is_first = shape.end == NORM_FIRST, call->epsilon = 1e-5f;
    call->dt_factor = 0.75f, call->z_factor = 1.25f, call->y_factor = 0.5f;
    call->rows = list.rows, call->heads = shape.heads, call->groups = shape.groups;
    call->head_dim = shape.head_dim, call->state_dim = shape.state_dim;
    call->y_stride = D + 4, call->y = gpu_take<uint16_t>(list.rows * call->y_stride);
    call->room = (float *)gpu_take_bytes(
        cuda_mamba_room(list.rows, shape.heads, shape.groups, shape.head_dim, shape.state_dim));
    return world;
}

/* The items that are decoded come first. */
static void take_items(struct cuda_mamba *call, std::vector<cuda_state_item> items) {
    const auto is_decoded = [](const cuda_state_item &item) {
        return item.rows == 1 && item.save == CUDA_STATE_NONE;
    };
    std::stable_partition(items.begin(), items.end(), is_decoded);
    call->decoded_count = (uint32_t)std::count_if(items.begin(), items.end(), is_decoded);
    call->items = gpu_copy(items), call->item_count = (uint32_t)items.size();
}

/* Gates and norms what the states of a row left. */
static void end_row(const struct mamba_world &world, uint32_t row, const std::vector<double> &o,
                    float *y) {
    const struct cuda_mamba &call = world.call;
    const size_t D = o.size(), width = D / call.groups;
    for (size_t first = 0; first < D; first += width) {
        double squares = 0;
        std::vector<double> gates(width), v(o.begin() + first, o.begin() + first + width);
        for (size_t i = 0; i < width; i++) {
            gates[i] = plain_silu(call.z_factor * world.z.values[row * D + first + i]);
            if (!call.norm_is_first) v[i] *= gates[i];
            squares += v[i] * v[i];
        }
        for (size_t i = 0; i < width; i++) {
            double value = v[i] * call.y_factor * (call.norm_is_first ? gates[i] : 1);
            if (call.norm)
                value *= world.norm[first + i] / sqrt(squares / (double)width + call.epsilon);
            y[first + i] = (float)value;
        }
    }
}

/* A row's y; moves tail and state on. */
static void mamba_row(const struct mamba_world &world, uint32_t row, std::vector<double> *tail,
                      std::vector<double> *state, float *y) {
    const struct cuda_mamba &call = world.call;
    const size_t P = call.head_dim, N = call.state_dim, D = call.heads * P;
    const size_t channels = D + 2 * call.groups * N;
    std::vector<double> xbc(channels), o(D);
    for (size_t c = 0; c < channels; c++)
        xbc[c] =
            plain_silu(world.bias[c] + convolve(&world.conv[c * 4], 4,
                                                rounded(world.xbc.values[row * channels + c], true),
                                                tail->data() + c, channels));
    for (size_t h = 0; h < call.heads; h++) {
        const double *b = &xbc[D + h / (call.heads / call.groups) * N], *c = b + call.groups * N;
        const double dt = call.dt_factor * world.dt.values[row * call.heads + h];
        const double step = fmin(fmax(log1p(exp(dt + world.dt_bias[h])), call.dt_min), call.dt_max);
        const double decay = exp(-step * exp((double)world.a_log[h]));
        for (size_t p = h * P; p < (h + 1) * P; p++) {
            double sum = 0, *s = state->data() + p * N;
            for (size_t n = 0; n < N; n++)
                s[n] = decay * s[n] + step * xbc[p] * b[n], sum += s[n] * c[n];
            o[p] = sum + world.d[h] * xbc[p];
        }
    }
    end_row(world, row, o, y);
}

/* All slots behind the call, and y, whose rows without an item anyone may have written. */
struct mamba_wants {
    std::vector<float> y;
    struct slots states, tails;
    std::vector<bool> is_told; /* by row */
};
static struct mamba_wants mamba_wants(const struct mamba_world &world, const struct item_list &list,
                                      const struct slots &states, const struct slots &tails) {
    const size_t D = (size_t)world.call.heads * world.call.head_dim;
    struct mamba_wants wants = {std::vector<float>(list.rows * D), states, tails,
                                std::vector<bool>(list.rows)};
    for (const struct cuda_state_item &item : list.items) {
        std::vector<double> state = slot_of(states, item.from), tail = slot_of(tails, item.from);
        for (uint32_t row = item.row; row < item.row + item.rows; row++) {
            mamba_row(world, row, &tail, &state, &wants.y[row * D]);
            wants.is_told[row] = true;
            if (item.save == CUDA_STATE_NONE || row + 1 != item.row + item.save_rows) continue;
            slot_leave(&wants.states, item.save, state), slot_leave(&wants.tails, item.save, tail);
        }
        slot_leave(&wants.states, item.to, state), slot_leave(&wants.tails, item.to, tail);
    }
    return wants;
}

static bool check_mamba_case(struct rng *rng, const struct mamba_shape &shape,
                             const struct item_plan &plan) {
    if (rng_below(rng, check_one_in) != 0) return true;
    const struct item_list list = random_items(rng, plan);
    struct mamba_world world = random_mamba(rng, shape, list);
    const size_t D = (size_t)shape.heads * shape.head_dim;
    const size_t channels = world.conv.size() / 4;
    const struct slots states = random_slots(rng, list, D * shape.state_dim, shape.is_bf16);
    const struct slots tails = random_slots(rng, list, 3 * channels, true);
    world.call.states = states_of(states, 16), world.call.tails = states_of(tails, 48);
    take_items(&world.call, list.items);
    MUST_BE_OK(cuda_mamba(&world.call, stream, error));
    gpu_settle();
    const struct mamba_wants wants = mamba_wants(world, list, states, tails);
    std::vector<float> got(list.rows * D);
    const std::vector<uint16_t> y = gpu_read(world.call.y, list.rows * world.call.y_stride);
    for (size_t i = 0; i < got.size(); i++)
        if (wants.is_told[i / D]) got[i] = bf16_to_f32(y[i / D * world.call.y_stride + i % D]);
    const double of_y = differ(got.data(), wants.y.data(), got.size()).relative;
    const double of_states =
        slots_apart(slots_read(world.call.states, list.slots, states.each), wants.states);
    const double of_tails =
        slots_apart(slots_read(world.call.tails, list.slots, tails.each), wants.tails);
    const bool is_exact = shape.form == FORM_BF16;
    /* y has the rounding of bf16, 1.7e-3 on average. */
    const bool is_well = of_y <= 5e-3 && of_tails <= (is_exact ? 0 : 1e-3) &&
                         of_states <= (shape.is_bf16 || !is_exact ? 2.5e-3 : 2e-6);
    if (!is_well || getenv("RECURRENT_SHOW"))
        note("%u heads of %u and %u, %u rows: y %.2e, states %.2e, tails %.2e", shape.heads,
             shape.head_dim, shape.state_dim, list.rows, of_y, of_states, of_tails);
    gpu_release();
    return is_well;
}

static void check_mamba_edges(void) {
    struct cuda_mamba call = {};
    struct error error = {};
    report(cuda_mamba_supports(3, 2, 64, 128, &error) == ERR_INVALID && error.text[0],
           "mamba: three heads in two groups are refused");
    report(cuda_mamba_supports(4, 1, 6, 128, &error) == ERR_INVALID &&
               cuda_mamba_supports(4, 1, 64, 96, &error) == ERR_INVALID &&
               cuda_mamba_supports(4, 0, 64, 128, &error) == ERR_INVALID,
           "mamba: heads of 6, states of 96 and no group are refused");
    call.heads = call.groups = 1, call.head_dim = 4, call.state_dim = 16;
    report(cuda_mamba(&call, stream, &error) == ERR_INVALID, "mamba: no addresses are refused");
}

void check_mamba(struct rng *rng) {
    const struct mamba_shape shapes[] = {
        {48, 1, 64, 128, false, FORM_BF16, GATE_FIRST}, {6, 1, 32, 32, false, FORM_BF16, NO_NORM},
        {4, 2, 64, 64, true, FORM_BF16, NORM_FIRST},    {2, 2, 64, 256, false, FORM_BF16_SCALED},
        {2, 1, 128, 128, true, FORM_INT32, GATE_FIRST}, {3, 3, 24, 128, false, FORM_BF16, NO_NORM},
        {6, 2, 8, 16, false, FORM_BF16_BIAS},           {4, 2, 80, 128, false, FORM_BF16},
        {3, 1, 24, 256, true, FORM_BF16, NORM_FIRST},
    };
    for (const struct mamba_shape &shape : shapes) {
        const bool is_small = shape.heads < 48;
        report(check_mamba_case(rng, shape, {{1}, false}) &&
                   check_mamba_case(rng, shape, {{1, 1, 1, 1, 1}, false}),
               "mamba: tokens, %u heads of %u, states of %u in %s, %u groups, %s", shape.heads,
               shape.head_dim, shape.state_dim, shape.is_bf16 ? "bf16" : "float32", shape.groups,
               form_names[shape.form]);
        report(check_mamba_case(rng, shape, {{is_small ? 70u : 18u}, true}) &&
                   (!is_small || check_mamba_case(rng, shape, {{1, 16, 2, 1, 33, 1, 17}, true})),
               "mamba: prompts, %u heads of %u, states of %u in %s, %u groups, %s", shape.heads,
               shape.head_dim, shape.state_dim, shape.is_bf16 ? "bf16" : "float32", shape.groups,
               form_names[shape.form]);
    }
    bool is_well = true; /* more blocks than have less of x */
    for (uint32_t state_dim : {64u, 128u, 256u})
        for (bool is_bf16 : {false, true})
            is_well &= check_mamba_case(rng, {34, 2, 36, state_dim, is_bf16, FORM_BF16},
                                        {{3, 1, 17, 2, 1, 5, 2, 2, 2, 2, 2}, true});
    report(is_well, "mamba: prompts of many sequences");
    check_mamba_edges();
}
