/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plugin_away: experts in the host's memory (gpu/away.h), and their copies during a step.
 *
 * The GPU has places for the experts of two layers. The next layer's weights set out when those of
 * the one before it have been multiplied, so that a copy is always under way.
 *
 * It knows no kernel and no row.
 *
 * Thread: the GPU's one.
 * Memory: the host's part is pinned and this one's; the places are in the GPU's arena.
 * Invariant: a place is written only behind the products that read it. */

#include "base/err.h"
#include "gpu/away.h"

#include <stddef.h>
#include <stdint.h>

struct card_matrix;
struct gpu;
struct memory;
struct CUevent_st;
struct CUstream_st;

/* A layer has two matrices: gate_up and down. */
struct away_part {
    char *host; /* codes and scales, pinned, which the GPU reaches: it fills them */
    size_t bytes;
    size_t at; /* where they stand in a place */
};
struct away_layer {
    struct away_part parts[2];
};
struct away_room {
    struct away_layer *layers; /* (count) in the order of a step */
    uint32_t count;
    char *host; /* all of them */
    char *places[AWAY_PLACES];
    uint32_t holds[AWAY_PLACES]; /* a place's layer, or GPU_NONE */
    struct CUstream_st *stream;  /* has the copies */
    struct CUevent_st *arrived[AWAY_PLACES], *left[AWAY_PLACES];
};

/* Says of which matrices the limits leave the weights in the host's memory. */
enum err away_choose(struct gpu *gpu, const struct gpu_program *program,
                     struct error *error) MUST_CHECK;
/* Notes where the weights of such a matrix lie: so many bytes from its codes on. */
void away_note(struct gpu *gpu, const struct card_matrix *matrix, size_t bytes);
/* The places on the GPU, once all of them are noted. */
void away_place(struct gpu *gpu, struct memory *memory);
/* Takes the host's memory, a stream and events. */
enum err away_open(struct gpu *gpu, size_t bytes, struct error *error) MUST_CHECK;
void away_close(struct gpu *gpu);
/* Before the products of a layer, which the matrix gate_up names: `compute` waits until the weights
 * are in a place, and those of the next such layer set out. Nothing for a layer that is here. */
enum err away_bring(struct gpu *gpu, uint32_t matrix, struct error *error) MUST_CHECK;
/* Behind the products. */
enum err away_leave(struct gpu *gpu, uint32_t matrix, struct error *error) MUST_CHECK;
/* Where products between these two calls read the weights of a matrix of experts. */
struct away_weights {
    const char *codes;
    const uint16_t *scales;
};
struct away_weights away_weights_of(const struct gpu *gpu, uint32_t matrix);
