/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define NS_PER_MS 1e6f

static uint64_t ns_between(struct CUevent_st *from, struct CUevent_st *to) {
    float ms = 0;
    if (cudaEventElapsedTime(&ms, from, to) != cudaSuccess) return 0;
    return ms > 0 ? (uint64_t)(ms * NS_PER_MS) : 0;
}

static void count(struct gpu *gpu, const struct flight *flight) {
    struct gpu_counters *counters = &gpu->counters;
    counters->steps++;
    counters->rows += flight->step.row_count;
    counters->busy_ns += ns_between(flight->begun, flight->ended);
    struct CUevent_st *before = flight->begun;
    for (uint32_t i = 0; flight->op_ended && i < gpu->program.op_count; i++) {
        counters->op_ns[gpu->ops[i].op.kind] += ns_between(before, flight->op_ended[i]);
        before = flight->op_ended[i];
    }
    /* The draws stand behind the last operation, which is that of the logits. */
    if (flight->op_ended) counters->op_ns[OP_LOGITS] += ns_between(before, flight->ended);
}

enum err plugin_wait(struct gpu *gpu, uint64_t number, struct gpu_result *result,
                     struct error *error) {
    assert(gpu->waited < gpu->submitted);
    struct flight *flight = &gpu->flights[gpu->waited % gpu->limits.steps_max];
    assert(flight->is_under_way && flight->number == number);
    enum err err = ranks_wait(gpu, flight, error);
    if (err != OK) return err;
    const struct results *host = &flight->host;
    const size_t wanted = flight->step.wanted_count;
    if (gpu->program.pools)
        memcpy(result->vectors, host->vectors,
               flight->step.pool_count * gpu->program.width * sizeof *result->vectors);
    else if (wanted > 0)
        memcpy(result->tokens, host->tokens, wanted * sizeof *result->tokens);
    if (flight->answer_count > 0)
        memcpy(result->answers, host->answers, flight->answer_count * sizeof *result->answers);
    if (flight->named_count > 0)
        memcpy(result->named_logits, host->named, flight->named_count * sizeof *host->named);
    result->nonfinite_rows = (uint32_t)host->tokens[gpu->limits.logit_rows_max];
    count(gpu, flight);
    flight->is_under_way = false;
    for (uint32_t i = 0; i < gpu->rank_count; i++)
        rank_flight(gpu->ranks[i], flight)->is_careful = false;
    gpu->waited++;
    return OK;
}

enum err plugin_logits(struct gpu *gpu, uint32_t first, uint32_t rows, float *ret_logits,
                       struct error *error) {
    assert(gpu->waited > 0 && gpu->waited == gpu->submitted);
    const struct flight *flight = &gpu->flights[(gpu->waited - 1) % gpu->limits.steps_max];
    assert(first + rows <= flight->step.wanted_count);
    const size_t bytes = gpu->program.vocab_rows * sizeof(float);
    const size_t stride = gpu->logit_stride * sizeof(float);
    cudaError_t code = cudaMemcpy2D(ret_logits, bytes, flight->logits + first * gpu->logit_stride,
                                    stride, bytes, rows, cudaMemcpyDeviceToHost);
    return code == cudaSuccess
               ? OK
               : card_error(code, error, "logits of step %llu", (unsigned long long)flight->number);
}

enum err plugin_counters_read(struct gpu *gpu, struct gpu_counters *ret_counters,
                              struct error *error) {
    (void)error;
    *ret_counters = gpu->counters;
    ret_counters->compile_ns = gpu->compile_ns;
    ret_counters->is_apart = gpu->is_apart;
    ret_counters->graphs = gpu->graph_count;
    ret_counters->graph_bytes = gpu->graph_bytes;
    ret_counters->graph_refusal = gpu->graph_refusal[0] != '\0' ? gpu->graph_refusal : NULL;
    return OK;
}
