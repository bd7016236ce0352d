/* SPDX-License-Identifier: Apache-2.0 */

/* Experts in the host's memory (gpu/away.h): where they lie, and their copies during a step. */

#include "gpu/cuda/plugin_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>

#define PLACE_ALIGN 256u /* a matrix in a place, as memory_take has it */

/* ---- prepare ---- */

static void mark(struct gpu *gpu, uint32_t matrix, uint32_t layer, bool is_down) {
    gpu->matrices[matrix].away = 1 + layer;
    gpu->matrices[matrix].is_down = is_down;
}

enum err away_choose(struct gpu *gpu, const struct gpu_program *program, struct error *error) {
    const uint32_t layers = away_layers(program), wanted = gpu->limits.experts_away;
    struct away_room *room = &gpu->away;
    uint32_t nth = 0, layer = 0;
    away_close(gpu);
    *room = (struct away_room){.holds = {GPU_NONE, GPU_NONE}};
    if (wanted == 0) return OK;
    if (wanted > layers)
        return err_set(error, ERR_INVALID, "%u of %u layers of experts", wanted, layers);
    room->layers = calloc(wanted, sizeof *room->layers);
    if (!room->layers) return err_set(error, ERR_LIMIT, "no memory for a program");
    room->count = wanted;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_op *op = &program->ops[i];
        if (op->kind != OP_EXPERTS || !away_has(nth++, layers, wanted)) continue;
        mark(gpu, op->experts.gate_up, layer, false);
        mark(gpu, op->experts.down, layer, true);
        layer++;
    }
    return OK;
}

void away_note(struct gpu *gpu, const struct card_matrix *matrix, size_t bytes) {
    struct away_layer *layer = &gpu->away.layers[matrix->away - 1];
    layer->parts[matrix->is_down] = (struct away_part){.host = matrix->codes, .bytes = bytes};
}

void away_place(struct gpu *gpu, struct memory *memory) {
    struct away_room *room = &gpu->away;
    size_t most = 0;
    for (uint32_t i = 0; i < room->count; i++) {
        struct away_part *parts = room->layers[i].parts;
        parts[1].at = (parts[0].bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
        const size_t bytes = parts[1].at + parts[1].bytes;
        if (bytes > most) most = bytes;
    }
    for (uint32_t i = 0; i < AWAY_PLACES && room->count > 0; i++)
        room->places[i] = memory_take(memory, MEMORY_WEIGHTS, most);
}

enum err away_open(struct gpu *gpu, size_t bytes, struct error *error) {
    struct away_room *room = &gpu->away;
    if (room->count == 0) return OK;
    cudaError_t code =
        cudaHostAlloc((void **)&room->host, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (code != cudaSuccess) {
        (void)cudaGetLastError(); /* else a launch of the next try finds it */
        return err_set(error, ERR_LIMIT,
                       "experts of %u layers need %llu MiB of the host's memory, which the driver "
                       "does not give (%s): end what else runs, or take a smaller file",
                       room->count, (unsigned long long)((bytes + MIB - 1) / MIB),
                       cudaGetErrorName(code));
    }
    code = cudaStreamCreateWithFlags(&room->stream, cudaStreamNonBlocking);
    for (uint32_t i = 0; i < AWAY_PLACES && code == cudaSuccess; i++) {
        code = cudaEventCreateWithFlags(&room->arrived[i], cudaEventDisableTiming);
        if (code == cudaSuccess)
            code = cudaEventCreateWithFlags(&room->left[i], cudaEventDisableTiming);
    }
    return code == cudaSuccess ? OK : card_error(code, error, "opening a stream");
}

void away_close(struct gpu *gpu) {
    struct away_room *room = &gpu->away;
    if (room->stream) (void)cudaStreamSynchronize(room->stream);
    for (uint32_t i = 0; i < AWAY_PLACES; i++) {
        if (room->arrived[i]) (void)cudaEventDestroy(room->arrived[i]);
        if (room->left[i]) (void)cudaEventDestroy(room->left[i]);
    }
    if (room->stream) (void)cudaStreamDestroy(room->stream);
    if (room->host) (void)cudaFreeHost(room->host);
    free(room->layers);
    *room = (struct away_room){.layers = NULL};
}

/* ---- steps ---- */

/* The layer's weights go to the place, once the products with what is there are done. */
static cudaError_t set_out(struct away_room *room, uint32_t place, uint32_t layer) {
    cudaError_t code = cudaStreamWaitEvent(room->stream, room->left[place], 0);
    for (int i = 0; i < 2 && code == cudaSuccess; i++) {
        const struct away_part *part = &room->layers[layer].parts[i];
        code = cudaMemcpyAsync(room->places[place] + part->at, part->host, part->bytes,
                               cudaMemcpyHostToDevice, room->stream);
    }
    room->holds[place] = layer;
    return code == cudaSuccess ? cudaEventRecord(room->arrived[place], room->stream) : code;
}

static uint32_t place_of(const struct away_room *room, uint32_t layer) {
    for (uint32_t i = 0; i < AWAY_PLACES; i++)
        if (room->holds[i] == layer) return i;
    return GPU_NONE;
}

enum err away_bring(struct gpu *gpu, uint32_t matrix, struct error *error) {
    struct away_room *room = &gpu->away;
    if (gpu->matrices[matrix].away == 0) return OK;
    const uint32_t layer = gpu->matrices[matrix].away - 1, next = (layer + 1) % room->count;
    uint32_t place = place_of(room, layer);
    cudaError_t code = cudaSuccess;
    if (place == GPU_NONE) { /* at the first step, and behind one that left layers out */
        place = room->holds[0] == next ? 1 : 0;
        code = set_out(room, place, layer);
    }
    if (code == cudaSuccess) code = cudaStreamWaitEvent(gpu->compute, room->arrived[place], 0);
    if (code == cudaSuccess && place_of(room, next) == GPU_NONE)
        code = set_out(room, 1 - place, next);
    return code == cudaSuccess ? OK : card_error(code, error, "bringing experts");
}

enum err away_leave(struct gpu *gpu, uint32_t matrix, struct error *error) {
    struct away_room *room = &gpu->away;
    if (gpu->matrices[matrix].away == 0) return OK;
    const uint32_t place = place_of(room, gpu->matrices[matrix].away - 1);
    assert(place != GPU_NONE);
    const cudaError_t code = cudaEventRecord(room->left[place], gpu->compute);
    return code == cudaSuccess ? OK : card_error(code, error, "leaving experts");
}

struct away_weights away_weights_of(const struct gpu *gpu, uint32_t matrix) {
    const struct card_matrix *from = &gpu->matrices[matrix];
    struct away_weights weights = {from->codes, from->scales};
    if (from->away == 0) return weights;
    const struct away_room *room = &gpu->away;
    const struct away_part *part = &room->layers[from->away - 1].parts[from->is_down];
    const uint32_t place = place_of(room, from->away - 1);
    assert(place != GPU_NONE);
    weights.codes = room->places[place] + part->at;
    if (from->scales)
        weights.scales = (const void *)(weights.codes + ((const char *)from->scales - part->host));
    return weights;
}
