/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_of: which shape of kernel serves a head size and group. A .cu for each type of cache
 * and kind of kernel instantiates them, so that no compilation is long. The figures behind the
 * shapes are in docs/internals/inference/gpu-kernels.md. */

#include "gpu/cuda/attention.h"

enum err cuda_decode_bf16(const struct cuda_attention *call, const struct cuda_decode_items *items,
                          cuda_stream stream, struct error *error);
enum err cuda_decode_e4m3(const struct cuda_attention *call, const struct cuda_decode_items *items,
                          cuda_stream stream, struct error *error);
enum err cuda_tiles_bf16(const struct cuda_attention *call, const struct cuda_tile_items *items,
                         cuda_stream stream, struct error *error);
enum err cuda_tiles_e4m3(const struct cuda_attention *call, const struct cuda_tile_items *items,
                         cuda_stream stream, struct error *error);

/* Heads of CUDA_HEAD_WIDE, in bf16. */
enum err cuda_decode_wide(const struct cuda_attention *call, const struct cuda_decode_items *items,
                          cuda_stream stream, struct error *error);
enum err cuda_tiles_wide(const struct cuda_attention *call, const struct cuda_tile_items *items,
                         cuda_stream stream, struct error *error);

/* Entries of latent layers. */
enum err cuda_decode_latent(const struct cuda_attention *call,
                            const struct cuda_decode_items *items, cuda_stream stream,
                            struct error *error);
enum err cuda_tiles_latent(const struct cuda_attention *call, const struct cuda_tile_items *items,
                           cuda_stream stream, struct error *error);

/* Tiles with products of warpgroups, of any type of cache. */
bool cuda_has_groups(void);
enum err cuda_tiles_grouped(const struct cuda_attention *call, const struct cuda_tile_items *items,
                            cuda_stream stream, struct error *error);

#define CUDA_TILE_ROWS 128 /* queries of a tile: rows times the heads of a group */
