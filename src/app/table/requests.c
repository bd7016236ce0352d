/* SPDX-License-Identifier: Apache-2.0 */
#include "table/requests.h"

#include "base/mem.h"
#include "base/os.h"
#include "jinja/jinja.h"
#include "json/json.h"
#include "json/span.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define FLUSH_BYTES ((size_t)256 << 10)
#define COLUMNS_TOLD_BYTES 200

struct table_plan {
    struct table_options options;
    struct jinja_template *prompt, *system;
    struct buf tail; /* end of each body: the members behind the messages, and the brackets */
};

static enum err read_file(const char *path, const char *option, char **ret_text, size_t *ret_bytes,
                          struct error *error) {
    enum err err = os_read_file(path, FILE_BYTES_MAX, ret_text, ret_bytes, error);
    if (err != OK) return err_prefix(error, "--%s", option);
    os_drop_mark(*ret_text, ret_bytes);
    return OK;
}

static enum err open_template(struct jinja_template **ret_template, const char *path,
                              const char *option, struct error *error) {
    char *text;
    size_t bytes;
    enum err err = read_file(path, option, &text, &bytes, error);
    if (err != OK) return err;
    struct str source = {text, bytes};
    if (str_find(source, STR("strftime_now"), 0) != SIZE_MAX)
        err = err_set(error, ERR_INVALID,
                      "--%s %s: a template of a table has no strftime_now, because a run that goes "
                      "on makes the same prompts again; put the date into the table",
                      option, path);
    else if (jinja_template_open(ret_template, source, error) != OK)
        err = err_prefix(error, "--%s %s", option, path);
    free(text);
    return err;
}

/* --- the members behind the messages --- */

/* Reads an object of JSON that an option gives. */
static enum err read_object(json_t **ret_object, struct str text, const char *option,
                            struct error *error) {
    size_t room = SIZE_MAX;
    enum err err = json_read_once(ret_object, text, &room, error);
    if (err != OK) return err_prefix(error, "--%s", option);
    if (json_is_object(*ret_object)) return OK;
    json_decref(*ret_object);
    return err_set(error, ERR_INVALID, "--%s: not a JSON object", option);
}

static enum err check_body(const struct table_plan *plan, const json_t *body, struct error *error) {
    const struct {
        const char *member, *option;
        bool is_given;
    } owned[] = {{"messages", "prompt", true},
                 {"response_format", "schema", plan->options.schema != NULL},
                 {"max_tokens", "max-tokens", plan->options.max_tokens != NULL},
                 {"temperature", "temperature", plan->options.temperature != NULL}};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        if (owned[i].is_given && json_object_get(body, owned[i].member))
            return err_set(error, ERR_INVALID, "--body has '%s', which --%s sets", owned[i].member,
                           owned[i].option);
    return OK;
}

static enum err add_body(struct table_plan *plan, struct error *error) {
    char *text = NULL;
    struct str given = str_trim(str_from(plan->options.body));
    json_t *body = NULL;
    enum err err = OK;
    if (given.bytes == 0) return OK;
    if (given.at[0] != '{') {
        size_t bytes = 0;
        err = read_file(plan->options.body, "body", &text, &bytes, error);
        if (err == OK) given = str_trim((struct str){text, bytes});
    }
    if (err == OK) err = read_object(&body, given, "body", error);
    if (err == OK) {
        err = check_body(plan, body, error);
        struct json_span_iter iter;
        struct str key, value;
        if (json_span_enter(&iter, given))
            while (json_span_member(&iter, &key, &value)) {
                buf_add_byte(&plan->tail, ',');
                buf_add_str(&plan->tail, key);
                buf_add_byte(&plan->tail, ':');
                buf_add_str(&plan->tail, value);
            }
        /* A line of JSONL holds no end of a line; in JSON they are space between values. */
        for (size_t i = 0; i < plan->tail.bytes; i++)
            if (plan->tail.at[i] == '\n' || plan->tail.at[i] == '\r') plan->tail.at[i] = ' ';
        json_decref(body);
    }
    free(text);
    return err;
}

