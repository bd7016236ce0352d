/* SPDX-License-Identifier: Apache-2.0 */
#include "recurrent_world.h"

#include <algorithm>

/* ---- Gated DeltaNet ---- */

typedef enum err (*delta_call)(const struct cuda_delta *call, struct CUstream_st *stream,
                               struct error *error);

/* The relative distances that are still right. */
struct delta_room {
    double y, states, tails;
};

static std::vector<float> rows_read(const uint16_t *y, size_t rows, size_t width, size_t stride) {
    const std::vector<uint16_t> all = gpu_read(y, rows * stride);
    std::vector<float> values(rows * width);
    for (size_t i = 0; i < values.size(); i++)
        values[i] = bf16_to_f32(all[i / width * stride + i % width]);
    return values;
}

static bool check_delta(struct rng *rng, const struct delta_shape &shape,
                        const struct item_plan &plan, delta_call run,
                        const struct delta_room &room) {
    if (rng_below(rng, check_one_in) != 0) return true;
    struct delta_world world = random_delta(rng, shape, plan);
    const struct cuda_delta &call = world.call;
    const size_t width = (size_t)call.v_heads * call.v_dim;
    MUST_BE_OK(run(&world.call, stream, error));
    gpu_settle();
    const std::vector<float> y = rows_read(call.y, call.rows, width, call.y_stride);
    const struct slots states = slots_read(call.states, world.list.slots, world.states.each);
    const struct slots tails = slots_read(call.tails, world.list.slots, world.tails.each);
    const struct delta_wants wants = delta_wants(world);
    const struct difference of_y = differ(y.data(), wants.y.data(), y.size());
    const double of_states = slots_apart(states, wants.states);
    const double of_tails = slots_apart(tails, wants.tails);
    const bool is_well =
        of_y.relative <= room.y && of_states <= room.states && of_tails <= room.tails;
    if (!is_well || getenv("RECURRENT_SHOW"))
        note("%u and %u heads of %u, %zu items, %u rows: y %.2e (worst %.2e), states %.2e, tails "
             "%.2e",
             shape.k_heads, shape.v_heads, shape.dim, plan.rows.size(), call.rows, of_y.relative,
             of_y.worst, of_states, of_tails);
    gpu_release();
    return is_well;
}

/* y has the rounding of bf16, 1.7e-3 on average; a scaled input may round to its neighbour. */
static struct delta_room decode_room(const struct delta_shape &shape) {
    const bool is_exact = shape.form == FORM_BF16;
    return {4e-3, shape.is_bf16 ? 2.5e-3 : is_exact ? 1e-5 : 2e-3, is_exact ? 0 : 1e-3};
}

static void check_decode(struct rng *rng) {
    const struct delta_shape shapes[] = {
        {1, 1, 128, false, FORM_BF16},       {2, 4, 128, false, FORM_BF16},
        {2, 4, 128, true, FORM_BF16_SCALED}, {1, 3, 128, false, FORM_INT32},
        {1, 8, 128, true, FORM_BF16_BIAS},   {3, 6, 64, false, FORM_BF16},
        {2, 2, 64, true, FORM_BF16},         {1, 8, 64, false, FORM_INT32_BIAS},
        {3, 6, 64, true, FORM_BF16, true},   {2, 6, 128, false, FORM_BF16, true},
    };
    for (const struct delta_shape &shape : shapes)
        report(check_delta(rng, shape, {std::vector<uint32_t>(1 + rng_below(rng, 5), 1), false},
                           cuda_delta_decode, decode_room(shape)),
               "delta_decode: %u and %u heads of %u%s, %s, states in %s", shape.k_heads,
               shape.v_heads, shape.dim, shape.is_tiled ? ", tiled" : "", form_names[shape.form],
               shape.is_bf16 ? "bf16" : "float32");
    bool is_well = true; /* more blocks than are wide */
    for (uint32_t dim : {64u, 128u})
        for (bool is_bf16 : {false, true}) {
            const struct delta_shape shape = {16, 32, dim, is_bf16, FORM_BF16, is_bf16};
            is_well &= check_delta(rng, shape, {std::vector<uint32_t>(17, 1), false},
                                   cuda_delta_decode, decode_room(shape));
        }
    report(is_well, "delta_decode: many sequences");
}

