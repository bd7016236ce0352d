/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/experts_launch.cuh"
#include "gpu/cuda/modules.h"

enum err cuda_experts_int8(const struct cuda_experts *call, struct CUstream_st *stream,
                           struct error *error) {
    return launch_of_code<CUDA_INT8>(call, stream, error);
}

CUDA_MODULE(experts_int8, experts_by_mma<expert_shape<CUDA_INT8, CUDA_EXPERTS_DOWN>>)
