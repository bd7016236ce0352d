/* SPDX-License-Identifier: Apache-2.0 */

/* norm: adds a product to the residual and leaves its RMS norm for the next product.
 *
 * A block a row and 16 numbers a thread: the row stays in registers between its two uses, and all
 * rows of a usual step are in flight at once (48 registers a thread: 8 blocks of 160 threads). The
 * weights go to shared memory past the registers, while the kernel before still runs. */

#include "dependent.cuh"
#include "vec.cuh"

#define SPANS 2         /* eights a thread holds */
#define WIDTH_MAX 12160 /* floats that, with `parts`, fit 48 KiB of shared memory */

/* Eight floats into shared memory, past the registers. */
__device__ static inline void fetch_eight(float *to, const float *from) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + 16), "l"(from + 4));
}

__device__ static inline void wait_for_fetched(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

struct norm_row {
    struct eight x[SPANS];
    uint32_t at[SPANS];
    bool has[SPANS];
};

/* Leaves x + h, or x + rms_norm(h) · post, in row->x and in memory. */
template <int IN, bool POST>
__device__ static inline void add_product(const struct cuda_norm &call, size_t row,
                                          struct norm_row *r, float2 *parts) {
    struct raw_sums<IN> raw[SPANS];
    struct eight h[SPANS];
    float row_scale = IN >= IN_BF16_SCALED ? call.h.row_scale[row] : 1.0f;
    float squares = 0;
#pragma unroll
    for (int s = 0; s < SPANS; s++)
        if (r->has[s]) raw[s] = read_sums<IN>(call.h, row, r->at[s]);
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        if (!r->has[s]) continue;
        h[s] = sums_eight<IN>(call.h, row_scale, r->at[s], raw[s]);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (POST) squares += h[s].at[i] * h[s].at[i];
    }
    float factor = 1.0f;
    if (POST) {
        squares = block_sum_max(make_float2(squares, 0.0f), parts).x;
        factor = 1.0f / sqrtf(squares / (float)call.width + call.epsilon);
    }
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        if (!r->has[s]) continue;
        struct eight post;
        if (POST) post = f32_eight(call.post + r->at[s]);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            r->x[s].at[i] += POST ? h[s].at[i] * factor * post.at[i] : h[s].at[i];
        eight_f32(r->x[s], call.x + row * call.x_stride + r->at[s]);
    }
}

template <int IN, int CODE, bool POST>
__global__ void __maxnreg__(IN == IN_INT32 || POST ? 64 : 48) norm_rows(struct cuda_norm call) {
    extern __shared__ __align__(16) float weights[]; /* a thread reads back what it fetched */
    __shared__ float2 parts[2][32];
    size_t row = blockIdx.x;
    struct norm_row r;
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        r.at[s] = (s * blockDim.x + threadIdx.x) * EACH;
        r.has[s] = r.at[s] < call.width;
        if (r.has[s]) fetch_eight(weights + r.at[s], call.weight + r.at[s]);
    }
    wait_for_before();
#pragma unroll
    for (int s = 0; s < SPANS; s++)
        if (r.has[s]) r.x[s] = f32_eight(call.x + row * call.x_stride + r.at[s]);
    if (IN != IN_NONE) add_product<IN, POST>(call, row, &r, parts[0]);
    let_next_start();
    wait_for_fetched();
    float2 sums = make_float2(0.0f, 0.0f); /* squares, and the largest |x · weight| */
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        if (!r.has[s]) continue;
        struct eight weight = f32_eight(weights + r.at[s]);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            sums.x += r.x[s].at[i] * r.x[s].at[i];
            r.x[s].at[i] *= weight.at[i];
            if (CODE != CUDA_BF16) sums.y = fmaxf(sums.y, fabsf(r.x[s].at[i]));
        }
    }
    sums = block_sum_max(sums, parts[1]);
    float factor = 1.0f / sqrtf(sums.x / (float)call.width + call.epsilon);
    if (CODE != CUDA_BF16) {
        float scale = scale_of<CODE>(sums.y * factor);
        if (threadIdx.x == 0) call.y.scale[row] = scale;
        factor /= scale;
    }
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        if (!r.has[s]) continue;
#pragma unroll
        for (int i = 0; i < EACH; i++) r.x[s].at[i] *= factor;
        store_eight<CODE>(call.y, row, r.at[s], r.x[s]);
    }
}