/* Every operand of a product has bf16's rounding, and the output has it twice more. */
static struct delta_room chunk_room(const struct delta_shape &shape) {
    return {1e-2, 1e-2, shape.form == FORM_BF16 ? 0 : 1e-3};
}

static enum err run_chunk(const struct cuda_delta *call, struct CUstream_st *stream,
                          struct error *error) {
    struct cuda_delta with_room = *call;
    with_room.room =
        gpu_take_bytes(cuda_delta_room(call->rows, call->k_heads, call->v_heads, call->k_dim));
    return cuda_delta_chunk(&with_room, stream, error);
}

/* As on a GPU whose blocks have little shared memory. */
static enum err run_chunk_small(const struct cuda_delta *call, struct CUstream_st *stream,
                                struct error *error) {
    struct cuda_delta small = *call;
    small.chunks_max = 1;
    return run_chunk(&small, stream, error);
}

/* Decode beside chunks of a call before it, which writes other rows and states. */
static enum err run_beside(const struct cuda_delta *call, struct CUstream_st *stream,
                           struct error *error) {
    struct cuda_delta chunks = *call, decode = *call;
    std::vector<cuda_state_item> items = gpu_read(call->items, call->item_count);
    std::stable_partition(items.begin(), items.end(),
                          [](const cuda_state_item &item) { return item.rows > 1; });
    while (chunks.item_count > 0 && items[chunks.item_count - 1].rows == 1) chunks.item_count--;
    chunks.items = gpu_copy(items);
    decode.items = chunks.items + chunks.item_count;
    decode.item_count = call->item_count - chunks.item_count;
    decode.is_next = chunks.item_count > 0;
    const enum err code = run_chunk(&chunks, stream, error);
    return code == OK ? cuda_delta_decode(&decode, stream, error) : code;
}

static void check_chunk(struct rng *rng) {
    const struct {
        struct delta_shape shape;
        struct item_plan plan;
    } cases[] = {
        {{1, 1, 128, false, FORM_BF16}, {{64}, false}},
        {{1, 2, 128, false, FORM_BF16}, {{1, 2, 3, 4, 65}, false}},
        {{2, 4, 128, true, FORM_BF16}, {{17, 63}, false}},
        {{1, 1, 128, false, FORM_BF16_SCALED}, {{150, 200, 5}, true}},
        {{1, 3, 128, false, FORM_INT32}, {{30, 1, 1, 77}, true}},
        {{2, 2, 64, false, FORM_BF16}, {{64, 128, 1, 2, 70}, true}},
        {{1, 4, 64, true, FORM_BF16_BIAS}, {{33, 300}, true}},
        {{3, 3, 64, false, FORM_BF16}, {{15, 16, 17, 1, 1, 2, 18, 31}, true}},
        {{2, 4, 128, false, FORM_BF16, true}, {{70, 3}, true}},
    };
    for (const auto &one : cases)
        report(check_delta(rng, one.shape, one.plan, run_chunk, chunk_room(one.shape)),
               "delta_chunk: %u and %u heads of %u, %s, %zu items, states in %s", one.shape.k_heads,
               one.shape.v_heads, one.shape.dim, form_names[one.shape.form], one.plan.rows.size(),
               one.shape.is_bf16 ? "bf16" : "float32");
    bool is_well = true;
    for (const auto &one : cases)
        is_well &= check_delta(rng, one.shape, one.plan, run_chunk_small, chunk_room(one.shape));
    report(is_well, "delta_chunk: one chunk at a time in shared memory");
    is_well = true;
    for (uint32_t dim : {64u, 128u})
        for (bool is_bf16 : {false, true}) {
            const struct delta_shape shape = {2, 4, dim, is_bf16, FORM_BF16_SCALED};
            is_well &= check_delta(rng, shape, {{1, 70, 1, 1, 130, 1, 1}, false}, run_beside,
                                   chunk_room(shape));
        }
    report(is_well, "delta_decode: beside chunks of other sequences");
}

