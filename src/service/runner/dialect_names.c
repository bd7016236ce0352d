/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/dialect_names.h"

#include "dialects/messages.h"
#include "dialects/ollama.h"
#include "dialects/responses.h"
#include "grammar/asked_elsewhere.h"

static const char *const of_chat[] = {"model", "messages", "stream",     "format",   "options",
                                      "tools", "think",    "keep_alive", "logprobs", "top_logprobs",
                                      "shift", "truncate", NULL};
static const char *const of_generate[] = {
    "model",   "prompt",     "system",       "stream", "format",   "options",
    "think",   "keep_alive", "images",       "raw",    "suffix",   "template",
    "context", "logprobs",   "top_logprobs", "shift",  "truncate", NULL};
static const char *const of_ollama_options[] = {"temperature",
                                                "top_k",
                                                "top_p",
                                                "min_p",
                                                "repeat_penalty",
                                                "presence_penalty",
                                                "frequency_penalty",
                                                "seed",
                                                "num_predict",
                                                "num_ctx",
                                                "typical_p",
                                                "stop",
                                                NULL};
#define OLLAMA(names)                                                                              \
    {                                                                                              \
        .members = (names), .open = "options", .inside = of_ollama_options,                        \
        .reason = "this route of Ollama's API has no such member, and it would not be held; use "  \
                  "'format', or 'stop' inside of 'options'"                                        \
    }
static const struct asked_api chat = OLLAMA(of_chat), generate = OLLAMA(of_generate);

static const char *const of_messages[] = {
    "model",         "messages",      "max_tokens",     "system",    "stream",      "temperature",
    "top_p",         "top_k",         "stop_sequences", "tools",     "tool_choice", "thinking",
    "output_config", "output_format", "mcp_servers",    "container", "metadata",    NULL};
static const char *const of_output_config[] = {"effort", "format", NULL};
static const struct asked_api messages = {
    .members = of_messages,
    .open = "output_config",
    .inside = of_output_config,
    .reason = "the Messages API has no such member, and it would not be held; this API has "
              "'output_config.format', 'tools' and 'stop_sequences'"};

static const char *const of_responses[] = {"model",
                                           "input",
                                           "instructions",
                                           "stream",
                                           "max_output_tokens",
                                           "top_logprobs",
                                           "service_tier",
                                           "metadata",
                                           "text",
                                           "reasoning",
                                           "tools",
                                           "tool_choice",
                                           "include",
                                           "truncation",
                                           "store",
                                           "max_tool_calls",
                                           "safety_identifier",
                                           "prompt_cache_key",
                                           "previous_response_id",
                                           "conversation",
                                           "prompt",
                                           "background",
                                           RESPONSES_SAME_MEMBERS,
                                           NULL};
static const char *const of_text[] = {"format", "verbosity", NULL};
static const struct asked_api responses = {
    .members = of_responses,
    .open = "text",
    .inside = of_text,
    .reason = "the Responses API has no such member, and it would not be held; this API has "
              "'text.format' and 'tools'"};

/* NULL for a dialect whose answers nothing constrains. */
static const struct asked_api *api_of(const struct dialect *dialect) {
    if (dialect == &ollama_chat) return &chat;
    if (dialect == &ollama_generate) return &generate;
    if (dialect == &responses_create || dialect == &responses_count) return &responses;
    return dialect == &messages_create || dialect == &messages_count ? &messages : NULL;
}

struct dialect_call *dialect_names_read(const struct dialect *dialect, struct str object,
                                        struct refusal *refusal) {
    const struct asked_api *api = api_of(dialect);
    if (api && !asked_elsewhere_check(api, object, refusal)) return NULL;
    return dialect_read(dialect, object, refusal);
}
