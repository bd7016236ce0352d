/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of the short convolution and of Mamba-2. */

#include "recurrent_world.h"

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
                             const struct item_plan &plan) {
    const struct item_list list = random_items(rng, plan);
    const struct random_product in =
        random_product(rng, form, list.rows, 3 * width, 3 * width + 4, 1);
    const std::vector<float> taps = random_floats(rng, width * 3, 0.5f);
    const struct slots tails = random_slots(rng, list, 2 * width, is_bf16);
    struct slots want_tails = tails;
    struct cuda_short_conv call = {in.product,
                                   gpu_copy(taps),
                                   states_of(tails, 16),
                                   gpu_copy(list.items),
                                   (uint32_t)list.items.size(),
                                   list.rows,
                                   width,
                                   gpu_take<uint16_t>(list.rows * (width + 4)),
                                   width + 4};
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
                   check_short_case(rng, 128, is_bf16, FORM_BF16_SCALED, mixed) &&
                   check_short_case(rng, 516, is_bf16, FORM_BF16, mixed) &&
                   check_short_case(rng, 4, is_bf16, FORM_INT32, mixed) &&
                   check_short_case(rng, 1024, is_bf16, FORM_BF16, {{200}, true}),
               "short_conv: tokens and prompts, tails in %s", is_bf16 ? "bf16" : "float32");
    struct cuda_short_conv call = {};
    struct error error = {OK, ""};
    call.item_count = 1, call.width = 6;
    report(cuda_short_conv(&call, stream, &error) == ERR_INVALID && error.text[0],
           "short_conv: a width of 6 is refused");
}

/* ---- Mamba-2 ---- */

struct mamba_shape {
    uint32_t heads, groups, head_dim, state_dim;
    bool is_bf16;
    enum product_form form;
};
struct mamba_world {
    struct cuda_mamba call;
    struct random_product z, xbc, dt;
    std::vector<float> conv, bias, dt_bias, a_log, d;
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
    struct cuda_mamba *call = &world.call;
    call->z = world.z.product, call->xbc = world.xbc.product, call->dt = world.dt.product;
    call->conv = gpu_copy(world.conv), call->conv_bias = gpu_copy(world.bias);
    call->dt_bias = gpu_copy(world.dt_bias), call->a_log = gpu_copy(world.a_log);
    call->d = gpu_copy(world.d), call->dt_min = 0.1f, call->dt_max = 2.0f;
    call->items = gpu_copy(list.items), call->item_count = (uint32_t)list.items.size();
    call->rows = list.rows, call->heads = shape.heads, call->groups = shape.groups;
    call->head_dim = shape.head_dim, call->state_dim = shape.state_dim;
    call->y_stride = D + 1, call->y = gpu_take<float>(list.rows * call->y_stride);
    call->room = gpu_take<float>((size_t)list.rows * channels);
    return world;
}

/* A row's y; moves tail and state on. */
static void mamba_row(const struct mamba_world &world, uint32_t row, std::vector<double> *tail,
                      std::vector<double> *state, float *y) {
    const struct cuda_mamba &call = world.call;
    const size_t P = call.head_dim, N = call.state_dim, D = call.heads * P;
    const size_t channels = D + 2 * call.groups * N;
    std::vector<double> xbc(channels);
    for (size_t c = 0; c < channels; c++)
        xbc[c] =
            plain_silu(world.bias[c] + convolve(&world.conv[c * 4], 4,
                                                rounded(world.xbc.values[row * channels + c], true),
                                                tail->data() + c, channels));
    for (size_t h = 0; h < call.heads; h++) {
        const double *b = &xbc[D + h / (call.heads / call.groups) * N], *c = b + call.groups * N;
        double step = log1p(exp(world.dt.values[row * call.heads + h] + world.dt_bias[h]));
        step = fmin(fmax(step, call.dt_min), call.dt_max);
        const double decay = exp(-step * exp((double)world.a_log[h]));
        for (size_t p = h * P; p < (h + 1) * P; p++) {
            double sum = 0, *s = state->data() + p * N;
            for (size_t n = 0; n < N; n++)
                s[n] = decay * s[n] + step * xbc[p] * b[n], sum += s[n] * c[n];
            y[p] = (float)((sum + world.d[h] * xbc[p]) * plain_silu(world.z.values[row * D + p]));
        }
    }
}