static enum err add_schema(struct table_plan *plan, struct error *error) {
    char *text;
    size_t bytes;
    json_t *schema;
    enum err err = read_file(plan->options.schema, "schema", &text, &bytes, error);
    if (err != OK) return err;
    err = read_object(&schema, (struct str){text, bytes}, "schema", error);
    if (err == OK) {
        buf_add_text(&plan->tail, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
                                  "\"name\":\"answer\",\"strict\":true,\"schema\":");
        json_write(&plan->tail, schema);
        buf_add_text(&plan->tail, "}}");
        json_decref(schema);
    }
    free(text);
    return err;
}

static enum err add_number(struct table_plan *plan, const char *member, const char *number,
                           struct error *error) {
    struct str text = str_from(number), span;
    if (!number) return OK;
    if (!json_span_read(text, &span) || span.bytes != text.bytes ||
        !strchr("-0123456789", text.at[0]))
        return err_set(error, ERR_INVALID, "--%s: '%s' is no number",
                       member[0] == 'm' ? "max-tokens" : member, number);
    buf_printf(&plan->tail, ",\"%s\":%s", member, number);
    return OK;
}

enum err table_plan_open(struct table_plan **ret_plan, const struct table_options *options,
                         struct error *error) {
    struct table_plan *plan = mem_new(1, sizeof *plan);
    plan->options = *options;
    buf_init(&plan->tail, 8 * FILE_BYTES_MAX);
    buf_add_byte(&plan->tail, ']');
    enum err err = open_template(&plan->prompt, options->prompt, "prompt", error);
    if (err == OK && options->system)
        err = open_template(&plan->system, options->system, "system", error);
    if (err == OK && options->body) err = add_body(plan, error);
    if (err == OK) err = add_number(plan, "max_tokens", options->max_tokens, error);
    if (err == OK) err = add_number(plan, "temperature", options->temperature, error);
    if (err == OK && options->schema) err = add_schema(plan, error);
    buf_add_text(&plan->tail, "}}\n");
    if (err == OK)
        *ret_plan = plan;
    else
        table_plan_close(plan);
    return err;
}

void table_plan_close(struct table_plan *plan) {
    if (!plan) return;
    jinja_template_close(plan->prompt);
    jinja_template_close(plan->system);
    buf_release(&plan->tail);
    free(plan);
}

const struct table_options *table_plan_options(const struct table_plan *plan) {
    return &plan->options;
}

/* --- lines --- */

/* One call of table_requests_write. */
struct making {
    const struct table_plan *plan;
    const struct table_sink *sink;
    struct table_rows rows;
    json_t
        *variables; /* `row`, in front of the columns: some have names that no variable can have */
    struct buf message; /* a rendered text */
    struct buf lines;
};

static bool is_variable(const char *column) {
    const char *end = column;
    while (isascii((unsigned char)*end) && (isalnum((unsigned char)*end) || *end == '_')) end++;
    return !*end && !isdigit((unsigned char)*column);
}

/* Adds the columns to a sentence about one that is not there, each as a template writes it. */
static void tell_columns(const struct making *is, struct error *error) {
    const struct error why = *error;
    struct buf told;
    buf_init(&told, BUF_UNLIMITED);
    for (size_t i = 0; i < is->rows.column_count; i++) {
        const char *column = is->rows.columns[i], *comma = i > 0 ? ", " : "";
        if (told.bytes + strlen(column) > COLUMNS_TOLD_BYTES) {
            buf_printf(&told, "%s... (%zu in all)", comma, is->rows.column_count);
            break;
        }
        buf_printf(&told, is_variable(column) ? "%s%s" : "%srow[\"%s\"]", comma, column);
    }
    (void)err_set(error, why.code, "%s; the columns are: %.*s", why.text, STR_ARGS(buf_str(&told)));
    buf_release(&told);
}

static enum err add_message(struct making *is, const struct jinja_template *template,
                            const char *role, struct error *error) {
    struct jinja_options options = {.model_context = is->rows.row, .is_strict = true};
    buf_clear(&is->message);
    enum err err =
        jinja_template_render(template, is->variables, &options, &is->message, NULL, error);
    if (err != OK) {
        if (strstr(error->text, "is undefined")) tell_columns(is, error);
        return err_prefix(error, "line %" PRIu64 " of the table: the %s template", is->rows.line,
                          role[0] == 's' ? "system" : "prompt");
    }
    buf_printf(&is->lines, "%s{\"role\":\"%s\",\"content\":",
               role[0] == 's'     ? ""
               : is->plan->system ? ","
                                  : "",
               role);
    json_write_utf8_string(&is->lines, buf_str(&is->message));
    buf_add_byte(&is->lines, '}');
    return OK;
}

