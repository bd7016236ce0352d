/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of gpu/cuda/texts.h in plain C: right and slow. */

#include "gpu/cuda/texts.h"

#include "host_kernels.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>

HOST_AGAIN(cuda_layer_norm)
enum err cuda_layer_norm(const struct cuda_layer_norm *call, struct CUstream_st *stream,
                         struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_layer_norm, call, sizeof *call, NULL, 0)) return OK;
    float *y = malloc(call->width * sizeof *y);
    for (size_t row = 0; row < call->rows; row++) {
        float *x = call->x + row * call->x_stride;
        double sum = 0, squares = 0;
        for (uint32_t i = 0; i < call->width; i++) {
            if (call->h.sums) x[i] += host_sum_at(&call->h, row, i);
            sum += (double)x[i];
        }
        const double mean = sum / call->width;
        for (uint32_t i = 0; i < call->width; i++)
            squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        const double factor = 1 / sqrt(squares / call->width + (double)call->epsilon);
        for (uint32_t i = 0; i < call->width; i++) {
            y[i] = (float)(((double)x[i] - mean) * factor) * call->weight[i] +
                   (call->bias ? call->bias[i] : 0);
            if (call->replaces) x[i] = y[i];
        }
        host_store(&call->y, row, y, call->width);
    }
    free(y);
    return OK;
}

HOST_AGAIN(cuda_gelu)
enum err cuda_gelu(const struct cuda_gelu *call, struct CUstream_st *stream, struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_gelu, call, sizeof *call, NULL, 0)) return OK;
    float *y = malloc(call->width * sizeof *y);
    for (size_t row = 0; row < call->rows; row++) {
        for (uint32_t i = 0; i < call->width; i++) {
            const float x = host_sum_at(&call->in, row, i);
            y[i] = 0.5f * x * erfcf(-x * 0.70710678f);
            if (call->is_gated) y[i] *= host_sum_at(&call->in, row, call->width + i);
        }
        host_store(&call->y, row, y, call->width);
    }
    free(y);
    return OK;
}

HOST_AGAIN(cuda_pool)
enum err cuda_pool(const struct cuda_pool *call, struct CUstream_st *stream, struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_pool, call, sizeof *call, NULL, 0)) return OK;
    for (size_t i = 0; i < call->count; i++)
        for (uint32_t k = 0; k < call->width; k++) {
            float sum = 0;
            for (uint32_t row = 0; row < call->pools[i].rows; row++)
                sum +=
                    host_from_bf16(call->from[(call->pools[i].row + row) * call->from_stride + k]);
            call->y[i * call->y_stride + k] = sum;
        }
    return OK;
}
