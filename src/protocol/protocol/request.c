/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/request.h"

#include <assert.h>
#include <string.h>

static const char *const endpoint_paths[ENDPOINT_ALL_COUNT] = {
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/score",      "/v1/decisions",
    "/v1/systemone",        "/v1/rerank",      "/v1/pooling",    "/v1/responses",  "/v1/messages",
    "/v1/classify",         "/tokenize",       "/detokenize",    "/tokenizer_info"};

const char *endpoint_path(enum endpoint endpoint) {
    assert(endpoint < ENDPOINT_ALL_COUNT);
    return endpoint_paths[endpoint];
}

bool endpoint_find(struct str path, enum endpoint *ret_endpoint) {
    for (int i = 0; i < ENDPOINT_COUNT; i++) {
        if (!str_is(path, endpoint_paths[i]) && !str_is(path, endpoint_paths[i] + strlen("/v1")))
            continue;
        *ret_endpoint = (enum endpoint)i;
        return true;
    }
    *ret_endpoint = ENDPOINT_RERANK;
    return str_is(path, "/v2/rerank");
}

enum tier tier_of_batch(const char *service_tier) {
    struct str tier = str_from(service_tier);
    if (str_is(tier, "priority") || str_is(tier, "fast")) return TIER_PRIORITY;
    if (str_is(tier, "default") || str_is(tier, "scale")) return TIER_DEFAULT;
    return str_is(tier, "flex") ? TIER_FLEX : TIER_BATCH;
}

enum tier tier_of_request(struct str service_tier) {
    if (str_is(service_tier, "priority") || str_is(service_tier, "fast")) return TIER_PRIORITY;
    if (str_is(service_tier, "flex")) return TIER_FLEX;
    if (str_is(service_tier, "batch")) return TIER_BATCH;
    return TIER_DEFAULT;
}

const char *tier_name(enum tier tier) {
    static const char *const names[TIER_COUNT] = {"priority", "default", "flex", "batch"};
    assert(tier < TIER_COUNT);
    return names[tier];
}

const char *const shape_end_names[SHAPE_END_COUNT] = {
    [SHAPE_VALID] = "valid",     [SHAPE_TRUNCATED] = "truncated",   [SHAPE_UNCHECKED] = "unchecked",
    [SHAPE_REFUSED] = "refused", [SHAPE_MISMATCHED] = "mismatched", [SHAPE_FAILED] = "failed"};

void usage_add(struct usage *sum, const struct usage *more) {
    sum->input_tokens += more->input_tokens;
    sum->cached_tokens += more->cached_tokens;
    sum->output_tokens += more->output_tokens;
    sum->reasoning_tokens += more->reasoning_tokens;
    sum->reused_input_tokens += more->reused_input_tokens;
    sum->reused_output_tokens += more->reused_output_tokens;
}
