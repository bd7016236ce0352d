/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/log_parts.h"

#include "compare/result_line.h"
#include "table/result_parts.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LABEL_BYTES 256

json_t *log_section(const char *heading) {
    return json_pack("{s:s,s:[]}", "heading", heading, "entries");
}

static void add_str(json_t *section, const char *label, struct str text) {
    if (text.bytes == 0) return;
    json_t *entry = json_object();
    json_object_set_new(entry, "label", json_string(label));
    json_object_set_new(entry, "text", json_stringn_nocheck(text.at, text.bytes));
    json_array_append_new(json_object_get(section, "entries"), entry);
}

void log_add(json_t *section, const char *label, const char *text) {
    add_str(section, label, str_from(text));
}

void log_add_json(json_t *section, const char *label, const json_t *value) {
    if (!value || json_is_null(value)) return;
    if (json_is_string(value)) {
        add_str(section, label, json_str(value));
        return;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    log_add(section, label, text);
    free(text);
}

void log_day(const json_t *unix_s, char ret_day[LOG_DAY_BYTES]) {
    time_t when = (time_t)json_integer_value(unix_s);
    struct tm parts;
    *ret_day = '\0';
    if (when > 0 && gmtime_r(&when, &parts) &&
        strftime(ret_day, LOG_DAY_BYTES, "%Y-%m-%d %H:%M UTC", &parts) == 0)
        *ret_day = '\0';
}

/* --- what was asked --- */

/* The text of a content: itself, or the texts of its parts and the names of others. */
static void add_content(json_t *section, const char *label, const json_t *content) {
    const json_t *part;
    size_t i;
    if (!json_is_array(content)) {
        log_add_json(section, label, content);
        return;
    }
    json_array_foreach(content, i, part) {
        const json_t *text = json_object_get(part, "text");
        if (json_is_string(text))
            log_add_json(section, label, text);
        else
            log_add_json(section, "A part that is no text", part);
    }
}

static const char *label_of(const char *role) {
    static const char *const labels[][2] = {{"system", "Instruction (system)"},
                                            {"developer", "Instruction (developer)"},
                                            {"user", "Question (user)"},
                                            {"assistant", "Earlier answer (assistant)"},
                                            {"tool", "Result of a tool"}};
    for (size_t i = 0; role && i < sizeof labels / sizeof *labels; i++)
        if (strcmp(role, labels[i][0]) == 0) return labels[i][1];
    return "Message";
}

json_t *log_asked(const json_t *request) {
    static const char *const others[][2] = {
        {"prompt", "Text"},
        {"input", "Text"},
        {"instructions", "Instruction"},
        {"questions", "Questions"},
        {"tools", "Tools that the model could call"},
        {"response_format", "The form that the answer was held to"}};
    json_t *section = log_section("What was asked");
    const json_t *body = json_object_get(request, "body"), *message;
    size_t i;
    json_array_foreach(json_object_get(body, "messages"), i, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        add_content(section, label_of(role), json_object_get(message, "content"));
        log_add_json(section, "Calls of tools in this message",
                     json_object_get(message, "tool_calls"));
    }
    for (i = 0; i < sizeof others / sizeof *others; i++)
        log_add_json(section, others[i][1], json_object_get(body, others[i][0]));
    log_add_json(section, "Interface of the request", json_object_get(request, "url"));
    return section;
}

static void add_column(json_t *section, const char *kind, const char *name, const json_t *value) {
    char label[LABEL_BYTES];
    snprintf(label, sizeof label, "%s %.200s", kind, name);
    log_add_json(section, label, value);
}

json_t *log_row(const json_t *request) {
    json_t *section = log_section("What was asked"), *value;
    const char *name;
    json_object_foreach(json_object_get(request, "row"), name, value)
        add_column(section, "Column", name, value);
    log_add(section, "The words of the question",
            "were made of this row by the template of the run, which is in none of its files; "
            "`quern table` with the options of the run makes them again, for --input");
    return section;
}

/* --- what computed --- */

static bool has_name(const json_t *model, const char *name) {
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(model, "names"), i, one) {
        const char *text = json_string_value(one);
        if (text && strcmp(text, name) == 0) return true;
    }
    return false;
}

/* A request that names no model was for the only one. */
static const json_t *find_model(const json_t *record, const char *name) {
    const json_t *model, *models = json_object_get(record, "models");
    if (!name) return json_array_size(models) == 1 ? json_array_get(models, 0) : NULL;
    const char *alias =
        json_string_value(json_object_get(json_object_get(record, "aliases"), name));
    size_t i;
    json_array_foreach(models, i, model) {
        if (has_name(model, name) || (alias && has_name(model, alias))) return model;
    }
    return NULL;
}

