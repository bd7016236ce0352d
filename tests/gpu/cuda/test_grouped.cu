/* SPDX-License-Identifier: Apache-2.0 */

/* Weights as codes in groups: filled and unpacked, and their products with few and many rows,
 * against a plain product in double. */

#include "grouped_world.h"

/* Whole and broken blocks of 32 lines, tiles of 64 and 128, stages of two groups; more groups than
 * the warps of a block have in one turn. */
static const struct {
    uint32_t lines, inputs;
} shapes[] = {{1, 32},   {31, 64},  {32, 96},   {33, 512},  {64, 160},
              {65, 256}, {130, 32}, {127, 768}, {300, 544}, {257, 1088}};
static const uint32_t rows_of_cases[] = {0, 1, 2, 7, 9, 16, 17, 33, 64, 65, 129, 300};

static const enum tensor_type types[] = {TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_Q4_K, TENSOR_Q5_0,
                                         TENSOR_Q6_K, TENSOR_INT4, TENSOR_MXFP4};

static bool has_many(enum tensor_type type) {
    return grouping_of(type) == GROUPED_MINIMA || grouping_of(type) == GROUPED_ZEROS;
}

/* Weights as bf16 are those of the file, bit for bit but for the scales of K types. */
static bool are_unpacked(struct rng *rng, const struct grouped_case *is) {
    const struct grouped_made made = grouped_make(rng, is);
    const size_t count = (size_t)is->lines * is->inputs;
    const struct cuda_grouped_unpack call = {made.weights, gpu_take<uint16_t>(count)};
    MUST_BE_OK(cuda_grouped_unpack(&call, stream, error));
    gpu_settle();
    const std::vector<uint16_t> got = gpu_read(call.to, count);
    bool is_well = true;
    for (size_t i = 0; i < count && is_well; i++) {
        const double off = fabs((double)bf16_to_f32(got[i]) - made.values[i]);
        const float wanted = bf16_to_f32(bf16_from_f32(made.values[i])); /* 0 may have a sign */
        is_well = bf16_to_f32(got[i]) == wanted ||
                  (grouped_rounds(is->type) && off <= fabs(made.values[i]) * 0x1p-8 + made.room);
        if (!is_well)
            note("%s, line %zu, input %zu: %g, not %g", tensor_type_name(is->type), i / is->inputs,
                 i % is->inputs, bf16_to_f32(got[i]), made.values[i]);
    }
    gpu_release();
    return is_well;
}

/* Rows of an embedding: lines, tokens named and last sampled, with positions and without. */
static bool is_embedded(struct rng *rng, const struct grouped_case *is) {
    const struct grouped_made made = grouped_make(rng, is);
    const uint32_t rows = 9, slots = 3, places = 5;
    const size_t stride = is->inputs + 4;
    std::vector<int32_t> tokens(rows), last(slots), ids(rows);
    std::vector<uint32_t> at(rows);
    std::vector<float> positions((size_t)places * is->inputs);
    for (int32_t &token : last) token = (int32_t)rng_below(rng, is->lines);
    for (float &value : positions) value = (float)rng_below(rng, 64) / 16;
    for (uint32_t i = 0; i < rows; i++) {
        const int32_t named = (int32_t)rng_below(rng, is->lines);
        tokens[i] = rng_below(rng, 2) ? named : ~(int32_t)rng_below(rng, slots);
        ids[i] = tokens[i] < 0 ? last[~tokens[i]] : tokens[i];
        at[i] = (uint32_t)rng_below(rng, places);
    }
    struct cuda_grouped_embed call = {made.weights, {}};
    call.rows.tokens = gpu_copy(tokens), call.rows.last_token = gpu_copy(last);
    call.rows.scale = 2.5f, call.rows.width = is->inputs, call.rows.rows = rows;
    call.rows.x = gpu_take<float>(rows * stride), call.rows.x_stride = stride;
    const bool has_positions = rng_below(rng, 2);
    if (has_positions) call.rows.positions = gpu_copy(positions), call.rows.places = gpu_copy(at);
    MUST_BE_OK(cuda_grouped_embed(&call, stream, error));
    gpu_settle();
    const std::vector<float> got = gpu_read(call.rows.x, rows * stride);
    bool is_well = true;
    for (uint32_t row = 0; row < rows && is_well; row++)
        for (uint32_t i = 0; i < is->inputs && is_well; i++) {
            const double want = made.values[(size_t)ids[row] * is->inputs + i] * 2.5 +
                                (has_positions ? positions[at[row] * is->inputs + i] : 0);
            const double off = fabs((double)got[row * stride + i] - want);
            const double rounding = grouped_rounds(is->type) ? 0x1p-11 : 0x1p-21;
            is_well = off <= fabs(want) * rounding + 2.5 * made.room;
            if (!is_well)
                note("%s, token %d, input %u: %g, not %g", tensor_type_name(is->type), ids[row], i,
                     got[row * stride + i], want);
        }
    gpu_release();
    return is_well;
}

