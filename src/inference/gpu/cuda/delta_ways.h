/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* delta_ways: how cuda_delta_decode moves states, for the kernels, their checks and their bench.
 *
 * Thread, memory, invariant: as recurrent.h. */

#include "gpu/cuda/recurrent.h"

#ifdef __cplusplus
extern "C" {
#endif

/* REGISTERS: loads and stores of each warp. The others: bulk copies in and out of shared memory, by
 * bytes of a piece, pieces of a warp under way and blocks of a multiprocessor; heads of 128. */
enum cuda_delta_way {
    CUDA_DELTA_REGISTERS,
    CUDA_DELTA_8K_2_3,
    CUDA_DELTA_8K_3_2,
    CUDA_DELTA_4K_3_3,
    CUDA_DELTA_4K_4_3,
    CUDA_DELTA_2K_4_5,
    CUDA_DELTA_16K_3_1,
    CUDA_DELTA_WAYS
};

/* As cuda_delta_decode; few blocks, and what a way cannot do, go by registers. */
enum err cuda_delta_decode_by(const struct cuda_delta *call, enum cuda_delta_way way,
                              struct CUstream_st *stream, struct error *error) MUST_CHECK;

/* The parts of it. */
bool cuda_delta_has(const struct cuda_delta *call, enum cuda_delta_way way);
enum err cuda_delta_bulk(const struct cuda_delta *call, enum cuda_delta_way way,
                         struct CUstream_st *stream, struct error *error) MUST_CHECK;
enum err cuda_delta_registers(const struct cuda_delta *call, struct CUstream_st *stream,
                              struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif
