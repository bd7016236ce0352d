/* SPDX-License-Identifier: Apache-2.0 */
#include "curation/export.h"

#include "curation/answer.h"
#include "curation/judged.h"
#include "json/json.h"
#include "json/span.h"

#include <inttypes.h>
#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20) /* bytes of output per write to the spool */

const char *const export_names[] = {"jsonl", "few_shot", "calibrate", "compare", NULL};

/* One line of the batch, with its answer as a curator has corrected it. */
struct exported {
    const struct export_options *options;
    struct store_spool *spool;
    struct buf out;             /* output that is not in the spool yet */
    struct large_turn turn;     /* held for one line at most */
    struct buf request, result; /* texts of the line; empty if they cannot be read */
    struct answer answer;
    json_t *questions; /* the answer's object without corrections */
};

static void release_answer(struct exported *is) {
    json_decref(is->questions);
    is->questions = NULL;
    answer_release(&is->answer);
}

/* Empties a text, and frees the memory of a large one. */
static void empty(struct buf *text) {
    buf_clear(text);
    if (text->capacity > LARGE_SMALL_BYTES) buf_release(text);
}

static void empty_line(struct exported *is) {
    release_answer(is);
    empty(&is->request);
    empty(&is->result);
    large_give(&is->turn);
}

/* Reads the line, and corrects its answer by the fields of the row. */
static enum err read_line(struct exported *is, const struct store_judgement *row,
                          struct error *error) {
    const struct review_lines *lines = is->options->lines;
    uint32_t line = (uint32_t)row->line - 1;
    empty_line(is);
    if (!lines) return OK;
    enum err err = review_item_read_request(lines, line, &is->turn, &is->request, error);
    if (err == OK) err = review_item_read_result(lines, line, &is->turn, &is->result, error);
    bool is_gone = err == ERR_NOT_FOUND && is->options->form == EXPORT_JSONL;
    if (is_gone || err == ERR_LIMIT || err == ERR_CORRUPT) {
        buf_clear(&is->request);
        return OK;
    }
    if (err != OK) return err;
    answer_read(&is->answer, buf_str(&is->result));
    is->questions = json_copy(is->answer.object);
    if (row->fields) answer_correct(&is->answer, str_from(row->fields));
    return OK;
}

/* --- forms --- */

static void write_text(struct buf *out, const char *name, const struct buf *text) {
    buf_printf(out, ",\"%s\":", name);
    json_span_add_ascii(out, text->bytes ? buf_str(text) : STR("null"));
}

static void write_jsonl(struct buf *out, const struct exported *is,
                        const struct store_judgement *row) {
    buf_add_text(out, "{\"custom_id\":");
    json_write_string(out, str_from(row->custom_id));
    buf_printf(out, ",\"line\":%" PRIu64 ",\"judgement\":", row->line);
    judged_write(out, row);
    write_text(out, "request", &is->request);
    write_text(out, "result", &is->result);
    buf_add_text(out, ",\"answer\":");
    answer_write_object(out, &is->answer);
    buf_add_text(out, ",\"text\":");
    json_write_string(out, is->answer.text);
    buf_add_text(out, "}\n");
}

/* Appends the messages of the request, without the closing bracket. False if the request is neither
 * a chat nor a completion of one text. */
static bool write_question(struct buf *out, struct str body) {
    struct str messages = json_span_get(body, "messages"), prompt = json_span_get(body, "prompt");
    struct json_span_iter iter;
    struct str message;
    if (messages.bytes > 0 && *messages.at == '[' && json_span_enter(&iter, messages)) {
        buf_add_text(out, "{\"messages\":[");
        while (json_span_element(&iter, &message)) {
            json_span_add_ascii(out, message);
            buf_add_byte(out, ',');
        }
        return true;
    }
    if (!json_span_is_string(prompt)) return false;
    buf_add_text(out, "{\"messages\":[{\"role\":\"user\",\"content\":");
    json_span_add_ascii(out, prompt);
    buf_add_text(out, "},");
    return true;
}