/* The largest distance that rounding allows: bf16 halves its last bit, 2^-8 of a number, and scales
 * of K types are off by 2^-12 of what may mostly cancel. */
static double room_of(const struct grouped_case *is, const struct grouped_made &made,
                      const std::vector<float> &in, const std::vector<float> &want) {
    double squares = 0, rows = 0;
    for (float value : want) squares += (double)value * value;
    for (float value : in) rows += (double)value * value;
    const double most = made.room * 0x1p9; /* the largest weight */
    return 0x1.04p-8 * sqrt(squares) + 0x1p-11 * most * sqrt(rows * is->lines);
}

static bool is_near(const struct grouped_case *is, const struct grouped_made &made,
                    const std::vector<float> &in, const uint16_t *y, size_t stride,
                    const char *what) {
    const std::vector<float> want = grouped_want(made, is, in);
    const std::vector<float> all = floats_of_bf16(gpu_read(y, (size_t)is->rows * stride));
    double squares = 0;
    for (size_t i = 0; i < want.size(); i++) {
        const double off = (double)all[i / is->lines * stride + i % is->lines] - want[i];
        squares += off * off;
    }
    const double room = room_of(is, made, in, want);
    if (sqrt(squares) <= room) return true; /* not if a number is NaN */
    note("%s, %s, %u rows of %u x %u: off by %g on the whole, of which %g are rounding", what,
         tensor_type_name(is->type), is->rows, is->lines, is->inputs, sqrt(squares), room);
    return false;
}

/* Lines past the last stay as they were. */
static bool is_untouched(const struct grouped_case *is, const uint16_t *y, size_t stride) {
    const std::vector<uint16_t> all = gpu_read(y, (size_t)is->rows * stride);
    for (size_t i = 0; i < all.size(); i++)
        if (i % stride >= is->lines && all[i] != 0xffff) return false;
    return true;
}

/* Blocks of a product: tiles that one has alone, and tiles with many. */
static uint32_t some_blocks(struct rng *rng) {
    const uint32_t all[] = {1, 2, 3, 7, 16, (uint32_t)card.multiProcessorCount};
    return all[rng_below(rng, sizeof all / sizeof *all)];
}

typedef enum err few_kernel(const struct cuda_grouped_few *call, struct CUstream_st *stream,
                            struct error *error);

static bool check_few(struct rng *rng, const struct grouped_case *is, few_kernel *kernel) {
    const struct grouped_made made = grouped_make(rng, is);
    const size_t stride = (is->lines + 7) / 8 * 8 + 8;
    const std::vector<float> in = grouped_rows(rng, is);
    const struct cuda_grouped_few call = {made.weights,
                                          is->rows,
                                          gpu_copy(bf16_of(in)),
                                          is->inputs,
                                          gpu_take<uint16_t>(is->rows * stride),
                                          stride,
                                          grouped_room(is->lines, some_blocks(rng))};
    MUST_BE_OK(kernel(&call, stream, error));
    gpu_settle();
    const size_t tiles = (is->lines + GROUPED_TILE - 1) / GROUPED_TILE;
    const bool is_well = is_near(is, made, in, call.y, stride, "few") &&
                         is_untouched(is, call.y, stride) &&
                         gpu_read(call.room.counts, tiles) == std::vector<uint32_t>(tiles);
    gpu_release();
    return is_well;
}

static bool check_many(struct rng *rng, const struct grouped_case *is) {
    const struct grouped_made made = grouped_make(rng, is);
    const size_t stride = (is->lines + 7) / 8 * 8 + 8, groups = is->inputs / 32;
    const uint32_t most = (is->rows + 1) / 2 * 2 + 2;
    std::vector<float> in = grouped_rows(rng, is);
    const struct cuda_grouped_rows rows = {gpu_take_bytes(groups * most * 32),
                                           gpu_take_bytes(groups * most * 8), most};
    const struct cuda_grouped_quantise quantise = {gpu_copy(bf16_of(in)), is->inputs, is->inputs,
                                                   is->rows, rows};
    const struct cuda_grouped_many call = {made.weights, is->rows, rows,
                                           gpu_take<uint16_t>(is->rows * stride), stride};
    MUST_BE_OK(cuda_grouped_quantise(&quantise, stream, error));
    MUST_BE_OK(cuda_grouped_many(&call, stream, error));
    gpu_settle();
    const bool has_codes = grouped_are_codes(is, rows, &in); /* now those that the codes mean */
    const bool is_well = has_codes && is_near(is, made, in, call.y, stride, "many") &&
                         is_untouched(is, call.y, stride);
    gpu_release();
    return is_well;
}

