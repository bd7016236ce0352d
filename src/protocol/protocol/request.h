/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request: the words for one request that every part of quern shares, from the HTTP route to the
 * engine process: where it is sent, how urgent it is, who owns it, how it ended, and how many
 * tokens it took.
 *
 * Knows no JSON, no batch and no worker.
 *
 * Thread: any; pure.
 * Memory: texts are constants.
 * Invariant: the numbers of the enums travel between processes of one version (WIRE_VERSION). */

#include "base/str.h"

/* The owner of a request, a file or a batch: the name that its API key was made for. An empty name
 * is the default owner. Cached prefixes and results are shared inside one owner only. */
#define OWNER_BYTES 64 /* with its NUL */

#define MODEL_NAME_BYTES 256 /* with its NUL */

enum endpoint {
    ENDPOINT_CHAT,        /* /v1/chat/completions */
    ENDPOINT_COMPLETIONS, /* /v1/completions */
    ENDPOINT_EMBEDDINGS,  /* /v1/embeddings */
    ENDPOINT_SCORE,       /* /v1/score */
    ENDPOINT_DECISIONS,   /* /v1/decisions */
    ENDPOINT_SYSTEMONE,   /* /v1/systemone: decisions in the words of System One */
    ENDPOINT_RERANK,      /* /v1/rerank: documents by their score for a query */
    ENDPOINT_POOLING,     /* /v1/pooling: embeddings in vLLM's other form */
    ENDPOINT_RESPONSES,   /* /v1/responses: no worker knows it (dialects/responses.h) */
    ENDPOINT_MESSAGES,    /* /v1/messages: likewise (dialects/messages.h) */
    ENDPOINT_CLASSIFY,    /* /v1/classify: probabilities of a model's labels */
    ENDPOINT_COUNT,       /* number of the endpoints that lines of a batch may have */
    /* Questions about a model's words, for single clients only; they never reach a device. */
    ENDPOINT_TOKENIZE = ENDPOINT_COUNT, /* /tokenize */
    ENDPOINT_DETOKENIZE,                /* /detokenize */
    ENDPOINT_TOKENIZER_INFO,            /* /tokenizer_info */
    ENDPOINT_ALL_COUNT
};

/* True for the endpoints that ask typed questions about one text. */
static inline bool endpoint_is_decision(enum endpoint endpoint) {
    return endpoint == ENDPOINT_DECISIONS || endpoint == ENDPOINT_SYSTEMONE;
}

/* True for the endpoints that make a vector, or labels, of each text. */
static inline bool endpoint_is_pooled(enum endpoint endpoint) {
    return endpoint == ENDPOINT_EMBEDDINGS || endpoint == ENDPOINT_SCORE ||
           endpoint == ENDPOINT_RERANK || endpoint == ENDPOINT_POOLING ||
           endpoint == ENDPOINT_CLASSIFY;
}

/* True for the endpoints of lines that are translated before a worker gets them. */
static inline bool endpoint_is_translated(enum endpoint endpoint) {
    return endpoint == ENDPOINT_RESPONSES || endpoint == ENDPOINT_MESSAGES;
}

/* The number of the words in which models are asked (decisions/wording.h). Other words have another
 * number, so that no answer to other words is reused. */
#define DECISION_PROMPT_FORMAT 1

static inline bool endpoint_is_words(enum endpoint endpoint) {
    return endpoint >= ENDPOINT_COUNT;
}

/* "/v1/chat/completions", …, "/tokenizer_info". */
const char *endpoint_path(enum endpoint endpoint);
/* Finds the endpoint of a path with or without "/v1" in front, or of Cohere's "/v2/rerank"; false
 * for any other path. */
bool endpoint_find(struct str path, enum endpoint *ret_endpoint);

/* Order of admission, soonest first (contract.md §3.5). Inside a tier the lower `priority` goes
 * first. */
enum tier { TIER_PRIORITY, TIER_DEFAULT, TIER_FLEX, TIER_BATCH, TIER_COUNT };

/* The tier of a batch that was created with this `service_tier`. "auto", an empty text and an
 * unknown one give TIER_BATCH. */
enum tier tier_of_batch(const char *service_tier);
/* The tier of a single request that asks for this `service_tier`; an unknown one is the default. */
enum tier tier_of_request(struct str service_tier);
/* "priority", "default", "flex" or "batch". */
const char *tier_name(enum tier tier);

/* True if a client waits for the answer. */
static inline bool tier_is_interactive(enum tier tier) {
    return tier == TIER_PRIORITY || tier == TIER_DEFAULT;
}

/* How a request ended. Whoever ran it, or refused to, decides this once; everything after that goes
 * by the outcome and not by the HTTP status. */
enum outcome {
    OUTCOME_DONE,      /* status and body are the answer: a 2xx, or an error of the request */
    OUTCOME_TRY_AGAIN, /* it failed for a reason of the machine; counts as a try */
    OUTCOME_NOT_RUN,   /* it was refused before it ran; counts as no try */
    OUTCOME_CANCELLED, /* it was ended by a cancel; status and body say so */
    OUTCOME_RETURNED,  /* the worker gives it back as it took it, to make room: to be submitted
                          again as if for the first time; status and body mean nothing */
};

/* What a worker does with a request for a shape of its answer. */
enum shape_handling {
    SHAPES_PASSED_ON, /* to a server that may hold the answer to it, or not */
    SHAPES_HELD,    /* the answer is held to it, or the request refused, by grammar/asked_shape.h */
    SHAPES_REFUSED, /* a line is refused before its batch runs */
};

/* How an answer ended that was to have a shape (a schema, a regular expression, choices, rules).
 * The numbers are written to disk (store/seglog_format.h, store/result_cache.h). */
enum shape_end {
    SHAPE_NONE,       /* no shape was asked for, or none is known of */
    SHAPE_VALID,      /* the answer is a whole text of its shape */
    SHAPE_TRUNCATED,  /* it was cut before: at its limit of tokens, or at a stop string or token */
    SHAPE_UNCHECKED,  /* it was neither held to its shape nor checked */
    SHAPE_REFUSED,    /* there is none, because the shape cannot be held */
    SHAPE_MISMATCHED, /* it came from an upstream and has another form */
    SHAPE_FAILED,     /* there is none, for another reason */
    SHAPE_END_COUNT
};

/* "valid", …, "failed", by enum shape_end; NULL for SHAPE_NONE. */
extern const char *const shape_end_names[SHAPE_END_COUNT];

/* Tokens of one request summed over its choices, or of many requests. */
struct usage {
    uint64_t input_tokens;
    uint64_t cached_tokens; /* part of input_tokens: keys and values were already in the cache */
    uint64_t output_tokens;
    uint64_t reasoning_tokens; /* part of output_tokens */
    /* Tokens of the counts above that were not computed: an equal request's answer was reused. */
    uint64_t reused_input_tokens, reused_output_tokens;
};

void usage_add(struct usage *sum, const struct usage *more);

/* How long the parts of one request took, in nanoseconds; timings.h says what each part is. 0: not
 * known. */
struct request_times {
    int64_t wait_ns; /* from its arrival at the runner until a worker took it: its model loaded */
    int64_t queue_ns, prefill_ns, decode_ns;
};
