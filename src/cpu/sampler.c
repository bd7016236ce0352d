/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/sampler.h"

#include "base/rng.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The log-probability given for a logit of -inf: JSON has no infinity. */
#define LOGPROB_LEAST (-9999.0f)
/* Up to this top_k the kernels' selection beats a heap over the vocabulary. */
#define FEW 256

size_t sampler_bytes(uint32_t vocab) {
    return (size_t)vocab *
           (sizeof(struct sampler_candidate) + sizeof(uint32_t) + 2 * sizeof(float));
}

enum err sampler_open(struct sampler *ret_sampler, const struct kernels *kernels, uint32_t vocab,
                      struct error *error) {
    struct sampler sampler = {.kernels = kernels, .vocab = vocab};
    sampler.candidates = calloc(vocab, sizeof *sampler.candidates);
    sampler.counts = calloc(vocab, sizeof *sampler.counts);
    sampler.logits = calloc(vocab, sizeof *sampler.logits);
    sampler.weights = calloc(vocab, sizeof *sampler.weights);
    if (!sampler.candidates || !sampler.counts || !sampler.logits || !sampler.weights) {
        sampler_close(&sampler);
        return err_set(error, ERR_LIMIT, "no memory to sample from %u tokens", vocab);
    }
    *ret_sampler = sampler;
    return OK;
}

void sampler_close(struct sampler *sampler) {
    free(sampler->candidates);
    free(sampler->counts);
    free(sampler->logits);
    free(sampler->weights);
    *sampler = (struct sampler){0};
}

/* A copy in which every logit is a number below infinity. */
static void clean(const float *logits, float *ret_logits, uint32_t vocab) {
    for (uint32_t i = 0; i < vocab; i++) {
        float logit = logits[i];
        if (!(logit <= FLT_MAX)) logit = logit > FLT_MAX ? FLT_MAX : -INFINITY;
        ret_logits[i] = logit;
    }
}

/* Whether the answer is the plain argmax: the common case of a batch, and worth its own path. */
static bool is_greedy_and_plain(const struct logit_row *row) {
    const struct sampling *sampling = row->sampling;
    return sampling->temperature <= 0.0f && !row->allowed && sampling->bias_count == 0 &&
           sampling->allowed_token_count == 0 && sampling->bad_word_ints == 0 &&
           row->counter >= sampling->min_tokens && sampling->presence_penalty == 0.0f &&
           sampling->frequency_penalty == 0.0f &&
           (sampling->repetition_penalty == 0.0f || sampling->repetition_penalty == 1.0f);
}

/* ---- log-probabilities ---- */

static float logprob_of(float logit, double lse) {
    double logprob = (double)logit - lse;
    if (!(logprob > (double)LOGPROB_LEAST)) return LOGPROB_LEAST;
    return logprob < 0.0 ? (float)logprob : 0.0f;
}

static void find_top(const struct kernels *kernels, const float *logits, uint32_t vocab, double lse,
                     uint32_t count, struct sample *sample) {
    struct scored top[SAMPLING_TOP_LOGPROBS_MAX];
    assert(count <= SAMPLING_TOP_LOGPROBS_MAX);
    sample->top_count = (uint32_t)kernels->top_k(logits, vocab, count, top);
    for (uint32_t i = 0; i < sample->top_count; i++)
        sample->top[i] = (struct token_logprob){.token = (int32_t)top[i].index,
                                                .logprob = logprob_of(top[i].value, lse)};
}

/* The tokens the request names, in the order of their likelihood. */
static void find_named(const float *logits, double lse, const struct sampling *sampling,
                       struct sample *sample) {
    uint32_t count = sampling->logprob_token_count;
    for (uint32_t i = 0; i < count; i++) {
        int32_t token = sampling->logprob_tokens[i];
        uint32_t at = i;
        while (at > 0 && (logits[sample->top[at - 1].token] < logits[token] ||
                          (logits[sample->top[at - 1].token] == logits[token] &&
                           sample->top[at - 1].token > token))) {
            sample->top[at] = sample->top[at - 1];
            at--;
        }
        sample->top[at] = (struct token_logprob){token, logprob_of(logits[token], lse)};
    }
    sample->top_count = count;
}

