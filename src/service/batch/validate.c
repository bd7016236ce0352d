/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/validate.h"

#include "base/crc.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/utf8.h"
#include "batch/idset.h"
#include "batch/index.h"
#include "batch/line.h"
#include "json/json.h"
#include "json/jsonl.h"
#include "json/span.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULTY_LINE_MEMORY_MAX ((size_t)256 << 20) /* the tree that finds a line's fault */
#define PIECE_BYTES ((size_t)256 << 10)
#define ERRORS_BYTES_MAX ((size_t)4 << 20)

struct validation {
    const struct batch_validate_options *options;
    struct jsonl_splitter splitter;
    struct buf window; /* the bytes of the file from window_at on */
    uint64_t window_at;
    struct sha256 hash;
    struct idset ids;
    struct index_builder *index;
    uint64_t requests; /* lines that are not blank */
    struct buf errors; /* items of the array */
    size_t error_count;
    uint64_t refused_count; /* lines that `refused` was called for */
    bool too_many;
    bool done;                    /* no further line needs to be read */
    char model[MODEL_NAME_BYTES]; /* the model of the line before; a worker serves it */
    enum shape_handling shapes;   /* handling by that model */
    char default_model[MODEL_NAME_BYTES];
    bool asked_default;
    bool models_differ;
    struct buf scratch; /* a custom_id */
    struct buf model_scratch;
    struct buf shape; /* the fields of a line that ask for a shape */
    struct buf other; /* an earlier line, to compare its custom_id */
    enum err failure; /* a failure of the machine */
    struct error *error;
};

static void add_error(struct buf *errors, size_t *count, const char *code, uint64_t line,
                      const char *message, const char *param) {
    buf_printf(errors, "%s{\"code\":\"%s\",\"line\":", (*count)++ ? "," : "", code);
    if (line)
        buf_printf(errors, "%llu", (unsigned long long)line);
    else
        buf_add_text(errors, "null");
    buf_add_text(errors, ",\"message\":");
    json_write_string(errors, str_from(message));
    buf_add_text(errors, ",\"param\":");
    if (param)
        json_write_string(errors, str_from(param));
    else
        buf_add_text(errors, "null");
    buf_add_byte(errors, '}');
}

char *batch_single_error(const char *code, const char *param, const char *message) {
    struct buf text;
    size_t count = 0;
    buf_init(&text, BUF_UNLIMITED);
    buf_add_byte(&text, '[');
    add_error(&text, &count, code, 0, message, param);
    buf_add_byte(&text, ']');
    return text.at;
}

static void note(struct validation *v, const struct jsonl_line *line,
                 const struct refusal *refusal) {
    if (v->options->refused) {
        v->options->refused(v->options->context, line->number, refusal);
        v->refused_count++;
        return;
    }
    add_error(&v->errors, &v->error_count, refusal->code, line->number, refusal->message,
              *refusal->param ? refusal->param : NULL);
    if (v->error_count >= v->options->rules.errors_max) v->done = true;
}

/* --- equal custom_ids --- */

struct same_question {
    struct validation *v;
    struct str id;
};

/* Reads an earlier request again and compares its real custom_id. */
static bool has_same_id(void *context, uint32_t line) {
    const struct same_question *question = context;
    struct validation *v = question->v;
    struct index_entry entry;
    struct batch_line parsed;
    if (v->failure != OK) return false;
    v->failure = index_builder_get(v->index, line, &entry, v->error);
    if (v->failure != OK) return false;
    buf_clear(&v->other);
    char *room = buf_reserve(&v->other, entry.bytes);
    assert(room);
    v->failure = os_pread_all(v->options->input_fd, room, entry.bytes, entry.offset, v->error);
    if (v->failure != OK) return false;
    struct str text = {room, entry.bytes};
    if (batch_line_read(text, &parsed) != BATCH_LINE_READ || !json_span_is_string(parsed.custom_id))
        return false;
    struct buf decoded;
    buf_init(&decoded, BUF_UNLIMITED);
    bool same = str_equals(json_span_text(parsed.custom_id, &decoded), question->id);
    buf_release(&decoded);
    return same;
}

