/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/quality.h"

#include "answer/answer_text.h"
#include "base/crc.h"
#include "batch/shape_ends.h"
#include "json/span.h"

#include <inttypes.h>

#define TEXT_BYTES_MAX ((size_t)16 << 20)

static uint8_t look_at_text(struct str text) {
    text = json_span_unfenced(text);
    if (text.bytes == 0) return 1u << SEGLOG_EMPTY;
    if (*text.at != '{' && *text.at != '[') return 0;
    uint8_t marks = 1u << SEGLOG_LOOKS_JSON;
    if (json_span_read(text, NULL)) marks |= 1u << SEGLOG_VALID_JSON;
    return marks;
}

/* Looks at one choice of a chat or of a text completion. */
static uint8_t look_at_choice(struct str choice, struct buf *scratch, uint32_t *hash) {
    struct answer_text found;
    uint8_t marks = 0;
    answer_text_read(&found, choice);
    buf_clear(scratch);
    if (found.kind != ANSWER_IS_CALL) answer_text_add(scratch, &found);
    if (found.calls.at) /* tool calls are an answer without text */
        *hash = crc32c(*hash, found.calls.at, found.calls.bytes);
    else
        marks = look_at_text(buf_str(scratch));
    if (scratch->bytes > 0) *hash = crc32c(*hash, scratch->at, scratch->bytes);
    if (json_span_string_is(found.finish_reason, "length")) marks |= 1u << SEGLOG_TRUNCATED;
    return marks;
}

void quality_look(struct str body, uint8_t *ret_marks, uint32_t *ret_answer) {
    struct json_span_iter iter;
    struct str choice, choices = json_span_get(body, "choices");
    struct buf scratch;
    *ret_marks = 0;
    *ret_answer = 0;
    if (choices.bytes == 0 || *choices.at != '[' || !json_span_enter(&iter, choices)) return;
    uint32_t hash = 0;
    bool is_first = true;
    buf_init(&scratch, TEXT_BYTES_MAX);
    while (json_span_element(&iter, &choice)) {
        uint8_t marks = look_at_choice(choice, &scratch, &hash);
        /* Among several choices the worst counts; only the first decides about JSON. */
        *ret_marks |= is_first ? marks : marks & (1u << SEGLOG_TRUNCATED | 1u << SEGLOG_EMPTY);
        is_first = false;
    }
    buf_release(&scratch);
    *ret_answer = hash ? hash : 1;
}

void quality_shares(const struct seglog_counts *counts, double ret_shares[QUALITY_SHARES]) {
    uint64_t answers = counts->successes, json = counts->marks[SEGLOG_LOOKS_JSON];
    bool expects_json = answers > 0 && 2 * json >= answers;
    uint64_t sums[QUALITY_SHARES] = {
        [QUALITY_IN_THOUGHT] = counts->cut_before_text,
        [QUALITY_TRUNCATED] = counts->marks[SEGLOG_TRUNCATED],
        [QUALITY_EMPTY] = counts->marks[SEGLOG_EMPTY],
        [QUALITY_IDENTICAL] = counts->identical > 1 ? counts->identical : 0,
        [QUALITY_INVALID_JSON] = expects_json ? answers - counts->marks[SEGLOG_VALID_JSON] : 0,
    };
    for (size_t i = 0; i < QUALITY_SHARES; i++)
        ret_shares[i] = answers ? (double)sums[i] / (double)answers : 0;
}

bool quality_is_alarming(const struct seglog_counts *counts, const struct batch_extras *extras,
                         enum quality_share *ret_share) {
    double shares[QUALITY_SHARES];
    if (counts->successes < extras->lines_min) return false;
    quality_shares(counts, shares);
    for (size_t i = 0; i < QUALITY_SHARES; i++) {
        if (shares[i] <= extras->limits[i]) continue;
        *ret_share = (enum quality_share)i;
        return true;
    }
    return false;
}

void quality_write(struct buf *buf, const struct seglog_counts *counts,
                   const struct batch_extras *extras) {
    double shares[QUALITY_SHARES];
    enum quality_share alarm;
    quality_shares(counts, shares);
    buf_printf(buf, "{\"answers\":%" PRIu64, counts->successes);
    for (size_t i = 0; i < QUALITY_SHARES; i++)
        buf_printf(buf, ",\"%s\":%.4f", quality_share_names[i], shares[i]);
    if (quality_is_alarming(counts, extras, &alarm))
        buf_printf(buf, ",\"alarm\":\"%s\",\"shapes\":", quality_share_names[alarm]);
    else
        buf_add_text(buf, ",\"alarm\":null,\"shapes\":");
    shape_ends_write(buf, counts->shapes);
    buf_add_byte(buf, '}');
}