/* Tokens that are more likely, and equally likely ones of a lower id; and the token itself. */
static uint32_t rank_of(const float *logits, uint32_t vocab, int32_t token) {
    float own = logits[token];
    uint32_t rank = 1;
    for (uint32_t i = 0; i < vocab; i++)
        rank += logits[i] > own || (logits[i] == own && i < (uint32_t)token);
    return rank;
}

/* Step 1 of sampling.h. */
static void add_logprobs(struct sampler *sampler, const struct logit_row *row, const float *logits,
                         struct sample *sample) {
    const struct sampling *sampling = row->sampling;
    const struct kernels *kernels = sampler->kernels;
    uint32_t vocab = sampler->vocab;
    clean(logits, sampler->logits, vocab);
    double lse = (double)kernels->log_sum_exp(sampler->logits, vocab);
    sample->logprob = logprob_of(sampler->logits[sample->token], lse);
    if (row->scored) sample->rank = rank_of(sampler->logits, vocab, sample->token);
    uint32_t count = row->scored ? sampling->prompt_top_logprobs : sampling->top_logprobs;
    if (count > vocab) count = vocab;
    if (!row->scored && sampling->logprob_token_count > 0)
        find_named(sampler->logits, lse, sampling, sample);
    else if (count > 0)
        find_top(kernels, sampler->logits, vocab, lse, count, sample);
}

/* ---- masks and penalties ---- */

static bool is_allowed(const uint32_t *allowed, uint32_t token) {
    return allowed[token / 32] >> (token % 32) & 1;
}

/* The lowest id that the mask allows; 0 when it allows none. */
static uint32_t first_allowed(const uint32_t *allowed, uint32_t vocab) {
    for (uint32_t i = 0; allowed && i < vocab; i++)
        if (is_allowed(allowed, i)) return i;
    return 0;
}

/* The token taken when no token is left: the lowest id that mask and list allow, else that the mask
 * allows. */
static uint32_t fallback_token(const struct logit_row *row, uint32_t vocab) {
    const struct sampling *sampling = row->sampling;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < sampling->allowed_token_count; i++) {
        uint32_t token = (uint32_t)sampling->allowed_tokens[i];
        if (token < least && (!row->allowed || is_allowed(row->allowed, token))) least = token;
    }
    return least < vocab ? least : first_allowed(row->allowed, vocab);
}

/* Does nothing when the mask allows no token at all. */
static void apply_allowed(const uint32_t *allowed, float *logits, uint32_t vocab) {
    if (!is_allowed(allowed, first_allowed(allowed, vocab))) return;
    for (uint32_t i = 0; i < vocab; i++)
        if (!is_allowed(allowed, i)) logits[i] = -INFINITY;
}

static void apply_allowed_tokens(struct sampler *sampler, const struct sampling *sampling,
                                 float *logits) {
    for (uint32_t i = 0; i < sampling->allowed_token_count; i++)
        sampler->counts[sampling->allowed_tokens[i]] = 1;
    for (uint32_t i = 0; i < sampler->vocab; i++)
        if (!sampler->counts[i]) logits[i] = -INFINITY;
    for (uint32_t i = 0; i < sampling->allowed_token_count; i++)
        sampler->counts[sampling->allowed_tokens[i]] = 0;
}

static void apply_bad_words(const struct logit_row *row, float *logits) {
    const struct sampling *sampling = row->sampling;
    for (uint32_t at = 0; at < sampling->bad_word_ints;) {
        uint32_t before = (uint32_t)sampling->bad_words[at] - 1;
        const int32_t *word = &sampling->bad_words[at + 1];
        at += before + 2;
        if (before > row->counter) continue;
        if (before == 0 ||
            memcmp(row->generated + (row->counter - before), word, before * sizeof *word) == 0)
            logits[word[before]] = -INFINITY;
    }
}

static bool is_one_of(int32_t token, const int32_t *tokens, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] == token) return true;
    return false;
}

/* Forbids stop and end tokens while min_tokens has not been reached, unless that would leave
 * nothing. */