static bool check_id(struct validation *v, const struct batch_line *parsed,
                     struct refusal *ret_refusal) {
    struct str id = json_span_text(parsed->custom_id, &v->scratch);
    struct same_question question = {v, id};
    uint32_t first;
    struct index_entry entry = {0};
    if (idset_add(&v->ids, id, (uint32_t)v->requests, has_same_id, &question, &first)) return true;
    if (v->failure == OK) v->failure = index_builder_get(v->index, first, &entry, v->error);
    struct str shown = {id.at, id.bytes < 100 ? id.bytes : 100};
    shown.bytes = utf8_valid_prefix(shown);
    return refuse(ret_refusal, "duplicate_custom_id", "custom_id",
                  "Duplicate custom_id: '%.*s' is used on line %u already.", STR_ARGS(shown),
                  entry.number);
}

/* --- one line --- */

static bool has_default_model(struct validation *v) {
    const struct batch_validate_options *options = v->options;
    if (options->rules.needs_model || !options->default_model) return false;
    if (!v->asked_default && !options->default_model(options->context, v->default_model))
        v->default_model[0] = '\0';
    v->asked_default = true;
    return *v->default_model != '\0';
}

static bool refuse_model(struct validation *v, struct str model, struct str shown,
                         struct refusal *ret_refusal) {
    struct buf advice;
    buf_init(&advice, REFUSAL_MESSAGE_BYTES);
    if (v->options->advise) v->options->advise(v->options->context, model, &advice);
    refuse(ret_refusal, "model_not_found", "body.model",
           "The provided model '%.*s' is not supported by the Batch API.%s", STR_ARGS(shown),
           advice.at ? advice.at : "");
    buf_release(&advice);
    return false;
}

static bool check_model(struct validation *v, const struct batch_line *parsed,
                        struct refusal *ret_refusal) {
    bool may_lack = !parsed->model.at && has_default_model(v);
    if (!batch_line_check_model(parsed, may_lack, ret_refusal)) return false;
    struct str model = parsed->model.at ? json_span_text(parsed->model, &v->model_scratch)
                                        : str_from(v->default_model);
    if (*v->model && str_is(model, v->model)) return true;
    struct str shown = {model.at, model.bytes < 100 ? model.bytes : 100};
    shown.bytes = utf8_valid_prefix(shown);
    bool is_served = model.bytes > 0 && model.bytes < sizeof v->model &&
                     !memchr(model.at, '\0', model.bytes) &&
                     v->options->serves(v->options->context, model);
    if (!is_served) return refuse_model(v, model, shown, ret_refusal);
    if (*v->model && v->options->rules.strict_single_model) {
        return refuse(ret_refusal, "model_mismatch", "body.model",
                      "All requests of a batch must use one model: '%.*s' is not '%.100s'.",
                      STR_ARGS(shown), v->model);
    }
    if (*v->model) v->models_differ = true;
    memcpy(v->model, model.at, model.bytes);
    v->model[model.bytes] = '\0';
    v->shapes = v->options->handles_shapes ? v->options->handles_shapes(v->options->context, model)
                                           : SHAPES_HELD;
    return true;
}

/* Anthropic's API tells what is wrong with a request in that request's own result. Its line passes
 * here, and its translator or the runner refuses it when it runs. */
static bool pass_message(struct validation *v, const struct batch_line *parsed) {
    struct refusal ignored;
    if (!parsed->model.at || !check_model(v, parsed, &ignored)) v->models_differ = true;
    return true;
}

/* Whether the shape that the line asks for can be held, or where an upstream gets it, read: an
 * answer is compared with it afterwards. */
static bool check_shape(struct validation *v, const struct batch_line *parsed,
                        struct refusal *ret_refusal) {
    struct refusal refusal;
    bool generates = parsed->endpoint == ENDPOINT_CHAT || parsed->endpoint == ENDPOINT_COMPLETIONS;
    if (!generates) return true;
    if (v->shapes == SHAPES_REFUSED && batch_line_asks_shape(parsed))
        return refuse(ret_refusal, "unsupported_parameter", "body",
                      "The upstream of '%.100s' does no structured output ('shapes=refuse' of its "
                      "--upstream).",
                      v->model);
    if (!v->options->shapes) return true;
    struct str fields = batch_line_shape(parsed, &v->shape);
    if (fields.bytes == 0) return true;
    bool is_good = v->shapes == SHAPES_HELD
                       ? shape_check_take(v->options->shapes, fields, &refusal)
                       : shape_check_read(v->options->shapes, fields, &refusal);
    if (is_good) return true;
    char param[REFUSAL_PARAM_BYTES + 8];
    snprintf(param, sizeof param, "body%s%s", *refusal.param ? "." : "", refusal.param);
    return refuse(ret_refusal, refusal.code, param, "%s", refusal.message);
}

