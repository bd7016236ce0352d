/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grouped_world: random weights of a file as codes in groups, rows, and plain products with them,
 * for the checks and benches of gpu/cuda/grouped.h. */

#include "harness.h"

extern "C" {
#include "gpu/cuda/grouped.h"
}

struct grouped_case {
    enum tensor_type type;
    uint32_t lines, inputs, rows;
};

/* Weights on the GPU, and their numbers as the file has them. */
struct grouped_made {
    struct cuda_grouped weights;
    std::vector<float> values; /* (lines, inputs) */
    double room;               /* by which float16 scales and minima may be off */
};

/* Rows of a file: random codes; scales as files have them, a minimum of INT4 as a whole number of
 * steps. */
std::vector<uint8_t> grouped_file(struct rng *rng, const struct grouped_case *is);
/* Filled in two parts, the first of which ends inside a block of lines. */
struct grouped_made grouped_make(struct rng *rng, const struct grouped_case *is);
/* Whether scales of the type are rounded. */
bool grouped_rounds(enum tensor_type type);
/* (rows, inputs) numbers that bf16 has, some columns much larger than others. */
std::vector<float> grouped_rows(struct rng *rng, const struct grouped_case *is);
std::vector<uint16_t> bf16_of(const std::vector<float> &values);
/* Whether codes and pairs of scales are those of `in`, which becomes what they mean. */
bool grouped_are_codes(const struct grouped_case *is, const struct cuda_grouped_rows &rows,
                       std::vector<float> *in);
/* The product in double: (rows, lines). */
std::vector<float> grouped_want(const struct grouped_made &made, const struct grouped_case *is,
                                const std::vector<float> &in);
/* The room of products with so many lines by so many blocks; NaN in it but for the counts. */
struct cuda_grouped_room grouped_room(uint32_t lines, uint32_t blocks);
