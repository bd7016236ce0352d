/* SPDX-License-Identifier: Apache-2.0 */
/* What all files of the plugin stand on: errors of CUDA as sentences, and a form's bytes, code and
 * format. */
#include "gpu/cuda/plugin_internal.h"

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>

enum err card_error(int code, struct error *error, const char *format, ...) {
    char what[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_set(error, ERR_IO, "%s: %s (%s)", what, cudaGetErrorString((cudaError_t)code),
                   cudaGetErrorName((cudaError_t)code));
}

size_t form_bytes(enum gpu_form form) {
    return form == GPU_F32 ? 4 : gpu_form_is_bf16(form) ? 2 : 1;
}

enum cuda_code code_of(enum gpu_form form) {
    return form == GPU_E4M3 ? CUDA_E4M3 : form == GPU_INT8 ? CUDA_INT8 : CUDA_BF16;
}

enum cuda_format format_of(enum gpu_form form, bool is_logits) {
    if (form == GPU_INT8) return CUDA_FORMAT_INT8;
    if (form == GPU_E4M3) return is_logits ? CUDA_FORMAT_E4M3_F32 : CUDA_FORMAT_E4M3;
    return is_logits ? CUDA_FORMAT_BF16_F32 : CUDA_FORMAT_BF16;
}

size_t product_bytes(const struct gpu_program *program, enum op_to to) {
    /* Products of heads leave values in wide. */
    size_t most = to == TO_WIDE ? (size_t)program->heads * program->latent.value_dim * 2 : 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_op *op = &program->ops[i];
        if (op->kind != OP_MATMUL || op->to != to) continue;
        const struct gpu_matrix *matrix = &program->matrices[op->matrix];
        const bool is_router = i + 1 < program->op_count && op[1].kind == OP_ROUTE;
        const size_t bytes = cuda_format_out_bytes(format_of(matrix->form, is_router));
        const size_t row =
            ((size_t)matrix->rows + PRODUCT_ALIGN - 1) / PRODUCT_ALIGN * PRODUCT_ALIGN * bytes;
        if (row > most) most = row;
    }
    return most;
}