/* More tiles than the GPU has blocks. */
static void check_wide(struct rng *rng) {
    const uint32_t lines = 300 * (uint32_t)card.multiProcessorCount + 33;
    bool is_well = true;
    for (enum tensor_type type : {TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_MXFP4})
        for (uint32_t rows : {5u, 13u, 20u}) {
            const struct grouped_case is = {type, lines, 192, rows};
            is_well &= check_few(rng, &is, cuda_grouped_few);
            is_well &= check_few(rng, &is, cuda_grouped_pieces);
        }
    report(is_well, "grouped: many lines with few rows");
}

/* A row is what it is alone, whatever rows stand beside it. */
static void check_rows_alone(struct rng *rng, few_kernel *kernel, const char *name) {
    const struct grouped_case is = {TENSOR_Q4_K, 130, 512, 300};
    const struct grouped_made made = grouped_make(rng, &is);
    const std::vector<float> in = grouped_rows(rng, &is);
    uint16_t *rows = gpu_copy(bf16_of(in)), *all = gpu_take<uint16_t>(300 * 136);
    uint16_t *one = gpu_take<uint16_t>(136);
    struct cuda_grouped_few call = {made.weights, 300, rows, 512, all, 136, grouped_room(130, 3)};
    MUST_BE_OK(kernel(&call, stream, error));
    call.rows = 1, call.in = rows + 277 * 512, call.y = one;
    MUST_BE_OK(kernel(&call, stream, error));
    gpu_settle();
    report(gpu_read(all + 277 * 136, 130) == gpu_read(one, 130),
           "grouped: a row alone has the same bits, %s", name);
    gpu_release();
}

/* A product of drawn shape: fewer tiles than blocks, as many, or more; in either case most pieces
 * begin and end inside a tile. */
static struct grouped_case case_of_pieces(struct rng *rng, enum tensor_type type, uint32_t blocks) {
    const uint32_t step = tensor_type_block_elements(type) > 64 ? 256 : 64;
    const uint32_t all[] = {(blocks + 1) / 2, blocks, blocks + 1, 2 * blocks + blocks / 3};
    const uint32_t tiles = all[rng_below(rng, 4)];
    return {type, tiles * GROUPED_TILE - (uint32_t)rng_below(rng, GROUPED_TILE),
            step * (1 + (uint32_t)rng_below(rng, blocks > 16 ? 1 : 512 / step)),
            1 + (uint32_t)rng_below(rng, 32)};
}

/* The same product many times, with another one in the same room between: the same bits, and zeros
 * as counts. */
static bool is_same_again(struct rng *rng, enum tensor_type type, uint32_t blocks, uint32_t runs) {
    const enum tensor_type others[] = {TENSOR_Q4_K, TENSOR_INT4, TENSOR_Q6_K, TENSOR_MXFP4};
    struct grouped_case cases[2] = {case_of_pieces(rng, type, blocks),
                                    case_of_pieces(rng, others[rng_below(rng, 4)], blocks)};
    /* As many launches of both: the emulator, which has the shapes of small GPUs by turns
     * (emulated/gpu/cuda/launch.cuh), then has the same ones in each run. */
    cases[1].rows = cases[0].rows;
    const uint32_t lines = std::max(cases[0].lines, cases[1].lines);
    const size_t tiles = (lines + GROUPED_TILE - 1) / GROUPED_TILE;
    const struct cuda_grouped_room room = grouped_room(lines, blocks);
    struct cuda_grouped_few calls[2];
    std::vector<uint16_t *> results[2];
    for (int i = 0; i < 2; i++) {
        const size_t stride = (cases[i].lines + 7) / 8 * 8;
        const struct grouped_made made = grouped_make(rng, &cases[i]);
        calls[i] = {made.weights,
                    cases[i].rows,
                    gpu_copy(bf16_of(grouped_rows(rng, &cases[i]))),
                    cases[i].inputs,
                    NULL,
                    stride,
                    room};
        for (uint32_t run = 0; run < runs; run++)
            results[i].push_back(gpu_take<uint16_t>(cases[i].rows * stride));
    }
    for (uint32_t run = 0; run < runs; run++)
        for (int i = 0; i < 2; i++) {
            calls[i].y = results[i][run];
            MUST_BE_OK(cuda_grouped_pieces(&calls[i], stream, error));
        }
    gpu_settle();
    bool is_well = gpu_read(room.counts, tiles) == std::vector<uint32_t>(tiles);
    if (!is_well) note("%u blocks leave counts in the room", blocks);
    for (int i = 0; i < 2; i++) {
        const size_t count = calls[i].rows * calls[i].y_stride;
        const std::vector<uint16_t> first = gpu_read(results[i][0], count);
        for (uint32_t run = 1; run < runs; run++) {
            if (gpu_read(results[i][run], count) == first) continue;
            note("%s, %u rows of %u x %u by %u blocks: other bits in run %u",
                 tensor_type_name(cases[i].type), cases[i].rows, cases[i].lines, cases[i].inputs,
                 blocks, run);
            is_well = false;
        }
    }
    gpu_release();
    return is_well;
}