static void add_model(json_t *section, const json_t *model) {
    const json_t *file;
    char text[1024];
    size_t i;
    json_array_foreach(json_object_get(model, "files"), i, file) {
        const char *name = json_string_value(json_object_get(file, "name")),
                   *sum = json_string_value(json_object_get(file, "sha256"));
        snprintf(text, sizeof text, "%.400s, %lld bytes, SHA-256 %.64s", name ? name : "",
                 (long long)json_integer_value(json_object_get(file, "bytes")),
                 sum ? sum : "not known");
        log_add(section, "File of the model", text);
    }
    log_add_json(section, "SHA-256 of the template that turns messages into the model's text",
                 json_object_get(model, "chat_template_sha256"));
}

static void add_sampling(json_t *section, const json_t *body) {
    static const char *const names[][2] = {
        {"temperature", "How strong chance was (temperature)"},
        {"top_p", "Words were drawn from this share of all probability (top_p)"},
        {"top_k", "Words were drawn from this many of the most probable ones (top_k)"},
        {"min_p", "Least probability of a word, as share of the most probable one's (min_p)"},
        {"seed", "Seed of the chance (seed)"},
        {"n", "Answers that were asked for (n)"},
        {"max_tokens", "Largest length of the answer in tokens, pieces of words (max_tokens)"},
        {"max_completion_tokens",
         "Largest length of the answer in tokens, pieces of words (max_completion_tokens)"}};
    const json_t *temperature = json_object_get(body, "temperature");
    bool is_greedy = json_is_number(temperature) && json_number_value(temperature) == 0;
    log_add(section, "How the words were chosen",
            is_greedy ? "always the most probable one (temperature 0)"
            : json_object_get(body, "seed")
                ? "by chance within the limits below, from a given seed, so that it can be repeated"
                : "by chance within the limits below, without a given seed");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        log_add_json(section, names[i][1], json_object_get(body, names[i][0]));
}

static void add_program(json_t *section, const json_t *record) {
    char text[256];
    const json_t *quern = json_object_get(record, "quern");
    const char *version = json_string_value(json_object_get(quern, "version")),
               *sum = json_string_value(json_object_get(quern, "sha256")),
               *instructions = json_string_value(json_object_get(record, "instructions"));
    snprintf(text, sizeof text, "quern %.80s, SHA-256 %.64s", version ? version : "?",
             sum ? sum : "not known");
    log_add(section, "Program", text);
    if (json_array_size(json_object_get(record, "gpus")) > 0) {
        log_add_json(section, "Computed on GPUs", json_object_get(record, "gpus"));
    } else {
        snprintf(text, sizeof text, "the processor, with its instructions %.80s",
                 instructions ? instructions : "?");
        log_add(section, "Computed on", text);
    }
    if (json_array_size(json_object_get(record, "settings")) > 0)
        log_add_json(section, "Settings of the program that were not its defaults",
                     json_object_get(record, "settings"));
}

json_t *log_computed(const json_t *request, const json_t *result, const json_t *computed_by,
                     const json_t *created_at) {
    char day[LOG_DAY_BYTES];
    json_t *section = log_section("What answered");
    const json_t *body = json_object_get(request, "body"), *record;
    const json_t *answer = json_object_get(json_object_get(result, "response"), "body");
    const char *asked = json_string_value(json_object_get(body, "model")),
               *told = json_string_value(json_object_get(answer, "model")),
               *name = asked ? asked : told;
    size_t i, found = 0;
    if (name) log_add(section, "Model", name);
    json_array_foreach(computed_by, i, record) {
        const json_t *model = find_model(record, name);
        if (model && !name)
            log_add_json(section, "Model", json_array_get(json_object_get(model, "names"), 0));
        if (model && i > 0) log_add(section, "The run went on later", "with what follows");
        if (model) add_model(section, model);
        if (model) add_program(section, record);
        found += model != NULL;
        log_add_json(section, "Other servers that may have answered",
                     json_array_size(json_object_get(record, "upstreams")) > 0
                         ? json_object_get(record, "upstreams")
                         : NULL);
    }
    if (!found)
        log_add(section, "Files of the model",
                "the manifest names none: another server answered, "
                "or a test without a model");
    if (body) add_sampling(section, body);
    log_day(json_object_get(answer, "created"), day);
    log_add(section, "Answered at", day);
    log_day(created_at, day);
    log_add(section, "The run ended at", day);
    return section;
}

/* --- what was answered --- */

static const char *end_of(struct str reason) {
    if (str_is(reason, "\"stop\"")) return "the model ended its answer";
    if (str_is(reason, "\"length\""))
        return "it reached the largest number of tokens, so the answer may be cut off";
    if (str_is(reason, "\"tool_calls\"")) return "the model called a tool";
    if (str_is(reason, "\"content_filter\"")) return "a filter ended it";
    return NULL;
}

static void add_values(json_t *section, struct str text) {
    char label[LABEL_BYTES];
    struct result_line line;
    struct buf id;
    struct error ignored;
    const char *name;
    const json_t *value;
    buf_init(&id, BUF_UNLIMITED);
    if (result_line_read(&line, text, true, &id, &ignored) == OK) {
        if (line.is_json) json_object_foreach(line.values, name, value) {
                snprintf(label, sizeof label, "Field %.200s", name);
                log_add_json(section, label, value);
            }
        result_line_release(&line);
    }
    buf_release(&id);
}

static void add_parts(json_t *section, struct str text) {
    struct result_parts parts;
    struct buf out;
    if (!result_parts_read(text, &parts)) return;
    buf_init(&out, BUF_UNLIMITED);
    if (parts.answer.at) result_parts_write_text(&out, parts.answer);
    add_str(section, parts.is_refusal ? "The model refused" : "Answer", buf_str(&out));
    add_values(section, text);
    buf_clear(&out);
    result_parts_write_error(&out, &parts);
    add_str(section, "There is no answer, because", buf_str(&out));
    const char *end = end_of(parts.finish_reason);
    log_add(section, "Why the answer ended", end);
    if (!end && parts.finish_reason.at)
        add_str(section, "Why the answer ended", parts.finish_reason);
    buf_release(&out);
}

static void add_tokens(json_t *section, const json_t *usage) {
    char text[64];
    if (!json_is_object(usage)) return;
    snprintf(text, sizeof text, "%lld read, %lld written",
             (long long)json_integer_value(json_object_get(usage, "prompt_tokens")),
             (long long)json_integer_value(json_object_get(usage, "completion_tokens")));
    log_add(section, "Tokens (pieces of words)", text);
}

json_t *log_answered(struct str result_text, const json_t *result) {
    json_t *section = log_section("What was answered");
    const json_t *body = json_object_get(json_object_get(result, "response"), "body");
    const json_t *choice = json_first_by_index(json_object_get(body, "choices"));
    const json_t *message = json_object_get(choice, "message");
    const json_t *reasoning = json_object_get(message, "reasoning_content");
    if (!reasoning) reasoning = json_object_get(message, "reasoning");
    log_add_json(section, "What the model wrote for itself before (reasoning)", reasoning);
    add_parts(section, result_text);
    log_add_json(section, "Probabilities of the words", json_object_get(choice, "logprobs"));
    if (!choice) log_add_json(section, "The whole of it, as the program gave it", body);
    add_tokens(section, json_object_get(body, "usage"));
    return section;
}

json_t *log_answer_row(const json_t *request, json_t *row) {
    json_t *section = log_section("What was answered"), *value;
    const json_t *asked = json_object_get(request, "row");
    const char *name;
    json_object_foreach(row, name, value) {
        const char *text = json_string_value(value);
        if (json_object_get(asked, name) || strcmp(name, "custom_id") == 0 || (text && !*text))
            continue;
        if (strcmp(name, "answer") == 0) {
            log_add_json(section, "Answer", value);
        } else if (strcmp(name, "error") == 0) {
            log_add_json(section, "There is no answer, or one that does not fit, because", value);
        } else if (strcmp(name, "finish_reason") == 0 && text) {
            char quoted[64];
            snprintf(quoted, sizeof quoted, "\"%.60s\"", text);
            const char *end = end_of(str_from(quoted));
            log_add(section, "Why the answer ended", end ? end : text);
        } else {
            add_column(section, "Field", name, value);
        }
    }
    return section;
}

/* --- who judged it --- */

json_t *log_judged(const json_t *judgements) {
    static const char *const names[][2] = {{"verdict", "Verdict"},
                                           {"fields", "Corrected values"},
                                           {"rating", "Rating"},
                                           {"comment", "Comment"},
                                           {"version", "Version of this person's judgement"}};
    char day[LOG_DAY_BYTES];
    json_t *section = log_section("Who judged it");
    const json_t *line, *judgement;
    size_t i, k;
    json_array_foreach(judgements, i, line) {
        judgement = json_object_get(line, "judgement");
        if (!json_is_object(judgement)) judgement = line;
        const json_t *curator = json_object_get(judgement, "curator");
        log_add_json(section, "Person", curator ? curator : json_object_get(line, "curator"));
        log_day(json_object_get(judgement, "created_at"), day);
        log_add(section, "Judged at", day);
        for (k = 0; k < sizeof names / sizeof *names; k++)
            log_add_json(section, names[k][1], json_object_get(judgement, names[k][0]));
        if (json_is_true(json_object_get(judgement, "flagged")))
            log_add(section, "Marked", "for another look");
        if (judgement == line)
            log_add_json(section, "Right answer", json_object_get(line, "judgement"));
    }
    if (json_array_size(judgements) == 0)
        log_add(section, "Judgements", "none is known; --judgements FILE names a file of them");
    return section;
}
