/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define NS_PER_MS 1e6f

static uint64_t ns_between(struct CUevent_st *from, struct CUevent_st *to) {
    float ms = 0;
    if (cudaEventElapsedTime(&ms, from, to) != cudaSuccess) return 0;
    return ms > 0 ? (uint64_t)(ms * NS_PER_MS) : 0;
}

static void count(struct device *device, const struct flight *flight) {
    struct device_counters *counters = &device->counters;
    counters->steps++;
    counters->rows += flight->step.row_count;
    counters->busy_ns += ns_between(flight->begun, flight->ended);
    struct CUevent_st *before = flight->begun;
    for (uint32_t i = 0; flight->op_ended && i < device->program.op_count; i++) {
        counters->op_ns[device->ops[i].op.kind] += ns_between(before, flight->op_ended[i]);
        before = flight->op_ended[i];
    }
    /* The draws stand behind the last operation, which is that of the logits. */
    if (flight->op_ended) counters->op_ns[OP_LOGITS] += ns_between(before, flight->ended);
}

enum err device_wait(struct device *device, uint64_t number, struct device_result *result,
                     struct error *error) {
    assert(device->waited < device->submitted);
    struct flight *flight = &device->flights[device->waited % device->limits.steps_max];
    assert(flight->is_under_way && flight->number == number);
    cudaError_t code = cudaEventSynchronize(flight->done);
    if (code != cudaSuccess)
        return card_error(code, error, "step %llu", (unsigned long long)number);
    const struct results *host = &flight->host;
    const size_t wanted = flight->step.wanted_count;
    if (wanted > 0) memcpy(result->tokens, host->tokens, wanted * sizeof *result->tokens);
    if (flight->answer_count > 0)
        memcpy(result->answers, host->answers, flight->answer_count * sizeof *result->answers);
    if (flight->named_count > 0)
        memcpy(result->named_logits, host->named, flight->named_count * sizeof *host->named);
    result->nonfinite_rows = (uint32_t)host->tokens[device->limits.logit_rows_max];
    count(device, flight);
    flight->is_under_way = flight->is_careful = false;
    device->waited++;
    return OK;
}

enum err device_logits(struct device *device, uint32_t first, uint32_t rows, float *ret_logits,
                       struct error *error) {
    assert(device->waited > 0 && device->waited == device->submitted);
    const struct flight *flight = &device->flights[(device->waited - 1) % device->limits.steps_max];
    assert(first + rows <= flight->step.wanted_count);
    const size_t bytes = device->program.vocab_rows * sizeof(float);
    const size_t stride = device->logit_stride * sizeof(float);
    cudaError_t code =
        cudaMemcpy2D(ret_logits, bytes, flight->logits + first * device->logit_stride, stride,
                     bytes, rows, cudaMemcpyDeviceToHost);
    return code == cudaSuccess
               ? OK
               : card_error(code, error, "logits of step %llu", (unsigned long long)flight->number);
}

enum err device_counters_read(struct device *device, struct device_counters *ret_counters,
                              struct error *error) {
    (void)error;
    *ret_counters = device->counters;
    ret_counters->compile_ns = device->compile_ns;
    ret_counters->graphs = device->graph_count;
    ret_counters->graph_bytes = device->graph_bytes;
    ret_counters->graph_refusal = device->graph_refusal[0] != '\0' ? device->graph_refusal : NULL;
    return OK;
}