/* Any width, any alignment: three walks over the row. A thread reads back only what it wrote. */
__global__ void norm_rows_plain(struct cuda_norm call) {
    __shared__ float2 parts[2][32];
    size_t row = blockIdx.x;
    float *x = call.x + row * call.x_stride;
    float factor = 1.0f;
    wait_for_before();
    if (call.h.sums && call.post) {
        float squares = 0;
        for (uint32_t i = threadIdx.x; i < call.width; i += blockDim.x) {
            float h = sum_at(call.h, row, i);
            squares += h * h;
        }
        squares = block_sum_max(make_float2(squares, 0.0f), parts[0]).x;
        factor = 1.0f / sqrtf(squares / (float)call.width + call.epsilon);
    }
    float2 sums = make_float2(0.0f, 0.0f);
    for (uint32_t i = threadIdx.x; i < call.width; i += blockDim.x) {
        if (call.h.sums) {
            float h = sum_at(call.h, row, i);
            x[i] += call.post ? h * factor * call.post[i] : h;
        }
        sums.x += x[i] * x[i];
        if (call.y.codes) sums.y = fmaxf(sums.y, fabsf(x[i] * call.weight[i]));
    }
    if (!call.y.codes) return;
    sums = block_sum_max(sums, parts[1]);
    factor = 1.0f / sqrtf(sums.x / (float)call.width + call.epsilon);
    if (call.y.type != CUDA_BF16) {
        float scale = call.y.type == CUDA_E4M3 ? scale_of<CUDA_E4M3>(sums.y * factor)
                                               : scale_of<CUDA_INT8>(sums.y * factor);
        if (threadIdx.x == 0) call.y.scale[row] = scale;
        factor /= scale;
    }
    for (uint32_t i = threadIdx.x; i < call.width; i += blockDim.x)
        store_one(call.y, row, i, x[i] * call.weight[i] * factor);
}

typedef void (*norm_kernel)(struct cuda_norm call);

template <int IN, bool POST> static norm_kernel kernel_of(enum cuda_code code) {
    if (code == CUDA_E4M3) return norm_rows<IN, CUDA_E4M3, POST>;
    if (code == CUDA_INT8) return norm_rows<IN, CUDA_INT8, POST>;
    return norm_rows<IN, CUDA_BF16, POST>;
}

static norm_kernel kernel_for(const struct cuda_norm *call) {
    switch (in_kind_of(&call->h)) {
    case IN_BF16:
        return call->post ? kernel_of<IN_BF16, true>(call->y.type)
                          : kernel_of<IN_BF16, false>(call->y.type);
    case IN_BF16_SCALED:
        return call->post ? kernel_of<IN_BF16_SCALED, true>(call->y.type)
                          : kernel_of<IN_BF16_SCALED, false>(call->y.type);
    case IN_INT32:
        return call->post ? kernel_of<IN_INT32, true>(call->y.type)
                          : kernel_of<IN_INT32, false>(call->y.type);
    default: return kernel_of<IN_NONE, false>(call->y.type);
    }
}

static bool is_wide(const struct cuda_norm *call) {
    return call->width % EACH == 0 && call->width <= WIDTH_MAX && call->x_stride % 4 == 0 &&
           is_at_16(call->x) && is_at_16(call->weight) && is_at_16(call->post) &&
           (!call->h.sums || is_product_wide(&call->h)) && call->y.codes && is_rows_wide(&call->y);
}

enum err cuda_norm(const struct cuda_norm *call, struct CUstream_st *stream, struct error *error) {
    if (call->rows == 0 || call->width == 0) return OK;
    if (!is_wide(call))
        return launch_dependent("norm", error, stream, call->rows, 256, 0, norm_rows_plain, *call);
    uint32_t threads = (call->width + SPANS * EACH - 1) / (SPANS * EACH);
    return launch_dependent("norm", error, stream, call->rows, (threads + 31) / 32 * 32,
                            call->width * sizeof(float), kernel_for(call), *call);
}