/* Refuses a line that is no JSON, with the fault and its place: a line may have many kilobytes. */
static bool refuse_text(struct str text, struct refusal *ret_refusal) {
    static const struct str known = {"not valid JSON: ", 16};
    struct error error = {0};
    json_t *tree = NULL;
    size_t room = FAULTY_LINE_MEMORY_MAX;
    enum err err = ERR_INVALID;
    if (str_starts_with(text, STR("\xEF\xBB\xBF")))
        (void)err_set(&error, ERR_INVALID, "a byte-order mark, at byte 1");
    else
        err = json_read_within(&tree, text, &room, &error);
    json_decref(tree);
    struct str why = str_from(err == ERR_INVALID ? error.text : "");
    if (str_starts_with(why, known)) why = str_skip(why, known.bytes);
    return refuse(ret_refusal, "invalid_json_line", NULL,
                  "This line is not parseable as valid JSON%s%.*s.", why.bytes > 0 ? ": " : "",
                  STR_ARGS(why));
}

/* Makes the contract's checks in their order. */
static bool check_line(struct validation *v, struct str text, struct batch_line *parsed,
                       struct refusal *ret_refusal) {
    enum batch_line_reading reading =
        json_span_is_utf8(text) ? batch_line_read(text, parsed) : BATCH_LINE_NOT_JSON;
    switch (reading) {
    case BATCH_LINE_NOT_JSON: return refuse_text(text, ret_refusal);
    case BATCH_LINE_NOT_OBJECT:
        return refuse(ret_refusal, "invalid_request", NULL, "Each line must be a JSON object");
    case BATCH_LINE_READ: break;
    }
    if (!batch_line_check_form(parsed, ret_refusal) || !check_id(v, parsed, ret_refusal) ||
        !batch_line_check_target(parsed, v->options->endpoint, v->options->rules.strict_url,
                                 ret_refusal))
        return false;
    if (parsed->endpoint == ENDPOINT_MESSAGES) return pass_message(v, parsed);
    return check_model(v, parsed, ret_refusal) && batch_line_check_body(parsed, ret_refusal) &&
           check_shape(v, parsed, ret_refusal);
}

static uint64_t prefix_key(const struct batch_line *parsed) {
    return index_prefix_key(parsed->model, parsed->url, batch_line_prompt(parsed));
}

static void take_line(void *context, const struct jsonl_line *line) {
    struct validation *v = context;
    struct batch_line parsed = {0};
    struct refusal refusal;
    if (v->done || v->failure != OK) return;
    if (v->requests == v->options->rules.lines_max) {
        v->too_many = v->done = true;
        return;
    }
    bool good = false;
    uint32_t crc = 0;
    if (line->bytes > v->options->rules.line_bytes_max) {
        refuse(&refusal, "invalid_request", NULL,
               "This line has %llu bytes; at most %llu are allowed.",
               (unsigned long long)line->bytes,
               (unsigned long long)v->options->rules.line_bytes_max);
    } else {
        assert(line->offset >= v->window_at);
        struct str text = {v->window.at + (line->offset - v->window_at), (size_t)line->bytes};
        good = check_line(v, text, &parsed, &refusal);
        crc = crc32c(0, text.at, text.bytes);
    }
    if (v->failure == OK && !good) note(v, line, &refusal);
    /* Refused lines get an entry as well: a later line may repeat their custom_id. */
    struct index_entry entry = {line->offset,
                                good || parsed.custom_id.at ? (uint32_t)line->bytes : 0,
                                (uint32_t)line->number, crc};
    if (good) index_builder_set_model(v->index, str_from(v->model));
    if (v->failure == OK)
        v->failure = index_builder_add(v->index, &entry, good ? prefix_key(&parsed) : 0, v->error);
    v->requests++;
}

/* --- the file --- */

/* Drops the bytes before the current line, and a line that is too long in any case. */
static void slide(struct validation *v) {
    uint64_t line_start = v->splitter.line_start, end = v->window_at + v->window.bytes;
    if (end - line_start > v->options->rules.line_bytes_max + 2) line_start = end;
    uint64_t drop = line_start > v->window_at ? line_start - v->window_at : 0;
    if (drop > v->window.bytes) drop = v->window.bytes;
    buf_consume(&v->window, (size_t)drop);
    v->window_at += drop;
}

