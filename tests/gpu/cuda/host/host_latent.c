/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of gpu/cuda/latent.h in plain C. */

#include "gpu/cuda/latent.h"

#include "host_kernels.h"

#include <stdlib.h>

/* Turns a part of `count` numbers by the angles of a row. */
static void turn(const struct cuda_turns *turns, size_t row, uint32_t count, float *part) {
    const uint32_t half = count / 2;
    const size_t angle = (size_t)turns->positions[row] * half;
    for (uint32_t i = 0; i < half; i++) {
        const float a = part[i], b = part[i + half];
        part[i] = a * turns->cosines[angle + i] - b * turns->sines[angle + i];
        part[i + half] = b * turns->cosines[angle + i] + a * turns->sines[angle + i];
    }
}

static void put(const float *values, uint32_t count, uint16_t *to) {
    for (uint32_t i = 0; i < count; i++) to[i] = host_to_bf16(values[i]);
}

HOST_AGAIN(cuda_latent_entry)
enum err cuda_latent_entry(const struct cuda_latent_entry *call, struct CUstream_st *stream,
                           struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_latent_entry, call, sizeof *call, NULL, 0)) return OK;
    const uint32_t dim = call->rank + call->turned_dim;
    float *entry = malloc(dim * sizeof *entry);
    for (size_t row = 0; row < call->rows; row++) {
        uint16_t *to = call->entries + (size_t)call->slots[row] * dim;
        if (!host_can_store((uintptr_t)to)) break;
        for (uint32_t i = 0; i < dim; i++) entry[i] = host_sum_at(&call->in, row, i);
        const float factor = host_factor_of(entry, call->rank, call->epsilon);
        for (uint32_t i = 0; i < call->rank; i++) entry[i] *= factor * call->norm[i];
        turn(&call->turns, row, call->turned_dim, entry + call->rank);
        put(entry, dim, to);
    }
    free(entry);
    return OK;
}

HOST_AGAIN(cuda_latent_q)
enum err cuda_latent_q(const struct cuda_latent_q *call, struct CUstream_st *stream,
                       struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_latent_q, call, sizeof *call, NULL, 0)) return OK;
    const uint32_t each = call->still_dim + call->turned_dim, dim = call->rank + call->turned_dim;
    float *head = malloc(each * sizeof *head);
    for (size_t row = 0; row < call->rows; row++)
        for (size_t h = 0; h < call->heads; h++) {
            const size_t from = call->in_rows ? call->in_rows[row] : row;
            const size_t at = row * call->heads + h;
            for (uint32_t i = 0; i < each; i++)
                head[i] = host_sum_at(&call->in, from, h * each + i);
            turn(&call->turns, row, call->turned_dim, head + call->still_dim);
            put(head, call->still_dim, call->still + at * call->still_dim);
            put(head + call->still_dim, call->turned_dim, call->q + at * dim + call->rank);
        }
    free(head);
    return OK;
}
