/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* experts_tiles: how many rows a tile of an expert has at most on this GPU (experts.h). */

#include "gpu/cuda/experts.h"

#define EXPERT_GROUP_ROWS 160 /* with products of warpgroups */
#define EXPERT_MMA_ROWS 64

#ifdef __cplusplus
extern "C" {
#endif

uint32_t cuda_expert_tile_rows(void);

/* The kernels of 8 bits, each code in a file of its own; called by cuda_experts alone. */
enum err cuda_experts_bf16(const struct cuda_experts *call, struct CUstream_st *stream,
                           struct error *error) MUST_CHECK;
enum err cuda_experts_e4m3(const struct cuda_experts *call, struct CUstream_st *stream,
                           struct error *error) MUST_CHECK;
enum err cuda_experts_int8(const struct cuda_experts *call, struct CUstream_st *stream,
                           struct error *error) MUST_CHECK;

enum err cuda_experts_grouped(const struct cuda_experts *call, struct CUstream_st *stream,
                              struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif
