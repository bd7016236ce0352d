/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* host_kernels: what the plain versions of the CUDA kernels share.
 *
 * Thread: one. */

#include "base/err.h"
#include "gpu/cuda/rows.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct CUstream_st;

/* bf16_to_f32 and bf16_from_f32 of kernels/quant.h, which are calls: a third of the time was
 * theirs. */
static inline float host_from_bf16(uint16_t value) {
    const uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}
static inline uint16_t host_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u); /* quiet NaN */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

extern float host_e4m3[256]; /* the number of a code; filled when the library is loaded */
/* Not for NaN. */
static inline float host_from_e4m3(uint8_t code) {
    return host_e4m3[code];
}
uint8_t host_to_e4m3(float value); /* the nearest code, at most 448 */

/* ---- host_rows.c ---- */

/* A value of a product, whatever its form. */
float host_sum_at(const struct cuda_product *product, size_t row, size_t column);
/* Leaves a row of activations in the form of the next product; INT8 changes the values. */
void host_store(const struct cuda_rows *y, size_t row, float *values, uint32_t width);
/* The factor of RMSNorm. */
float host_factor_of(const float *values, uint32_t width, float epsilon);

/* norm of a row: x += h (NULL: nothing), then y (call->width), which is stored. */
void host_norm_row(const struct cuda_norm *call, size_t row, const float *h, float *y);

/* ---- host_gate.c ---- */

/* The activation of a gate times up. */
float host_gated(enum cuda_gate_kind kind, float gate, float up);

/* ---- host_runtime.c ---- */

/* Whether a kernel can store there. Outside of the GPU's memory the next call that waits for the
 * GPU tells an illegal access, and so do all later ones. */
bool host_can_store(uintptr_t at);
/* The GPU that calls are for. */
int host_card(void);
/* Whether a kernel can read there. What it reads of a GPU whose memory its own does not reach is
 * told likewise. */
bool host_can_read(const void *at);
/* The word by which the host lets kernels go that wait for a lost GPU (gpu/cuda/reduce.h). */
void host_waits_while(const uint32_t *given_up);

/* ---- host_reduce.c ---- */

/* Ends the process if a kernel on that stream waits for a rank whose kernel the host has not
 * enqueued: the first launch of a kernel loads code, and the driver may wait for the GPU then. */
void host_launches_on(const struct CUstream_st *stream);
/* Says that a kernel was enqueued on that stream that waits for other ranks. */
void host_meets_on(const struct CUstream_st *stream, uint32_t ranks);
/* Nothing waits on that stream any more. */
void host_forget_waits(const struct CUstream_st *stream);

/* ---- host_grouped.c ---- */

struct cuda_grouped;
/* The numbers of a line of codes in groups. */
void host_grouped_numbers(const struct cuda_grouped *weights, uint32_t line, float *ret_values);
/* The number of a line and an input of codes in groups. */
float host_grouped_number(const struct cuda_grouped *weights, uint32_t line, uint32_t input);
/* The line of a row of experts whose gate and up have that width; 0: they have none. */
uint32_t host_grouped_line(uint32_t gate_width, uint32_t row);

/* ---- host_modules.c ---- */

/* Whether there is code for the GPU, or the driver can still make it. */
bool host_has_code(void);

/* ---- host_graph.c ---- */

/* Runs a recorded call: copies of its arguments. */
typedef enum err host_again(const void *call, const void *more, struct error *error);
bool host_is_captured(const struct CUstream_st *stream);
/* True: the stream has queued the call (host_streams.h) or recorded it, or a graph that is replayed
 * has it instead of its own. False without a stream: the call is to run. `more` may be NULL. */
bool host_record(const struct CUstream_st *stream, host_again *again, const void *call,
                 size_t call_bytes, const void *more, size_t more_bytes);
/* The same of a library's kernel, which no replay has. */
bool host_record_product(const struct CUstream_st *stream, host_again *again, const void *call,
                         size_t call_bytes);
/* What a recorded call meets other ranks by; NULL: it waits for none. */
struct cuda_meeting;
const struct cuda_meeting *host_meeting_of(host_again *again, const void *call);
/* Whether a graph is replayed whose driver does not change it. */
bool host_refuses_changes(void);

/* The host_again of a kernel whose arguments are one struct. */
#define HOST_AGAIN(kernel)                                                                         \
    static enum err again_##kernel(const void *call, const void *more, struct error *error) {      \
        (void)more;                                                                                \
        return kernel(call, NULL, error);                                                          \
    }
/* Likewise with items. */
#define HOST_AGAIN_ITEMS(kernel)                                                                   \
    static enum err again_##kernel(const void *call, const void *more, struct error *error) {      \
        return kernel(call, more, NULL, error);                                                    \
    }
