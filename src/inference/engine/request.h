/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request: the body of a chat or text completion, checked and turned into numbers.
 *
 * It knows the API's fields, types and ranges, and neither template nor tokenizer. It refuses
 * unsupported fields that would constrain the answer, and ignores fields that no API has.
 *
 * Thread: any; one request belongs to one thread.
 * Memory: owns the parsed body and the arrays; request_release frees. All json_t and str members
 * are borrowed from the body.
 * Invariant: after request_parse the fields keep the ranges stated next to them. */

#include "chat/thought.h"
#include "chat/tool_calls.h"
#include "chat/tool_tags.h"
#include "engine/request_body.h"
#include "grammar/asked_shape.h"
#include "protocol/wire_messages.h"
#include "scheduler/sampling.h"

#define REQUEST_STOPS_MAX 16 /* for a request in another API's form */
#define REQUEST_STOPS_MAX_OPENAI 4
#define REQUEST_STOP_BYTES_MAX 1024
#define REQUEST_CHOICES_MAX 128
#define REQUEST_SEQUENCES_MAX 1024 /* prompts times n */
#define REQUEST_TOP_LOGPROBS_MAX 20
#define REQUEST_SHOWN_TOKENS_MAX 8
#define REQUEST_ID_BYTES_MAX 128
#define REQUEST_SALT_BYTES_MAX 1024
#define REQUEST_TEMPLATE_BYTES_MAX ((size_t)256 * 1024)

enum tool_choice {
    TOOL_CHOICE_NONE, /* no call is read */
    TOOL_CHOICE_AUTO,
    TOOL_CHOICE_REQUIRED,
    TOOL_CHOICE_NAMED,
};

struct token_list {
    int32_t *at; /* (count), owned */
    uint32_t count;
};

/* Zero is a valid start. */
struct request {
    enum endpoint endpoint; /* CHAT or COMPLETIONS */
    json_t *body;           /* owned */
    size_t memory_left;     /* bytes that prep may take for it */
    struct str model;

    /* CHAT */
    json_t *messages; /* a non-empty array of checked messages; prep may change them */
    json_t *tools;    /* a non-empty array of checked tools, or NULL */
    enum tool_choice tool_choice;
    bool has_allowed_tools;     /* tool_choice lists the tools that may be called */
    struct tool_set callable;   /* the tools that may be called, unless tool_choice is NONE */
    bool one_tool_call;         /* parallel_tool_calls is false, or tool_choice names a tool */
    struct str chat_template;   /* at is NULL: the model's */
    json_t *template_variables; /* an object, or NULL */
    struct str reasoning_effort;
    struct str reasoning_field;    /* names the thought: "reasoning_content", "reasoning", "both" */
    bool include_reasoning;        /* the answer has the text of the thought */
    int64_t thinking_token_budget; /* -1: none */
    bool add_generation_prompt;
    bool continue_final_message;
    /* It came in another API's form (protocol/dialects): max_tokens is cut to the rest of the
     * context, a wish about thinking that the model cannot follow changes nothing, and
     * REQUEST_STOPS_MAX stop strings are allowed in place of OpenAI's 4. */
    bool is_translated;
    bool closes_thought; /* a thought that the template opens is closed in the prompt */
    /* COMPLETIONS */
    json_t *prompt;      /* string, [string], [integer] or [[integer]]; no array is empty */
    struct id_lists ids; /* the prompts, if they were a long array of ids; `prompt` is 0 then */
    size_t prompt_count; /* 1..REQUEST_SEQUENCES_MAX; 1 for a chat */

    int64_t choices;    /* n: 1..REQUEST_CHOICES_MAX */
    int64_t candidates; /* best_of: choices..REQUEST_CHOICES_MAX; the answer has the best of them */
    struct str request_id;   /* empty: none */
    struct str service_tier; /* empty: none */
    struct str cache_salt;   /* empty: none */
    bool add_special_tokens;
    bool parse_special; /* control tokens spelled in the client's text become their ids */
    bool echo;
    bool is_echo_only;     /* max_tokens 0: the answer is the prompt and its logprobs */
    bool stream;           /* as the body says; job.stream decides */
    bool include_usage;    /* in the stream */
    bool continuous_usage; /* in every chunk of the stream */
    bool return_token_ids;
    bool tokens_as_ids; /* a token in logprobs is "token_id:17" */
    bool truncate_prompt;
    int64_t truncate_prompt_tokens; /* -1, or at least 1 */

    double temperature;                         /* 0..2 */
    double top_p;                               /* 0..1 */
    int64_t top_k;                              /* -1 and 0: off */
    double min_p;                               /* 0..1 */
    double presence_penalty, frequency_penalty; /* -2..2 */
    double repetition_penalty;                  /* above 0, to 100 */
    bool has_seed;
    int64_t seed;
    int64_t max_tokens; /* 0: not given */
    int64_t min_tokens;
    bool ignore_eos;
    bool include_stop; /* the stop string or token is part of the answer */
    bool skip_special_tokens;
    bool logprobs;
    int64_t top_logprobs; /* 0..REQUEST_TOP_LOGPROBS_MAX */
    bool has_prompt_logprobs;
    int64_t prompt_logprobs; /* 0..REQUEST_TOP_LOGPROBS_MAX */
    struct str stops[REQUEST_STOPS_MAX];
    size_t stop_count;
    struct logit_bias *biases; /* (bias_count), owned */
    uint32_t bias_count;
    struct token_list stop_tokens;
    struct token_list allowed_tokens;
    struct token_list logprob_tokens; /* without repetitions */
    struct asked_shape shape;         /* that the answer is held to */
    json_t *bad_words;                /* an array of non-empty strings, or NULL */

    /* Filled by prep, which knows the vocabulary and the template. */
    struct token_list bad_word_runs; /* in the form of sampling.bad_words */
    enum tool_format tool_format;    /* the form of the calls that are read */
    bool holds_calls;                /* the shape has the calls of the tools */
    bool is_frame_only; /* the shape is only the order of messages, which no field asks for */
    struct thought_marks thought_marks;
    enum thought_start thought_start;
    struct token_list closing_tokens; /* that spell the closing mark of a thought */
    /* Control tokens that stay in the text despite skip_special_tokens: marks of calls and
     * thoughts. */
    int32_t shown_tokens[REQUEST_SHOWN_TOKENS_MAX];
    uint32_t shown_token_count;
    uint64_t shown_marks; /* the set of their marks */
};

/* True if the logprobs of the prompt are part of the answer: with prompt_logprobs, or with `echo`
 * and `logprobs` in a text completion. */
bool request_scores_prompt(const struct request *request);

/* Parses and checks a body; token ids must be below `vocabulary_count`. False and *ret_refusal
 * (status 400, or 503 without memory) if something is wrong; then nothing is to be released. */
bool request_parse(struct request *ret_request, enum endpoint endpoint, struct str body,
                   uint32_t vocabulary_count, struct refusal *ret_refusal) MUST_CHECK;
void request_release(struct request *request);
