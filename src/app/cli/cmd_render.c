/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/os.h"
#include "cli/command.h"
#include "cli/render_decision.h"
#include "cli/stdin_records.h"
#include "engine/model_sandbox.h"
#include "engine/vocabulary.h"
#include "hub/catalog.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)

struct render {
    const char *model, *template, *now;
    bool batch, decision;
    struct jinja_options options;
    struct vocabulary vocabulary;
};

#define AT(field) offsetof(struct render, field)
static const struct option rows[] = {
    {"model", OPTION_TEXT, AT(model), "M", .help = "model whose template is rendered"},
    {"template", OPTION_TEXT, AT(template), "F.jinja", .help = "template file to render instead"},
    {"now", OPTION_TEXT, AT(now), "TIME",
     .help = "clock of strftime_now, as 2026-01-15T12:34:56 (default: the machine's)"},
    {"decision", OPTION_SWITCH, AT(decision),
     .help = "read the body of a decision, and print its prompts as JSON"},
    {"batch", OPTION_SWITCH, AT(batch), .help = "read and print one JSON value per line"},
    {0},
};

static enum err answer_record(void *context, struct str record, struct buf *answer,
                              struct error *error) {
    struct render *render = context;
    json_t *variables;
    if (json_read(&variables, record, error) != OK) return error->code;
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    enum err err = OK;
    if (!json_is_object(variables)) {
        err = err_set(error, ERR_INVALID, "the variables are not a JSON object");
    } else {
        const json_t *tools = json_object_get(variables, "tools");
        err = jinja_template_render(
            vocabulary_template(&render->vocabulary, tools && !json_is_null(tools)), variables,
            &render->options, &text, NULL, error);
    }
    if (err == OK && render->batch)
        json_write_string(answer, buf_str(&text));
    else if (err == OK)
        buf_add_str(answer, buf_str(&text));
    buf_release(&text);
    json_decref(variables);
    return err;
}

static enum err answer_decision(void *context, struct str record, struct buf *answer,
                                struct error *error) {
    const struct render *render = context;
    if (render->batch) buf_add_byte(answer, '[');
    enum err err = render_decision(&render->vocabulary, &render->options, record,
                                   render->batch ? "," : "\n", answer, error);
    buf_add_byte(answer, render->batch ? ']' : '\n');
    return err;
}

/* --now is the local time of a clock on UTC. */
static enum err read_now(struct render *render, struct error *error) {
    struct tm at = {0};
    const char *end = render->now ? strptime(render->now, "%Y-%m-%dT%H:%M:%S", &at) : NULL;
    if (!render->now) {
        time_t now = (time_t)clock_unix_s();
        struct tm local;
        localtime_r(&now, &local);
        render->options.now_unix_s = now;
        render->options.utc_offset_s = (int32_t)local.tm_gmtoff;
        return OK;
    }
    if (!end || *end)
        return err_set(error, ERR_INVALID, "--now: '%s' is not of the form 2026-01-15T12:34:56",
                       render->now);
    render->options.now_unix_s = timegm(&at);
    return OK;
}

static enum err open_template(struct render *render, struct error *error) {
    if (render->template) {
        char *text;
        size_t bytes;
        model_sandbox_enter_for(render->template);
        enum err err = os_read_file(render->template, TEMPLATE_BYTES_MAX, &text, &bytes, error);
        if (err != OK) return err;
        os_drop_mark(text, &bytes);
        err = jinja_template_open(&render->vocabulary.template, (struct str){text, bytes}, error);
        free(text);
        return err;
    }
    struct model_choice choice;
    enum err err = catalog_choose(render->model, &choice, error);
    if (err != OK) return err;
    model_sandbox_enter_for(choice.path);
    err = vocabulary_open_file(&render->vocabulary, choice.path, error);
    if (err == OK && !render->vocabulary.template)
        err = err_set(error, ERR_INVALID, "model '%s' has no chat template", render->model);
    return err;
}

static enum err check(struct command_call *call, struct error *error) {
    struct render *render = call->chosen;
    if (!render->model == !render->template)
        return err_set(error, ERR_INVALID, "one of --model and --template is needed");
    if (render->decision && render->template)
        return err_set(error, ERR_INVALID, "--decision needs --model: labels are tokens");
    return read_now(render, error);
}

static enum err run(struct command_call *call, struct error *error) {
    struct render *render = call->chosen;
    enum err err = open_template(render, error);
    if (err != OK) return err;
    json_t *words = render->vocabulary.tokenizer ? vocabulary_context(&render->vocabulary) : NULL;
    render->options.model_context = words;
    err = stdin_records_answer(render->batch, render->decision ? answer_decision : answer_record,
                               render, error);
    json_decref(words);
    vocabulary_close(&render->vocabulary);
    return err;
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_render = {
    .name = "render",
    .summary = "turn messages into prompt text, by the chat template",
    .usage = "render --model M | --template F.jinja [options] < variables.json",
    .help =
        "Reads a JSON object with every template variable (messages, add_generation_prompt, …)\n"
        "and prints the prompt text. With --decision reads a body of /v1/decisions or\n"
        "/v1/systemone and prints one JSON object per question: its prompt and labels.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct render),
    .check = check,
    .run = run,
};