static void check_delta_edges(struct rng *rng) {
    struct error error = {};
    struct delta_world world = random_delta(rng, {1, 2, 64, false, FORM_BF16}, {{1}, false});
    struct cuda_delta call = world.call;
    call.item_count = 0;
    report(cuda_delta_decode(&call, stream, &error) == OK, "delta_decode: no sequence");
    call = world.call, call.k_dim = call.v_dim = 96;
    report(cuda_delta_decode(&call, stream, &error) == ERR_INVALID && error.text[0],
           "delta_decode: heads of 96 are refused");
    call = world.call, call.v_heads = 9;
    report(cuda_delta_decode(&call, stream, &error) == ERR_INVALID,
           "delta_decode: nine value heads per key head are refused");
    call = world.call, call.states.stride += 8;
    report(cuda_delta_decode(&call, stream, &error) == ERR_INVALID,
           "delta_decode: states at no multiple of 16 are refused");
    gpu_release();
}

/* ---- copies ---- */

static bool check_copies(struct rng *rng, uint32_t places, size_t bytes, size_t padding) {
    const uint32_t slots = 9;
    const size_t slot_stride = bytes + padding, place_stride = slots * slot_stride + padding;
    std::vector<uint8_t> before(places * place_stride + 16);
    for (uint8_t &byte : before) byte = (uint8_t)rng_next(rng);
    const std::vector<cuda_state_copy> copies = {{0, 3}, {7, 1}, {CUDA_STATE_NONE, 8}, {0, 5}};
    struct cuda_state_copies call = {
        gpu_copy(before), place_stride,           slot_stride, bytes, places,
        gpu_copy(copies), (uint32_t)copies.size()};
    MUST_BE_OK(cuda_copy_states(&call, stream, error));
    gpu_settle();
    std::vector<uint8_t> wanted = before;
    for (uint32_t place = 0; place < places; place++)
        for (const struct cuda_state_copy &copy : copies) {
            uint8_t *to = &wanted[place * place_stride + copy.to * slot_stride];
            if (copy.from == CUDA_STATE_NONE)
                memset(to, 0, bytes);
            else
                memcpy(to, &before[place * place_stride + copy.from * slot_stride], bytes);
        }
    const bool is_well = gpu_read((uint8_t *)call.at, before.size()) == wanted;
    gpu_release();
    return is_well;
}

static void check_state_copy(struct rng *rng) {
    struct error error = {};
    report(check_copies(rng, 1, 16, 0) && check_copies(rng, 3, 16384, 16) &&
               check_copies(rng, 2, 16400, 0) && check_copies(rng, 5, 160000, 48) &&
               check_copies(rng, 0, 64, 0),
           "copy_states: slots of all places become others or zeros");
    struct cuda_state_copies call = {NULL, 64, 40, 32, 1, NULL, 0};
    report(cuda_copy_states(&call, stream, &error) == ERR_INVALID && error.text[0],
           "copy_states: distances that are not multiples of 16 are refused");
    call.slot_stride = 48;
    report(cuda_copy_states(&call, stream, &error) == OK, "copy_states: no copies");
}

void check_recurrent(void) {
    struct rng rng = random_of("recurrent");
    check_decode(&rng);
    check_chunk(&rng);
    check_delta_edges(&rng);
    check_state_copy(&rng);
    check_short_conv(&rng);
    check_mamba(&rng);
}