static enum err add_id(struct making *is, struct error *error) {
    const char *column = is->plan->options.id_column;
    struct str raw;
    if (!column) {
        buf_printf(&is->lines, "\"%" PRIu64 "\"", is->rows.number);
        return OK;
    }
    raw = json_span_get(buf_str(&is->rows.json), column);
    bool is_string = json_span_is_string(raw);
    if (str_is(raw, "null") || str_is(raw, "\"\""))
        return err_set(error, ERR_INVALID, "line %" PRIu64 " of the table: column '%s' is empty",
                       is->rows.line, column);
    if (!is_string && !strchr("-0123456789", raw.at[0]))
        return err_set(error, ERR_INVALID,
                       "line %" PRIu64 " of the table: column '%s' is neither text nor number",
                       is->rows.line, column);
    buf_printf(&is->lines, "%s%.*s%s", is_string ? "" : "\"", STR_ARGS(raw), is_string ? "" : "\"");
    return OK;
}

static enum err add_line(struct making *is, struct error *error) {
    const struct table_plan *plan = is->plan;
    buf_add_text(&is->lines, "{\"custom_id\":");
    enum err err = add_id(is, error);
    if (err != OK) return err;
    buf_add_text(&is->lines, ",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"row\":");
    buf_add_str(&is->lines, buf_str(&is->rows.json));
    buf_add_text(&is->lines, ",\"body\":{\"messages\":[");
    json_object_set_nocheck(is->variables, "row", is->rows.row);
    if (plan->system) err = add_message(is, plan->system, "system", error);
    if (err == OK) err = add_message(is, plan->prompt, "user", error);
    buf_add_str(&is->lines, buf_str(&plan->tail));
    if (err == OK && is->lines.overflowed)
        err = err_set(error, ERR_LIMIT, "line %" PRIu64 " of the table: the request is too long",
                      is->rows.line);
    return err;
}

static enum err flush(struct making *is, size_t least, struct error *error) {
    if (is->lines.bytes < least || is->lines.bytes == 0) return OK;
    enum err err = is->sink->take(is->sink->context, is->lines.at, is->lines.bytes, error);
    buf_clear(&is->lines);
    return err;
}

/* The column that --id names exists. */
static enum err check_columns(const struct making *is, struct error *error) {
    bool has_id = !is->plan->options.id_column;
    for (size_t i = 0; i < is->rows.column_count; i++) {
        const char *column = is->rows.columns[i];
        has_id = has_id || strcmp(column, is->plan->options.id_column) == 0;
    }
    if (has_id) return OK;
    (void)err_set(error, ERR_INVALID, "--id: there is no column '%s'", is->plan->options.id_column);
    tell_columns(is, error);
    return ERR_INVALID;
}

static enum err write_all(struct making *is, uint64_t limit, struct error *error) {
    bool found = true, is_first = true;
    while (limit == 0 || is->rows.number < limit) {
        enum err err = table_rows_next(&is->rows, &found, error);
        if (err == OK && found && is_first) err = check_columns(is, error);
        if (err == OK && found) err = add_line(is, error);
        if (err == OK) err = flush(is, FLUSH_BYTES, error);
        if (err != OK) return err;
        if (!found) break;
        is_first = false;
    }
    if (is->rows.number == 0) return err_set(error, ERR_INVALID, "the table has no rows");
    return flush(is, 0, error);
}

enum err table_requests_write(const struct table_plan *plan, const char *path, uint64_t limit,
                              const struct table_sink *sink, struct error *error) {
    struct making is = {.plan = plan, .sink = sink};
    enum table_kind kind = plan->options.kind;
    char separator = plan->options.delimiter ? plan->options.delimiter[0] : 0;
    enum err err = table_rows_open(&is.rows, path, kind, separator, error);
    if (err != OK) return err_prefix(error, "%s", path);
    buf_init(&is.message, BUF_UNLIMITED);
    buf_init(&is.lines, BUF_UNLIMITED);
    is.variables = json_object();
    err = write_all(&is, limit, error);
    json_decref(is.variables);
    table_rows_close(&is.rows);
    buf_release(&is.message);
    buf_release(&is.lines);
    return err == OK ? OK : err_prefix(error, "%s", path);
}