static void apply_min_tokens(const struct logit_row *row, float *logits, uint32_t vocab) {
    const struct sampling *sampling = row->sampling;
    if (row->counter >= sampling->min_tokens) return;
    bool some_left = false;
    for (uint32_t i = 0; i < vocab && !some_left; i++)
        some_left = logits[i] > -INFINITY &&
                    !is_one_of((int32_t)i, sampling->stop_tokens, sampling->stop_token_count) &&
                    !is_one_of((int32_t)i, sampling->end_tokens, sampling->end_token_count);
    if (!some_left) return;
    for (uint32_t i = 0; i < sampling->stop_token_count; i++)
        logits[sampling->stop_tokens[i]] = -INFINITY;
    for (uint32_t i = 0; i < sampling->end_token_count; i++)
        logits[sampling->end_tokens[i]] = -INFINITY;
}

static void repeat_penalty(struct sampler *sampler, const int32_t *tokens, uint32_t count,
                           float penalty, float *logits) {
    for (uint32_t i = 0; i < count; i++) {
        float *logit = &logits[tokens[i]];
        if (sampler->counts[tokens[i]]++ > 0) continue;
        *logit = *logit > 0.0f ? *logit / penalty : *logit * penalty;
    }
}

static void apply_penalties(struct sampler *sampler, const struct logit_row *row, float *logits) {
    const struct sampling *sampling = row->sampling;
    float repetition = sampling->repetition_penalty;
    if (repetition != 0.0f && repetition != 1.0f) {
        repeat_penalty(sampler, row->prompt, row->prompt_count, repetition, logits);
        repeat_penalty(sampler, row->generated, row->counter, repetition, logits);
        for (uint32_t i = 0; i < row->prompt_count; i++) sampler->counts[row->prompt[i]] = 0;
        for (uint32_t i = 0; i < row->counter; i++) sampler->counts[row->generated[i]] = 0;
    }
    if (sampling->presence_penalty == 0.0f && sampling->frequency_penalty == 0.0f) return;
    for (uint32_t i = 0; i < row->counter; i++) sampler->counts[row->generated[i]]++;
    for (uint32_t i = 0; i < row->counter; i++) {
        uint32_t *count = &sampler->counts[row->generated[i]];
        if (*count == 0) continue;
        logits[row->generated[i]] -=
            sampling->presence_penalty + sampling->frequency_penalty * (float)*count;
        *count = 0;
    }
}

/* ---- choosing ---- */

/* Order of likelihood: the higher logit first, the lower id among equals. */
static bool comes_before(struct sampler_candidate a, struct sampler_candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void sift_down(struct sampler_candidate *heap, uint32_t count, uint32_t at) {
    struct sampler_candidate moved = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count && comes_before(heap[child + 1], heap[child])) child++;
        if (!comes_before(heap[child], moved)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* Probabilities at this temperature, as far as they count: e^-200 is 0 in float. */
static void weigh(struct sampler *sampler, const float *logits, float max, float temperature) {
    float factor = 1.0f / fmaxf(temperature, 1e-6f); /* finite, for the 0 of the highest logit */
    for (uint32_t i = 0; i < sampler->vocab; i++) {
        float scaled = (logits[i] - max) * factor;
        sampler->weights[i] = scaled > -200.0f ? scaled : -200.0f;
    }
    sampler->kernels->softmax(sampler->weights, sampler->vocab);
}

static double weight_of(const struct sampler *sampler, struct sampler_candidate candidate) {
    return (double)sampler->weights[candidate.token];
}

/* The logit below which min_p drops a token: p >= min_p * p_max, on logits over temperature. */
static float least_logit(const struct sampling *sampling, float max) {
    if (sampling->min_p <= 0.0f) return -FLT_MAX;
    return max + sampling->temperature * logf(sampling->min_p);
}

/* Candidates that min_p leaves and that weigh at least `least_weight`, in order of id. */
static uint32_t gather(struct sampler *sampler, const float *logits, float least,
                       float least_weight) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < sampler->vocab; i++)
        if (logits[i] >= least && sampler->weights[i] >= least_weight)
            sampler->candidates[count++] =
                (struct sampler_candidate){.logit = logits[i], .token = (int32_t)i};
    return count;
}

