/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/render_decision.h"

#include "engine/decision.h"
#include "engine/decision_labels.h"
#include "json/json.h"
#include "json/span.h"

static void write_prompt(struct buf *out, const struct tokenizer *tokenizer,
                         const struct decision *decision, uint32_t index) {
    const struct decision_read whole = {.question = index, .letter = TOKEN_NONE};
    struct ids ids = {.at = NULL};
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    decision_read_tokens(decision, &whole, &ids);
    for (size_t i = 0; i < ids.count; i++) tokenizer_decode(tokenizer, ids.at[i], true, &text);
    buf_add_text(out, ",\"prompt\":");
    json_write_string(out, buf_str(&text));
    buf_printf(out, ",\"tokens\":%zu}", ids.count);
    buf_release(&text);
    ids_release(&ids);
}

static void write_question(struct buf *out, const struct tokenizer *tokenizer,
                           const struct decision *decision, uint32_t index) {
    const struct question *question = &decision->questions.at[index];
    const struct label_text *labels = decision_labels_texts(decision->labels, question);
    buf_add_text(out, "{\"question\":");
    if (decision->questions.is_systemone)
        json_write_string(out, question->id);
    else if (question->name)
        json_write(out, question->name);
    else
        buf_add_text(out, "null");
    buf_add_text(out, ",\"labels\":[");
    for (uint32_t i = 0; i < question->option_count; i++)
        buf_printf(out, "%s\"%s\"", i > 0 ? "," : "", labels[i].at);
    buf_add_byte(out, ']');
    write_prompt(out, tokenizer, decision, index);
}

enum err render_decision(const struct vocabulary *vocabulary, const struct jinja_options *clock,
                         struct str body, const char *separator, struct buf *out,
                         struct error *error) {
    const struct served_model model = {.vocabulary = *vocabulary};
    const struct prep_options options = {.context_tokens_max = UINT32_MAX,
                                         .now_unix_s = clock->now_unix_s,
                                         .utc_offset_s = clock->utc_offset_s};
    struct decision decision = {.body = NULL};
    struct refusal refusal;
    struct str whole;
    bool is_systemone = json_span_read(body, &whole) && json_span_get(whole, "state").at;
    bool is_good =
        decision_prepare(&decision, is_systemone ? ENDPOINT_SYSTEMONE : ENDPOINT_DECISIONS, body,
                         &model, &options, NULL, &refusal);
    for (uint32_t i = 0; is_good && i < decision.questions.count; i++) {
        if (i > 0) buf_add_text(out, separator);
        write_question(out, vocabulary->tokenizer, &decision, i);
    }
    decision_release(&decision);
    return is_good ? OK : err_set(error, ERR_INVALID, "%s", refusal.message);
}
