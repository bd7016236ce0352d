/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sampling: how the next token of a sequence is chosen from its logits, as one plain struct.
 *
 * The scheduler carries these numbers and acts on the limits among them (max_tokens, min_tokens,
 * stop and end tokens); the backend acts on the rest. A struct of zeros is greedy decoding up to
 * the end of the context. Knows no text: stop strings belong to the engine.
 *
 * A backend treats one row of fp32 logits in this order. kernels/draw.h has the exact numbers of
 * steps 2 to 5, so that equal logits give equal tokens on every processor.
 *   1. Logprobs, if asked for, are the log-softmax of the model's logits.
 *   2. `allowed` of the logit row (backend.h), allowed_tokens, bad_words and then logit_bias are
 *      applied. While fewer than min_tokens tokens are generated, stop tokens and end tokens become
 *      -inf, end tokens also with ignore_eos, unless that leaves no token.
 *   3. repetition_penalty is applied over prompt and generated tokens: a positive logit is divided
 *      by it, a negative one multiplied. Then presence and frequency penalties are applied over
 *      generated tokens.
 *   4. With temperature 0 the highest logit wins, the lowest id among equals. Otherwise a token's
 *      weight is e^(logit / temperature); then min_p, top_k and top_p, in this order, each restrict
 *      the tokens that the one before has left, the most likely first, among equals the lowest id.
 *   5. One draw with u = rng_unit_at(seed, counter) of the logit row (base/rng.h) walks the tokens
 *      that are left in the order of their ids. The first at which the weights so far exceed u of
 *      all of them is taken. So the n-th token of a sequence does not depend on other sequences.
 *
 * Thread: any; immutable after submit.
 * Memory: the arrays are the caller's; scheduler_submit copies them. */

#include "base/err.h"

#include <stdint.h>

#define SAMPLING_TOP_LOGPROBS_MAX 20u
#define SAMPLING_LOGPROB_TOKENS_MAX 128u
#define SAMPLING_BAD_WORD_INTS_MAX 16384u
#define SAMPLING_ALLOWED_TOKENS_MAX 16384u
#define SAMPLING_BIASES_MAX 1024u
#define SAMPLING_STOP_TOKENS_MAX 256u

struct logit_bias {
    int32_t token; /* 0..vocab-1 */
    float bias;    /* -100..100; added to the logit */
};

struct sampling {
    float temperature; /* 0..100; 0 is greedy and ignores top_p, top_k, min_p and the seed */
    float top_p;       /* 0..1; 0 and 1 are off. The engine turns a client's top_p 0 into greedy */
    uint32_t top_k;    /* 0 is off; more than vocab is off too */
    float min_p;       /* 0..1 of the highest probability; 0 is off */

    bool has_seed; /* false: the scheduler derives a seed from its own and the request's id */
    uint64_t seed;

    float presence_penalty;   /* -2..2; 0 is off */
    float frequency_penalty;  /* -2..2; 0 is off */
    float repetition_penalty; /* above 0 up to 100; 0 and 1 are off */

    const struct logit_bias *biases; /* (bias_count); NULL when 0; each token at most once */
    uint32_t bias_count;             /* 0..SAMPLING_BIASES_MAX */

    const int32_t *allowed_tokens; /* (allowed_token_count); all other tokens are forbidden */
    uint32_t allowed_token_count;  /* 0..SAMPLING_ALLOWED_TOKENS_MAX; 0: all tokens are allowed */
    /* Runs of tokens that must not be generated: per run its length, 1 or more, and its tokens.
     * The last token of a run is forbidden where the generated tokens end with all others of the
     * run. */
    const int32_t *bad_words; /* (bad_word_ints) */
    uint32_t bad_word_ints;   /* 0..SAMPLING_BAD_WORD_INTS_MAX */

    bool logprobs;         /* give the logprob of the sampled token */
    uint32_t top_logprobs; /* 0..SAMPLING_TOP_LOGPROBS_MAX most likely tokens; needs `logprobs` */
    /* Tokens to give in place of the most likely ones, the likelier first; needs `logprobs`. */
    const int32_t *logprob_tokens; /* (logprob_token_count) */
    uint32_t logprob_token_count;  /* 0..SAMPLING_LOGPROB_TOKENS_MAX */
    /* give the logprob of every prompt token except the first, and of its neighbours */
    bool prompt_logprobs;
    uint32_t prompt_top_logprobs; /* 0..SAMPLING_TOP_LOGPROBS_MAX; needs `prompt_logprobs` */

    uint32_t max_tokens; /* most tokens to generate, with the stopping token; 0: as many as fit */
    uint32_t min_tokens; /* tokens to generate before a stop or end token; 0..max_tokens */

    /* Both kinds finish the sequence with reason stop, and are reported as a token first. End
     * tokens are the model's (EOS, end of turn); ignore_eos turns off end tokens only. */
    const int32_t *stop_tokens; /* (stop_token_count) */
    uint32_t stop_token_count;  /* 0..SAMPLING_STOP_TOKENS_MAX */
    const int32_t *end_tokens;  /* (end_token_count) */
    uint32_t end_token_count;   /* 0..SAMPLING_STOP_TOKENS_MAX */
    bool ignore_eos;
};

/* ERR_INVALID, naming field, value and range, for a value outside the ranges above. Token ids must
 * be below `vocab`. */
enum err sampling_check(const struct sampling *sampling, uint32_t vocab,
                        struct error *error) MUST_CHECK;

/* True when repetition_penalty changes logits. */
bool sampling_has_repetition(const struct sampling *sampling);
/* True when presence_penalty or frequency_penalty changes logits. */
bool sampling_has_frequency(const struct sampling *sampling);

/* True when `token` ends a sequence with `generated` tokens, this one included. No token before
 * min_tokens does. */
bool sampling_is_stop(const struct sampling *sampling, int32_t token, uint32_t generated);