static bool check_mamba_case(struct rng *rng, const struct mamba_shape &shape, uint32_t sequences) {
    const struct item_list list = random_items(rng, {std::vector<uint32_t>(sequences, 1), false});
    struct mamba_world world = random_mamba(rng, shape, list);
    const size_t D = (size_t)shape.heads * shape.head_dim;
    const size_t channels = world.conv.size() / 4;
    const struct slots states = random_slots(rng, list, D * shape.state_dim, shape.is_bf16);
    const struct slots tails = random_slots(rng, list, 3 * channels, true);
    struct slots want_states = states, want_tails = tails;
    world.call.states = states_of(states, 16), world.call.tails = states_of(tails, 48);
    MUST_BE_OK(cuda_mamba_decode(&world.call, stream, error));
    gpu_settle();
    std::vector<float> want(list.rows * D, NAN), got(list.rows * D);
    for (const struct cuda_state_item &item : list.items) {
        std::vector<double> state = slot_of(states, item.from), tail = slot_of(tails, item.from);
        mamba_row(world, item.row, &tail, &state, &want[item.row * D]);
        slot_leave(&want_states, item.to, state), slot_leave(&want_tails, item.to, tail);
    }
    const std::vector<float> y = gpu_read(world.call.y, list.rows * world.call.y_stride);
    for (size_t i = 0; i < got.size(); i++) got[i] = y[i / D * world.call.y_stride + i % D];
    const double of_y = differ(got.data(), want.data(), got.size()).relative;
    const double of_states =
        slots_apart(slots_read(world.call.states, list.slots, states.each), want_states);
    const double of_tails =
        slots_apart(slots_read(world.call.tails, list.slots, tails.each), want_tails);
    const bool is_exact = shape.form == FORM_BF16;
    const bool is_well = of_y <= (is_exact ? 2e-6 : 2e-3) && of_tails <= (is_exact ? 0 : 1e-3) &&
                         of_states <= (shape.is_bf16 || !is_exact ? 2.5e-3 : 1e-6);
    if (!is_well || getenv("RECURRENT_SHOW"))
        note("%u heads of %u and %u: y %.2e, states %.2e, tails %.2e", shape.heads, shape.head_dim,
             shape.state_dim, of_y, of_states, of_tails);
    gpu_release();
    return is_well;
}

void check_mamba(struct rng *rng) {
    const struct mamba_shape shapes[] = {
        {48, 1, 64, 128, false, FORM_BF16}, {6, 1, 32, 32, false, FORM_BF16},
        {4, 2, 64, 64, true, FORM_BF16},    {8, 4, 64, 256, false, FORM_BF16_SCALED},
        {2, 1, 128, 128, true, FORM_INT32}, {3, 3, 24, 128, false, FORM_BF16},
    };
    for (const struct mamba_shape &shape : shapes)
        report(check_mamba_case(rng, shape, 1) && check_mamba_case(rng, shape, 5),
               "mamba_decode: %u heads of %u, states of %u in %s, %u groups, %s", shape.heads,
               shape.head_dim, shape.state_dim, shape.is_bf16 ? "bf16" : "float32", shape.groups,
               form_names[shape.form]);
    struct cuda_mamba call = {};
    struct error error = {OK, ""};
    call.item_count = 1, call.heads = 3, call.groups = 2;
    report(cuda_mamba_decode(&call, stream, &error) == ERR_INVALID && error.text[0],
           "mamba_decode: three heads in two groups are refused");
}