/* gather for a small top_k, with the most likely candidate last. */
static uint32_t gather_few(struct sampler *sampler, const float *logits, float least,
                           uint32_t top_k) {
    struct scored top[FEW];
    size_t found = sampler->kernels->top_k(logits, sampler->vocab, top_k, top);
    while (found > 0 && !(top[found - 1].value >= least)) found--;
    for (size_t i = 0; i < found; i++)
        sampler->candidates[found - 1 - i] =
            (struct sampler_candidate){.logit = top[i].value, .token = (int32_t)top[i].index};
    return (uint32_t)found;
}

/* The weight of the tokens that min_p leaves. */
static double weight_left(const struct sampler *sampler, const float *logits, float least) {
    double sums[8] = {0}, total = 0.0;
    for (uint32_t i = 0; i < sampler->vocab; i++)
        sums[i % 8] += logits[i] >= least ? (double)sampler->weights[i] : 0.0;
    for (int i = 0; i < 8; i++) total += sums[i];
    return total;
}

/* Moves the most likely candidates one by one from a heap to the end of the array, until there are
 * keep_max or they weigh `enough`. They are then in candidates[count - kept..count), the most
 * likely last. Returns `kept`. */
static uint32_t keep_top(struct sampler *sampler, uint32_t count, uint32_t keep_max,
                         double enough) {
    struct sampler_candidate *heap = sampler->candidates;
    for (uint32_t i = count / 2; i-- > 0;) sift_down(heap, count, i);
    double cumulated = 0.0;
    uint32_t kept = 0;
    while (kept < keep_max && kept < count && cumulated < enough) {
        struct sampler_candidate best = heap[0];
        heap[0] = heap[count - kept - 1];
        heap[count - kept - 1] = best;
        kept++;
        sift_down(heap, count - kept, 0);
        cumulated += weight_of(sampler, best);
    }
    return kept;
}

/* top_p over `count` candidates that end with the most likely: how many of them to keep. */
static uint32_t cut_top_p(const struct sampler *sampler, const struct sampler_candidate *candidates,
                          uint32_t count, float top_p) {
    double total = 0.0, cumulated = 0.0;
    for (uint32_t i = count; i-- > 0;) total += weight_of(sampler, candidates[i]);
    for (uint32_t i = count; i-- > 0;) {
        cumulated += weight_of(sampler, candidates[i]);
        if (cumulated >= (double)top_p * total) return count - i;
    }
    return count;
}

/* Applies min_p, top_k and top_p, at least one of which is on. *ret_kept candidates are left, from
 * the returned one on. */
static const struct sampler_candidate *narrow(struct sampler *sampler,
                                              const struct sampling *sampling, const float *logits,
                                              float max, uint32_t *ret_kept) {
    float least = least_logit(sampling, max);
    bool has_top_k = sampling->top_k > 0 && sampling->top_k < sampler->vocab;
    bool has_top_p = sampling->top_p > 0.0f && sampling->top_p < 1.0f;
    uint32_t count, kept;
    if (has_top_p && !has_top_k) {
        /* All tokens below this weight together are less than half of the weight that top_p leaves
         * out, so that none of them is in. That shortens the heap from a vocabulary to a few
         * hundred. */
        double total = weight_left(sampler, logits, least), top_p = (double)sampling->top_p;
        float least_weight = (float)(0.5 * (1.0 - top_p) * total / sampler->vocab);
        count = gather(sampler, logits, least, least_weight);
        kept = keep_top(sampler, count, count, top_p * total);
    } else if (has_top_k) {
        bool is_few = sampling->top_k <= FEW;
        count = is_few ? gather_few(sampler, logits, least, sampling->top_k)
                       : gather(sampler, logits, least, 0.0f);
        kept = is_few ? count : keep_top(sampler, count, sampling->top_k, INFINITY);
        if (has_top_p)
            kept = cut_top_p(sampler, sampler->candidates + (count - kept), kept, sampling->top_p);
    } else {
        count = kept = gather(sampler, logits, least, 0.0f);
    }
    *ret_kept = kept;
    return sampler->candidates + (count - kept);
}