/* check_one_in: of the runs, too. */
static void check_same(struct rng *rng) {
    const uint32_t runs = std::max(8u, 50 / (uint32_t)check_one_in);
    const uint32_t all[] = {2, 3, 7, (uint32_t)card.multiProcessorCount};
    bool is_well = true;
    for (enum tensor_type type : {TENSOR_Q4_K, TENSOR_Q4_0, TENSOR_MXFP4, TENSOR_Q6_K})
        for (uint32_t blocks : all)
            if (rng_below(rng, check_one_in) == 0)
                is_well &= is_same_again(rng, type, blocks, runs);
    report(is_well, "grouped: pieces leave the same bits each time, and zeros as counts");
}

static void check_refusals(struct rng *rng) {
    struct error error;
    const struct grouped_case is = {TENSOR_Q6_K, 32, 256, 1};
    const struct grouped_made made = grouped_make(rng, &is);
    struct cuda_grouped_many many = {made.weights, 1, {}, NULL, 32};
    struct cuda_grouped_few few = {made.weights, 1, NULL, 12, NULL, 32, grouped_room(32, 1)};
    report(cuda_grouped_many(&many, stream, &error) == ERR_INVALID,
           "grouped: weights of 8 bits with many rows are refused");
    report(cuda_grouped_few(&few, stream, &error) == ERR_INVALID,
           "grouped: rows that are no multiple of 16 B apart are refused");
    struct cuda_grouped_fill fill = {made.weights.at, TENSOR_Q4_K, 0, 32, made.weights};
    report(cuda_grouped_fill(&fill, stream, &error) == ERR_INVALID,
           "grouped: rows of another kind are refused");
    gpu_release();
}

void check_grouped(void) {
    struct rng rng = random_of("grouped");
    for (enum tensor_type type : types) {
        bool are_filled = true, are_few = true, are_many = true, are_embedded = true;
        const uint32_t block = tensor_type_block_elements(type);
        for (const auto &shape : shapes) {
            if (shape.inputs % block != 0) continue;
            struct grouped_case is = {type, shape.lines, shape.inputs, 0};
            are_filled &= are_unpacked(&rng, &is);
            are_embedded &= is_embedded(&rng, &is);
            for (uint32_t rows : rows_of_cases) {
                is.rows = rows;
                if (rng_below(&rng, check_one_in) != 0) continue;
                are_few &= check_few(&rng, &is, cuda_grouped_few);
                if (shape.inputs % (2 * GROUPED_INPUTS) == 0)
                    are_few &= check_few(&rng, &is, cuda_grouped_pieces);
                if (has_many(type)) are_many &= check_many(&rng, &is);
            }
        }
        report(are_filled, "grouped: %s unpacked is what its file has", tensor_type_name(type));
        report(are_embedded, "grouped: %s as an embedding", tensor_type_name(type));
        report(are_few, "grouped: %s with few rows", tensor_type_name(type));
        if (has_many(type)) report(are_many, "grouped: %s with many rows", tensor_type_name(type));
    }
    check_wide(&rng);
    check_rows_alone(&rng, cuda_grouped_few, "whole lines");
    check_rows_alone(&rng, cuda_grouped_pieces, "pieces");
    check_same(&rng);
    check_refusals(&rng);
}
