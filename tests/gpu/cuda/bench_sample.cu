/* SPDX-License-Identifier: Apache-2.0 */

/* Times of statistics, draws and log-probabilities, as shares of what the GPU reads. */

#include "harness.h"

extern "C" {
#include "gpu/cuda/sample.h"
}

/* Normal logits, and room for all that a call writes. */
static struct cuda_sample call_over(uint32_t rows, uint32_t vocab, float deviation) {
    struct cuda_sample call = {};
    const size_t stride = (vocab + 3) / 4 * 4;
    call.logits.logits = gpu_take<float>(rows * stride), call.logits.stride = stride;
    call.logits.rows = rows, call.logits.vocab = call.logits.finished = vocab;
    call.stats = gpu_take<struct cuda_stat>(rows), call.tokens = gpu_take<int32_t>(rows);
    call.partial = gpu_take_bytes(cuda_sample_partial_bytes(rows, vocab));
    call.mask_words = (vocab + 31) / 32;
    call.draws = gpu_copy(std::vector<struct gpu_draw>(rows));
    fill_f32(call.logits.logits, rows * stride, 1, deviation);
    return call;
}

static void bench_bare(struct cuda_sample *call, const char *name) {
    const uint32_t rows = call->logits.rows, vocab = call->logits.vocab;
    call->bare_count = rows, call->summed_count = 0;
    double us = time_us([&](int) { MUST_BE_OK(cuda_sample_choose(call, stream, error)); });
    bench_bytes("choose", us, (double)rows * vocab * 4, ceiling_read(), "%u x %u %s, bare", rows,
                vocab, name);
    call->bare_count = 0;
}

static void bench_choose(struct cuda_sample *call, const char *name, float temperature,
                         uint32_t top_k, float top_p, bool has_mask) {
    uint32_t rows = call->logits.rows, vocab = call->logits.vocab;
    std::vector<struct gpu_draw> draws(rows);
    std::vector<uint32_t> drawn(rows);
    for (uint32_t row = 0; row < rows; row++) {
        struct gpu_draw draw = {};
        draw.seed = row * 77, draw.factor = temperature > 0 ? draw_factor(temperature) : 0;
        draw.offset = -INFINITY, draw.top_k = top_k, draw.top_p = top_p;
        draw.mask = has_mask ? 0 : -1, draw.slot = -1;
        draws[row] = draw, drawn[row] = row;
    }
    call->draws = gpu_copy(draws), call->drawn = gpu_copy(drawn), call->drawn_count = rows;
    std::vector<uint32_t> mask(call->mask_words, 0xdfffffffu);
    call->masks = gpu_copy(mask);
    double us = time_us([&](int) { MUST_BE_OK(cuda_sample_choose(call, stream, error)); });
    bench_bytes("choose", us, (double)rows * vocab * 4, ceiling_read(), "%u x %u %s", rows, vocab,
                name);
    if (top_p > 0 && top_k == 0) bench_bare(call, name);
}

static void bench_vocab(uint32_t rows, uint32_t vocab) {
    struct cuda_sample call = call_over(rows, vocab, 2.0f);
    lift_tokens(call.logits.logits, rows, call.logits.stride, vocab);
    double us = time_us([&](int) { MUST_BE_OK(cuda_sample_stats(&call, stream, error)); });
    bench_bytes("logits", us, (double)rows * vocab * 4, ceiling_read(), "%u x %u argmax and lse",
                rows, vocab);
    bench_choose(&call, "temperature 1", 1.0f, 0, 0, false);
    bench_choose(&call, "top_p 0.9", 1.0f, 0, 0.9f, false);
    bench_choose(&call, "top_p 0.9, temperature 2", 2.0f, 0, 0.9f, false);
    bench_choose(&call, "top_k 40, top_p 0.95", 0.7f, 40, 0.95f, false);
    bench_choose(&call, "top_p 0.999, temperature 2 (long lists)", 2.0f, 0, 0.999f, false);
    bench_choose(&call, "greedy with a mask", 0, 0, 0, true);
    std::vector<struct gpu_ask> asks(rows);
    for (uint32_t row = 0; row < rows; row++) asks[row] = {row, -1, 20, 0, 0};
    struct cuda_logprobs ask = {};
    ask.logits = call.logits, ask.stats = call.stats, ask.tokens = call.tokens;
    ask.asks = gpu_copy(asks), ask.ask_count = rows;
    ask.answers = gpu_take<struct gpu_answer>(rows);
    us = time_us([&](int) { MUST_BE_OK(cuda_logprobs(&ask, stream, error)); });
    bench_bytes("logprobs", us, (double)rows * vocab * 4, ceiling_read(), "%u x %u top 20", rows,
                vocab);
    gpu_release();
}

/* Rows of a model with random weights: nothing stands out. */
static void bench_flat(uint32_t rows, uint32_t vocab) {
    struct cuda_sample call = call_over(rows, vocab, 0.9f);
    MUST_BE_OK(cuda_sample_stats(&call, stream, error));
    bench_choose(&call, "flat, top_p 0.9, temperature 0.7", 0.7f, 0, 0.9f, false);
    gpu_release();
}

void bench_sample(void) {
    (void)ceiling_read();
    bench_flat(800, 128256);
    bench_vocab(512, 128256); /* Llama-3 */
    bench_vocab(512, 151936);
    bench_vocab(1024, 151936);
    bench_vocab(512, 262208);
    bench_vocab(32, 151936);
}