static enum err read_lines(struct validation *v) {
    const struct batch_validate_options *options = v->options;
    for (uint64_t at = 0; at < options->input_bytes && !v->done;) {
        if (options->stopped && options->stopped(options->context))
            return err_set(v->error, ERR_CANCELLED, "validation was stopped");
        uint64_t left = options->input_bytes - at;
        size_t count = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        char *room = buf_reserve(&v->window, count);
        assert(room);
        enum err err = os_pread_all(options->input_fd, room, count, at, v->error);
        if (err != OK) return err;
        sha256_add(&v->hash, room, count);
        buf_commit(&v->window, count);
        jsonl_feed(&v->splitter, (struct str){room, count}, take_line, v);
        if (v->failure != OK) return v->failure;
        at += count;
        slide(v);
    }
    if (!v->done) jsonl_end(&v->splitter, take_line, v);
    return v->failure;
}

/* Turns the findings into the result. */
static enum err conclude(struct validation *v, struct batch_validation *ret_result) {
    unsigned char digest[SHA256_BYTES];
    if (v->too_many) {
        char message[120];
        snprintf(message, sizeof message,
                 "The input file has more than %llu requests, which is the limit.",
                 (unsigned long long)v->options->rules.lines_max);
        buf_clear(&v->errors);
        v->error_count = 0;
        add_error(&v->errors, &v->error_count, "too_many_tasks", 0, message, NULL);
    } else if (v->requests == 0) {
        add_error(&v->errors, &v->error_count, "empty_file", 0, "The input file has no requests.",
                  NULL);
    }
    /* A file that was refused half-way has not been read to its end. */
    if (!v->done) {
        sha256_end(&v->hash, digest);
        const unsigned char *wanted = v->options->input_sha256;
        if (wanted && memcmp(digest, wanted, SHA256_BYTES) != 0)
            return err_set(v->error, ERR_CORRUPT,
                           "the input file is not what was uploaded: its sha256 differs");
    }
    if (v->refused_count > 0 && v->error_count == 0) return OK;
    if (v->error_count > 0) {
        ret_result->errors = mem_alloc(v->errors.bytes + 3);
        snprintf(ret_result->errors, v->errors.bytes + 3, "[%s]", v->errors.at);
        ret_result->error_count = v->error_count;
        return OK;
    }
    idset_release(&v->ids);
    enum err err = index_builder_finish(v->index, v->options->input_bytes, digest, v->error);
    v->index = NULL;
    if (err != OK) return err;
    ret_result->total = v->requests;
    if (!v->models_differ) memcpy(ret_result->model, v->model, sizeof v->model);
    return OK;
}

enum err batch_validate(const struct batch_validate_options *options,
                        struct batch_validation *ret_result, struct error *error) {
    assert(options->rules.lines_max > 0 && options->rules.lines_max <= BATCH_LINES_MAX);
    assert(options->rules.line_bytes_max <= BATCH_LINE_BYTES_MAX);
    static_assert(BATCH_LINES_MAX < IDSET_LINES_MAX, "every request has a number in the idset");
    struct validation *v = mem_new(1, sizeof *v);
    v->options = options;
    v->error = error;
    jsonl_init(&v->splitter);
    sha256_init(&v->hash);
    idset_init(&v->ids);
    buf_init(&v->window, (size_t)BATCH_LINE_BYTES_MAX + 2 * PIECE_BYTES);
    buf_init(&v->errors, ERRORS_BYTES_MAX);
    buf_init(&v->scratch, (size_t)BATCH_LINE_BYTES_MAX);
    buf_init(&v->model_scratch, (size_t)BATCH_LINE_BYTES_MAX);
    buf_init(&v->shape, (size_t)BATCH_LINE_BYTES_MAX + 1024);
    buf_init(&v->other, (size_t)BATCH_LINE_BYTES_MAX);
    *ret_result = (struct batch_validation){0};
    enum err err = index_builder_open(&v->index, options->index_path, error);
    if (err == OK) err = read_lines(v);
    if (err == OK) err = conclude(v, ret_result);
    index_builder_abort(v->index);
    idset_release(&v->ids);
    buf_release(&v->window);
    buf_release(&v->errors);
    buf_release(&v->scratch);
    buf_release(&v->model_scratch);
    buf_release(&v->shape);
    buf_release(&v->other);
    free(v);
    return err;
}

void batch_validation_release(struct batch_validation *result) {
    free(result->errors);
    result->errors = NULL;
}
