/* SPDX-License-Identifier: Apache-2.0 */
/* loop_sampling: the sampling of a job in the form of the scheduler. */
#include "engine/state.h"

/* A temperature below this counts as 0, as in vLLM and OpenAI. Temperatures up to 0.01 become 0.01,
 * because logits divided by less overflow. */
#define TEMPERATURE_GREEDY 1e-5
#define TEMPERATURE_LOWEST 0.01

struct sampling loop_sampling(const struct engine *engine, const struct job *job) {
    const struct request *request = &job->request;
    struct sampling sampling = {
        .temperature = (float)request->temperature,
        .top_p = (float)request->top_p,
        .min_p = (float)request->min_p,
        .top_k = request->top_k <= 0           ? 0
                 : request->top_k > UINT32_MAX ? UINT32_MAX
                                               : (uint32_t)request->top_k,
        .has_seed = true,
        .presence_penalty = (float)request->presence_penalty,
        .frequency_penalty = (float)request->frequency_penalty,
        .repetition_penalty = (float)request->repetition_penalty,
        .biases = request->biases,
        .bias_count = request->bias_count,
        .allowed_tokens = request->allowed_tokens.at,
        .allowed_token_count = request->allowed_tokens.count,
        .bad_words = request->bad_word_runs.at,
        .bad_word_ints = request->bad_word_runs.count,
        /* Candidates are ranked by their log probabilities. */
        .logprobs = request->logprobs || request->candidates > request->choices,
        .top_logprobs = request->logprobs ? (uint32_t)request->top_logprobs : 0,
        .logprob_tokens = request->logprob_tokens.at,
        .logprob_token_count = request->logprob_tokens.count,
        .max_tokens = job->max_tokens,
        .min_tokens = (uint32_t)request->min_tokens,
        .stop_tokens = request->stop_tokens.at,
        .stop_token_count = request->stop_tokens.count,
        .end_tokens = engine->end_tokens,
        .end_token_count = engine->end_token_count,
        .ignore_eos = request->ignore_eos,
    };
    if (request->temperature < TEMPERATURE_GREEDY || request->top_p <= 0)
        sampling.temperature = 0;
    else if (request->temperature < TEMPERATURE_LOWEST)
        sampling.temperature = (float)TEMPERATURE_LOWEST;
    return sampling;
}