static void write_few_shot(struct buf *out, const struct exported *is) {
    struct str body = json_span_get(buf_str(&is->request), "body");
    const struct answer *answer = &is->answer;
    if (answer->kind != ANSWER_TEXT && answer->kind != ANSWER_CALL) return;
    if (!json_span_is_object(body) || !write_question(out, body)) return;
    if (answer->kind == ANSWER_TEXT) {
        buf_add_text(out, "{\"role\":\"assistant\",\"content\":");
        json_write_string(out, answer->text);
    } else {
        bool is_list = json_is_array(answer->calls);
        buf_printf(out, "{\"role\":\"assistant\",\"content\":null,\"%s\":",
                   is_list ? "tool_calls" : "function_call");
        json_write(out, answer->calls);
    }
    buf_add_text(out, "}]}\n");
}

static void write_calibrate(struct buf *out, const struct exported *is) {
    struct str request = buf_str(&is->request);
    const char *name;
    json_t *asked;
    bool is_first = true;
    if (is->answer.kind != ANSWER_DECISIONS || request.bytes == 0) return;
    json_span_add_ascii(out, (struct str){request.at, request.bytes - 1}); /* without its brace */
    buf_add_text(out, ",\"expected\":{");
    json_object_foreach(is->questions, name, asked) {
        if (!is_first) buf_add_byte(out, ',');
        is_first = false;
        json_write_string(out, str_from(name));
        buf_add_byte(out, ':');
        json_write(out, json_object_get(is->answer.object, name));
    }
    buf_add_text(out, "}}\n");
}

static void write_compare(struct buf *out, const struct exported *is) {
    if (is->answer.kind == ANSWER_NONE) return;
    json_write(out, is->answer.line);
    buf_add_byte(out, '\n');
}

/* --- lines --- */

static enum err flush(struct exported *is, struct error *error) {
    struct buf *out = &is->out;
    if (store_spool_bytes(is->spool) + out->bytes > is->options->bytes_max)
        return err_set(error, ERR_LIMIT,
                       "The export has more than %" PRIu64
                       " bytes, which is the limit. Read the judgements in pages instead.",
                       is->options->bytes_max);
    enum err err = out->bytes ? store_spool_write(is->spool, out->at, out->bytes, error) : OK;
    empty(out);
    return err;
}

/* Ends a row of the export. */
static enum err end_row(struct exported *is, struct error *error) {
    enum err err = is->out.bytes >= PIECE_BYTES ? flush(is, error) : OK;
    if (err == OK && is->options->is_gone && is->options->is_gone(is->options->context))
        err = err_set(error, ERR_CANCELLED, "The client has gone.");
    return err;
}

static enum err write_row(void *context, const struct store_judgement *row, struct error *error) {
    struct exported *is = context;
    enum err err = read_line(is, row, error);
    if (err != OK) return err;
    write_jsonl(&is->out, is, row);
    return end_row(is, error);
}

static enum err write_agreed(struct exported *is, const struct judged_line *line,
                             struct error *error) {
    if (!line->is_agreed || !line->opinion) return OK;
    enum err err = read_line(is, line->opinion, error);
    if (err != OK) return err;
    switch (is->options->form) {
    case EXPORT_FEW_SHOT: write_few_shot(&is->out, is); break;
    case EXPORT_CALIBRATE: write_calibrate(&is->out, is); break;
    case EXPORT_COMPARE: write_compare(&is->out, is); break;
    case EXPORT_JSONL:
    case EXPORT_FORM_COUNT: break;
    }
    return end_row(is, error);
}

enum err export_write(struct store_spool *spool, const struct export_options *options,
                      struct error *error) {
    struct exported is = {.options = options, .spool = spool, .turn = {.large = options->large}};
    bool is_jsonl = options->form == EXPORT_JSONL;
    struct judged *judged;
    struct judged_line line;
    enum err err;
    buf_init(&is.request, REVIEW_TEXT_BYTES_MAX);
    buf_init(&is.result, REVIEW_TEXT_BYTES_MAX);
    buf_init(&is.out, BUF_UNLIMITED);
    judged_open(&judged, options->store, options->batch_id, 0, UINT64_MAX);
    while ((err = judged_next(judged, is_jsonl ? write_row : NULL, &is, &line, error)) == OK &&
           line.count > 0) {
        if (!is_jsonl) err = write_agreed(&is, &line, error);
        if (err != OK) break;
    }
    if (err == OK) err = flush(&is, error);
    judged_close(judged);
    empty_line(&is);
    buf_release(&is.request);
    buf_release(&is.result);
    buf_release(&is.out);
    return err;
}
