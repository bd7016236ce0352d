/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/decision.h"

#include "base/mem.h"
#include "base/min_max.h"
#include "decisions/answer.h"
#include "decisions/input.h"
#include "decisions/systemone.h"
#include "decisions/temperature.h"
#include "engine/decision_labels.h"
#include "engine/request_fields.h"
#include "json/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* At the least log probability that the backend gives, a label counts as impossible. */
#define LOGPROB_LEAST (-9999.0F)
/* A user message holds the state, and its block is bounded by the question's own limits. */
#define CONTENT_BYTES_MAX ((size_t)128 * 1024 * 1024)

/* The state while the questions of one request become prompts. */
struct preparation {
    struct decision *decision;
    const struct served_model *model;
    struct prep_options options; /* without a limit of length */
    uint32_t context_tokens_max;
    size_t memory_left;
    struct decision_input input;
    struct ids tails[LABEL_SETS]; /* how every prompt of a set of labels ends */
    const char *text_member;
    struct refusal *refusal;
};

/* --- the body --- */

/* Refuses members that a client must not believe to be in force, except with the value `harmless`,
 * which asks for what a decision does anyway. */
static bool check_unsupported(const json_t *body, struct refusal *refusal) {
    static const struct {
        const char *name, *harmless, *reason;
    } rows[] = {
        {"n", "1", "a question has one answer"},
        {"images", NULL, "decisions read text only"},
        {"audio", NULL, "decisions read text only"},
        {"videos", NULL, "decisions read text only"},
        {"assets", NULL, "decisions read text only"},
        {"joint", NULL, "each question is asked by itself"},
        {"prompt_format_version", "1", "questions are worded in format 1"},
        {"tools", NULL, "a question is answered by one of its options"},
        {"response_format", NULL, "a question is answered by one of its options"},
        {"structured_outputs", NULL, "a question is answered by one of its options"},
        {"reasoning_effort", "none",
         "an answer is the first token, so that no thought precedes it"},
        {"chat_template_kwargs", NULL, "the prompt of a question has a fixed form"},
        {"chat_template", NULL, "the prompt of a question has a fixed form"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *value = json_member(body, rows[i].name);
        const char *harmless = rows[i].harmless;
        bool is_one =
            harmless && *harmless == '1' && json_is_number(value) && json_number_value(value) == 1;
        bool is_text = harmless && str_is(json_str(value), harmless);
        if (value && !is_one && !is_text)
            return refuse_unsupported(refusal, rows[i].name, rows[i].reason);
    }
    const json_t *stream = json_member(body, "stream");
    if (stream && !json_is_boolean(stream))
        return refuse_type(refusal, "stream", "a boolean", stream);
    return !json_is_true(stream) ||
           refuse(refusal, "invalid_value", "stream",
                  "Invalid 'stream': decisions come all at once; expected false.");
}

const char *decision_text_member(enum endpoint endpoint) {
    return endpoint == ENDPOINT_SYSTEMONE ? "state" : "input";
}

/* Reads the text and the questions of a body. */
static bool read_questions(struct preparation *is, enum endpoint endpoint) {
    struct decision *decision = is->decision;
    bool is_systemone = endpoint == ENDPOINT_SYSTEMONE;
    bool is_good = is_systemone ? systemone_input_read(&is->input, decision->body, is->refusal)
                                : decision_input_read(&is->input, decision->body, is->refusal);
    if (!is_good) return false;
    json_object_del(decision->body, is->text_member); /* which may be long, and is a text now */
    is_good = is_systemone
                  ? systemone_questions_read(&decision->questions, decision->body, is->refusal)
                  : questions_read(&decision->questions, decision->body, is->refusal);
    return is_good && temperatures_read(&decision->questions, decision->body, is->refusal);
}

static bool read_body(struct preparation *is, enum endpoint endpoint, struct str text) {
    struct request_body read;
    struct decision *decision = is->decision;
    if (!request_body_read(&read, text, NULL, 0, is->refusal)) return false;
    decision->body = read.values;
    is->memory_left = read.memory_left;
    const json_t *model = json_member(decision->body, "model");
    if (!model) return refuse_missing(is->refusal, "model");
    if (!json_is_string(model)) return refuse_type(is->refusal, "model", "a string", model);
    return check_unsupported(decision->body, is->refusal) &&
           request_check_caller(decision->body, is->refusal) && read_questions(is, endpoint);
}

/* --- prompts --- */

static void add_message(json_t *messages, const char *role, struct str content) {
    json_t *message = json_object();
    json_object_set_new(message, "role", json_string(role));
    json_object_set_new(message, "content",
                        json_stringn(content.bytes ? content.at : "", content.bytes));
    json_array_append_new(messages, message);
}

/* Renders and encodes a chat with one user message; the limit of length is the caller's. */
static bool make_prompt(struct preparation *is, struct str content, struct prompt *prompt) {
    struct request request = {
        .endpoint = ENDPOINT_CHAT,
        .body = json_object(),
        .memory_left = is->memory_left,
        .prompt_count = 1,
        .choices = 1,
        .candidates = 1,
        .max_tokens = 1,
        .thinking_token_budget = -1,
        .add_generation_prompt = true,
        .closes_thought = true,
    };
    uint32_t ignored;
    request.messages = json_array();
    request.template_variables = json_object();
    json_object_set_new(request.body, "messages", request.messages);
    json_object_set_new(request.body, "template_variables", request.template_variables);
    json_object_set_new(request.template_variables, "enable_thinking", json_false());
    if (is->input.has_system) add_message(request.messages, "system", buf_str(&is->input.system));
    add_message(request.messages, "user", content);
    bool is_good = prep_prompts(&request, is->model, &is->options, prompt, &ignored, is->refusal);
    request_release(&request);
    if (!is_good && strcmp(is->refusal->param, "messages") == 0)
        snprintf(is->refusal->param, sizeof is->refusal->param, "%s", is->text_member);
    return is_good;
}

/* Learns how prompts with labels of a set end from two that differ before their last line, and
 * finds the labels' tokens behind that end. */
static bool find_set(struct preparation *is, enum label_set set, bool needs_pairs) {
    const struct tokenizer *tokenizer = is->model->vocabulary.tokenizer;
    struct prompt prompts[2] = {{.token_count = 0}};
    static const char *const starts[2] = {"x\n", "y.\n"};
    bool is_good = true;
    for (size_t i = 0; i < 2 && is_good; i++) {
        struct buf text;
        buf_init(&text, BUF_UNLIMITED);
        buf_add_text(&text, starts[i]);
        buf_add_text(&text, wording_last_lines[set]);
        is_good = make_prompt(is, buf_str(&text), &prompts[i]);
        buf_release(&text);
    }
    if (is_good) {
        is->tails[set] = decision_labels_tail(tokenizer, &prompts[0].ids, &prompts[1].ids);
        is_good = decision_labels_find(is->decision->labels, tokenizer, set, &is->tails[set],
                                       needs_pairs, is->refusal);
    }
    prompt_release(&prompts[0]);
    prompt_release(&prompts[1]);
    return is_good;
}

/* Finds the labels of all sets that questions have. */
static bool find_labels(struct preparation *is) {
    struct decision *decision = is->decision;
    bool needs[LABEL_SETS] = {false}, needs_pairs = false, is_good = true;
    for (uint32_t i = 0; i < decision->questions.count; i++) {
        needs[decision->questions.at[i].labels] = true;
        needs_pairs = needs_pairs || decision->questions.at[i].option_count > WORDING_LETTERS;
    }
    decision->labels = mem_new(1, sizeof *decision->labels);
    for (size_t i = 0; i < LABEL_SETS && is_good; i++)
        is_good = !needs[i] || find_set(is, (enum label_set)i, needs_pairs);
    return is_good;
}

/* The name of a question in a refusal: questions[2], or questions.remote. */
static void name_question(const struct decision *decision, uint32_t index,
                          char ret_name[REFUSAL_PARAM_BYTES]) {
    const struct question *question = &decision->questions.at[index];
    if (decision->questions.is_systemone)
        snprintf(ret_name, REFUSAL_PARAM_BYTES, "questions.%.*s", STR_ARGS(question->id));
    else
        snprintf(ret_name, REFUSAL_PARAM_BYTES, "questions[%" PRIu32 "]", index);
}

static bool check_prompt(struct preparation *is, uint32_t index, const struct ids *ids) {
    const struct question *question = &is->decision->questions.at[index];
    const struct ids *tail = &is->tails[question->labels];
    size_t label = decision_labels_are_two(is->decision->labels, question) ? 2 : 1;
    char name[REFUSAL_PARAM_BYTES];
    name_question(is->decision, index, name);
    if (ids->count + label > is->context_tokens_max)
        return refuse(is->refusal, "context_length_exceeded", is->text_member,
                      "This model's maximum context length is %" PRIu32 " tokens. However, your "
                      "input with %s resulted in %zu tokens, and a label has "
                      "%zu. Please reduce the length of the input or of the question.",
                      is->context_tokens_max, name, ids->count, label);
    if (ids->count < tail->count ||
        memcmp(ids->at + ids->count - tail->count, tail->at, tail->count * sizeof *ids->at) != 0)
        return refuse(is->refusal, "invalid_value", is->text_member,
                      "Invalid '%s': with %s the chat template of this model ends the prompt in "
                      "another way, after which the labels' tokens are not known.",
                      is->text_member, name);
    return true;
}

/* Keeps the tokens of a prompt: the first one whole, of the others what differs. */
static void keep_prompt(struct decision *decision, uint32_t index, const struct ids *ids) {
    struct decision_prompt *prompt = &decision->prompts[index];
    if (index == 0)
        for (size_t i = 0; i < ids->count; i++) ids_add(&decision->first, ids->at[i]);
    while (prompt->common < ids->count && prompt->common < decision->first.count &&
           ids->at[prompt->common] == decision->first.at[prompt->common])
        prompt->common++;
    prompt->at = decision->ends.count;
    prompt->count = ids->count - prompt->common;
    for (size_t i = prompt->common; i < ids->count; i++) ids_add(&decision->ends, ids->at[i]);
}

/* Writes the question behind the state, which is long, and takes it away again. */
static bool add_prompt(struct preparation *is, uint32_t index) {
    const struct question *question = &is->decision->questions.at[index];
    const struct label_text *texts = decision_labels_texts(is->decision->labels, question);
    struct prompt prompt = {.token_count = 0};
    struct buf *content = &is->input.state;
    size_t bytes = content->bytes;
    buf_add_text(content, "\n\n");
    wording_write_question(content, question, texts);
    bool is_good =
        make_prompt(is, buf_str(content), &prompt) && check_prompt(is, index, &prompt.ids);
    if (is_good) keep_prompt(is->decision, index, &prompt.ids);
    prompt_release(&prompt);
    buf_truncate(content, bytes);
    return is_good;
}

static bool add_prompts(struct preparation *is, const atomic_bool *is_cancelled) {
    bool is_good = true;
    is->input.state.bytes_max = CONTENT_BYTES_MAX;
    is->decision->prompts = mem_new(is->decision->questions.count, sizeof *is->decision->prompts);
    for (uint32_t i = 0; i < is->decision->questions.count && is_good; i++) {
        if (is_cancelled && atomic_load(is_cancelled))
            is_good =
                refuse_status(is->refusal, 499, "cancelled", NULL, "The request was cancelled.");
        else
            is_good = add_prompt(is, i);
    }
    return is_good;
}

/* --- reads --- */

static void add_read(struct decision *decision, uint32_t question, int32_t letter,
                     const int32_t *labels, uint32_t label_count, size_t *capacity) {
    decision->reads =
        vec_grow(decision->reads, decision->read_count, capacity, sizeof *decision->reads);
    decision->reads[decision->read_count++] =
        (struct decision_read){question, letter, labels, label_count, decision->result_count};
    decision->result_count += label_count;
}

/* The order of the results of a question is that of decision_logprobs. */
static void add_reads(struct decision *decision) {
    const struct decision_labels *labels = decision->labels;
    size_t capacity = 0;
    for (uint32_t i = 0; i < decision->questions.count; i++) {
        const struct question *question = &decision->questions.at[i];
        uint32_t options = question->option_count;
        if (!decision_labels_are_two(labels, question)) {
            const int32_t *tokens = decision_labels_tokens(labels, question);
            for (uint32_t at = 0; at < options; at += DECISION_READ_LABELS_MAX)
                add_read(decision, i, TOKEN_NONE, tokens + at,
                         min_u32(options - at, DECISION_READ_LABELS_MAX), &capacity);
            continue;
        }
        uint32_t firsts = (options + WORDING_LETTERS - 1) / WORDING_LETTERS;
        add_read(decision, i, TOKEN_NONE, labels->letters, firsts, &capacity);
        for (uint32_t k = 0; k < firsts; k++)
            add_read(decision, i, labels->letters[k], labels->seconds[k],
                     min_u32(options - k * WORDING_LETTERS, WORDING_LETTERS), &capacity);
    }
    decision->results = mem_new(decision->result_count, sizeof *decision->results);
}

bool decision_prepare(struct decision *decision, enum endpoint endpoint, struct str body,
                      const struct served_model *model, const struct prep_options *options,
                      const atomic_bool *is_cancelled, struct refusal *ret_refusal) {
    struct preparation is = {.decision = decision,
                             .model = model,
                             .options = *options,
                             .context_tokens_max = options->context_tokens_max,
                             .text_member = decision_text_member(endpoint),
                             .refusal = ret_refusal};
    is.options.context_tokens_max = UINT32_MAX;
    if (!vocabulary_template(&model->vocabulary, false))
        return refuse(ret_refusal, "unsupported_model", "model",
                      "This model cannot be asked questions: it has no chat template.");
    bool is_good =
        read_body(&is, endpoint, body) && find_labels(&is) && add_prompts(&is, is_cancelled);
    if (is_good) add_reads(decision);
    decision_input_release(&is.input);
    for (size_t i = 0; i < LABEL_SETS; i++) ids_release(&is.tails[i]);
    return is_good;
}

void decision_release(struct decision *decision) {
    questions_release(&decision->questions);
    json_decref(decision->body);
    free(decision->labels);
    ids_release(&decision->first);
    ids_release(&decision->ends);
    free(decision->prompts);
    free(decision->reads);
    free(decision->results);
    *decision = (struct decision){.body = NULL};
}

void decision_read_tokens(const struct decision *decision, const struct decision_read *read,
                          struct ids *ids) {
    const struct decision_prompt *prompt = &decision->prompts[read->question];
    ids->count = 0;
    for (size_t i = 0; i < prompt->common; i++) ids_add(ids, decision->first.at[i]);
    for (size_t i = 0; i < prompt->count; i++) ids_add(ids, decision->ends.at[prompt->at + i]);
    if (read->letter != TOKEN_NONE) ids_add(ids, read->letter);
}

void decision_take(struct decision *decision, const struct decision_read *read,
                   const struct sample *sample) {
    float *results = decision->results + read->results_at;
    for (uint32_t i = 0; i < read->label_count; i++)
        for (uint32_t k = 0; k < sample->top_count; k++)
            if (sample->top[k].token == read->labels[i]) results[i] = sample->top[k].logprob;
}

/* --- the answer --- */

/* The log probabilities of a question's labels; `at` is the first of its results. Returns their
 * number in `results`. */
static size_t question_logprobs(const struct decision *decision, uint32_t index,
                                const float *results, double *ret_logprobs) {
    uint32_t options = decision->questions.at[index].option_count;
    bool is_two = decision_labels_are_two(decision->labels, &decision->questions.at[index]);
    uint32_t firsts = is_two ? (options + WORDING_LETTERS - 1) / WORDING_LETTERS : 0;
    for (uint32_t i = 0; i < options; i++) {
        ret_logprobs[i] = (double)results[firsts + i];
        if (is_two) ret_logprobs[i] += (double)results[i / WORDING_LETTERS];
    }
    return firsts + options;
}

bool decision_check_results(const struct decision *decision, struct refusal *ret_refusal) {
    const float *at = decision->results;
    double logprobs[QUESTION_OPTIONS_MAX];
    for (uint32_t i = 0; i < decision->questions.count; i++) {
        at += question_logprobs(decision, i, at, logprobs);
        bool is_possible = false;
        for (uint32_t k = 0; k < decision->questions.at[i].option_count; k++)
            is_possible = is_possible || logprobs[k] > (double)LOGPROB_LEAST;
        if (is_possible) continue;
        char name[REFUSAL_PARAM_BYTES];
        name_question(decision, i, name);
        return refuse_status(ret_refusal, 500, NULL, NULL,
                             "The model gave no label of %s a probability that is a number.", name);
    }
    return true;
}

static void write_answer(struct buf *out, const struct decision *decision, uint32_t index,
                         const struct shares *shares) {
    const struct question *question = &decision->questions.at[index];
    if (index > 0) buf_add_byte(out, ',');
    if (decision->questions.is_systemone) {
        json_write_string(out, question->id);
        buf_add_byte(out, ':');
        answer_write_systemone(out, question, shares);
    } else {
        answer_write_question(out, question, shares);
    }
}

void decision_write_body(struct buf *out, struct str model_name, const struct decision *decision) {
    const float *at = decision->results;
    double logprobs[QUESTION_OPTIONS_MAX];
    bool is_systemone = decision->questions.is_systemone;
    assert(decision->done_count == decision->read_count);
    buf_add_text(out, "{\"model\":");
    json_write_string(out, model_name);
    buf_printf(out, ",\"answers\":%c", is_systemone ? '{' : '[');
    for (uint32_t i = 0; i < decision->questions.count; i++) {
        const struct question *question = &decision->questions.at[i];
        at += question_logprobs(decision, i, at, logprobs);
        struct shares shares = shares_of(logprobs, question->option_count, question->temperature);
        write_answer(out, decision, i, &shares);
    }
    buf_printf(out,
               "%c,\"usage\":{\"input_tokens\":%" PRIu64
               ",\"input_tokens_details\":{\"cached_tokens\":%" PRIu64 ",\"cache_write_tokens\":0},"
               "\"output_tokens\":0,\"output_tokens_details\":{\"reasoning_tokens\":0},"
               "\"total_tokens\":%" PRIu64 "}}",
               is_systemone ? '}' : ']', decision->input_tokens, decision->cached_tokens,
               decision->input_tokens);
}