/* The candidate whose share of [0, 1) holds u. */
static int32_t draw(const struct sampler *sampler, const struct sampler_candidate *candidates,
                    uint32_t count, double u) {
    double total = 0.0;
    for (uint32_t i = 0; i < count; i++) total += weight_of(sampler, candidates[i]);
    double cumulated = 0.0, wanted = u * total;
    for (uint32_t i = 0; i < count; i++) {
        cumulated += weight_of(sampler, candidates[i]);
        if (cumulated > wanted) return candidates[i].token;
    }
    return candidates[count - 1].token; /* u * total was rounded up to the sum */
}

/* Draws over all tokens, when nothing was cut off. Masked tokens weigh nothing. */
static int32_t draw_from_all(struct sampler *sampler, const float *logits, double u) {
    double sums[8] = {0}, total = 0.0, cumulated = 0.0;
    for (uint32_t i = 0; i < sampler->vocab; i++) {
        if (!(logits[i] > -INFINITY)) sampler->weights[i] = 0.0f;
        sums[i % 8] += (double)sampler->weights[i];
    }
    for (int i = 0; i < 8; i++) total += sums[i];
    uint32_t last = 0;
    for (uint32_t i = 0; i < sampler->vocab; i++) {
        cumulated += (double)sampler->weights[i];
        if (cumulated > u * total) return (int32_t)i;
        if (sampler->weights[i] > 0.0f) last = i;
    }
    return (int32_t)last;
}

static int32_t choose(struct sampler *sampler, const struct logit_row *row, const float *logits) {
    const struct sampling *sampling = row->sampling;
    uint32_t best = sampler->kernels->argmax(logits, sampler->vocab);
    if (!(logits[best] > -INFINITY)) return (int32_t)fallback_token(row, sampler->vocab);
    if (sampling->temperature <= 0.0f) return (int32_t)best;
    double u = rng_unit_at(row->seed, row->counter);
    weigh(sampler, logits, logits[best], sampling->temperature);
    bool has_top_p = sampling->top_p > 0.0f && sampling->top_p < 1.0f;
    if (!has_top_p && sampling->top_k == 0 && sampling->min_p <= 0.0f)
        return draw_from_all(sampler, logits, u);
    uint32_t kept;
    const struct sampler_candidate *candidates =
        narrow(sampler, sampling, logits, logits[best], &kept);
    assert(kept > 0);
    return draw(sampler, candidates, kept, u);
}

/* Steps 2 and 3 of sampling.h. */
static void change_logits(struct sampler *sampler, const struct logit_row *row, float *logits) {
    const struct sampling *sampling = row->sampling;
    if (row->allowed) apply_allowed(row->allowed, logits, sampler->vocab);
    if (sampling->allowed_token_count > 0) apply_allowed_tokens(sampler, sampling, logits);
    if (sampling->bad_word_ints > 0) apply_bad_words(row, logits);
    for (uint32_t i = 0; i < sampling->bias_count; i++)
        logits[sampling->biases[i].token] += sampling->biases[i].bias;
    apply_min_tokens(row, logits, sampler->vocab);
    apply_penalties(sampler, row, logits);
}

void sampler_sample(struct sampler *sampler, const struct logit_row *row, const float *logits,
                    struct sample *ret_sample) {
    ret_sample->logprob = 0.0f;
    ret_sample->rank = ret_sample->top_count = 0;
    if (row->scored) {
        ret_sample->token = *row->scored;
    } else if (is_greedy_and_plain(row)) {
        ret_sample->token = (int32_t)sampler->kernels->argmax(logits, sampler->vocab);
    } else {
        clean(logits, sampler->logits, sampler->vocab);
        change_logits(sampler, row, sampler->logits);
        ret_sample->token = choose(sampler, row, sampler->logits);
    }
    if (row->scored || row->sampling->logprobs) add_logprobs(sampler, row, logits, ret_sample);
}
