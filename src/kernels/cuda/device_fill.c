/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device_internal.h"
#include "kernels/cuda/unpack.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

/* Rows first..first+count-1 of the part, in the matrix' order, one after another. */
static void gather(const struct device_rows *rows, size_t row_bytes, uint32_t first, uint32_t count,
                   char *to) {
    const char *from = rows->blocks;
    if (!rows->row_order) {
        memcpy(to, from + first * row_bytes, count * row_bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        memcpy(to + i * row_bytes, from + rows->row_order[first + i] * row_bytes, row_bytes);
}

static enum err fill_slice(struct device *device, const struct device_rows *rows, size_t row_bytes,
                           uint32_t first, uint32_t count, struct error *error) {
    const struct card_matrix *matrix = &device->matrices[rows->matrix];
    const uint32_t slice = device->fill_next++ % FILL_SLICES;
    cudaError_t code = cudaEventSynchronize(device->fill_done[slice]);
    if (code != cudaSuccess) return card_error(code, error, "filling matrix %u", rows->matrix);
    gather(rows, row_bytes, first, count, device->fill_host[slice]);
    code = cudaMemcpyAsync(device->fill_card[slice], device->fill_host[slice], count * row_bytes,
                           cudaMemcpyHostToDevice, device->compute);
    if (code != cudaSuccess) return card_error(code, error, "filling matrix %u", rows->matrix);
    const size_t at = rows->row_first + first;
    const struct cuda_unpack unpack = {
        .blocks = device->fill_card[slice],
        .type = rows->type,
        .rows = count,
        .cols = matrix->cols,
        .code = code_of(matrix->form),
        .codes = matrix->codes + at * matrix->cols * form_bytes(matrix->form),
        .stride = matrix->cols,
        .scales = matrix->scales ? matrix->scales + at : NULL,
    };
    enum err err = cuda_unpack(&unpack, device->compute, error);
    if (err != OK) return err;
    code = cudaEventRecord(device->fill_done[slice], device->compute);
    return code == cudaSuccess ? OK : card_error(code, error, "filling matrix %u", rows->matrix);
}

enum err device_fill(struct device *device, const struct device_rows *rows, struct error *error) {
    assert(device->is_prepared && rows->matrix < device->program.matrix_count);
    const struct card_matrix *matrix = &device->matrices[rows->matrix];
    assert(rows->row_first + rows->rows <= matrix->rows);
    const size_t row_bytes = tensor_type_row_bytes(rows->type, matrix->cols);
    const uint32_t each = (uint32_t)(device->fill_bytes / row_bytes);
    enum err err = OK;
    for (uint32_t first = 0; first < rows->rows && err == OK; first += each) {
        uint32_t left = rows->rows - first;
        err = fill_slice(device, rows, row_bytes, first, left < each ? left : each, error);
    }
    return err;
}
