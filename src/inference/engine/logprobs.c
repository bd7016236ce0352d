/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/logprobs.h"

#include "base/mem.h"
#include "base/min_max.h"
#include "base/utf8.h"
#include "json/json.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* The number that stands for minus infinity, which JSON cannot carry (as in the OpenAI API). */
#define LOGPROB_FLOOR (-9999.0)
#define TOKEN_BYTES_MAX ((size_t)1024 * 1024)

/* Room for one more element of `bytes_each` in a doubling array. */
static void *grow(void *array, size_t count, size_t *capacity, size_t bytes_each) {
    if (count < *capacity) return array;
    size_t wanted = *capacity ? *capacity * 2 : 16;
    void *grown = mem_resize(array, wanted, bytes_each);
    *capacity = wanted;
    return grown;
}

void logprobs_add(struct logprobs *logprobs, const struct sample *sample, struct str text) {
    struct logprob_entry entry = {.token = sample->token,
                                  .logprob = sample->logprob,
                                  .rank = sample->rank,
                                  .raw_at = text.bytes,
                                  .top_at = logprobs->top_count,
                                  .top_count = sample->top_count};
    if (logprobs->count > 0) {
        const struct logprob_entry *last = &logprobs->entries[logprobs->count - 1];
        entry.offset = last->offset + logprobs_characters(str_skip(text, last->raw_at));
    }
    logprobs->entries =
        grow(logprobs->entries, logprobs->count, &logprobs->capacity, sizeof *logprobs->entries);
    logprobs->entries[logprobs->count++] = entry;
    for (uint32_t i = 0; i < sample->top_count; i++) {
        logprobs->tops = grow(logprobs->tops, logprobs->top_count, &logprobs->top_capacity,
                              sizeof *logprobs->tops);
        logprobs->tops[logprobs->top_count++] = sample->top[i];
    }
}

void logprobs_release(struct logprobs *logprobs) {
    free(logprobs->entries);
    free(logprobs->tops);
    *logprobs = (struct logprobs){.entries = NULL};
}

size_t logprobs_characters(struct str bytes) {
    if (bytes.bytes == 0) return 0;
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    utf8_add_repaired(&text, bytes);
    size_t count = utf8_count(buf_str(&text));
    buf_release(&text);
    return count;
}

/* ---- parts ---- */

static void write_number(struct buf *out, float logprob) {
    double value = isfinite(logprob) && logprob > (float)LOGPROB_FLOOR ? logprob : LOGPROB_FLOOR;
    if (value > 0) value = 0; /* rounding */
    buf_printf(out, "%.9g", value == 0 ? 0.0 : value);
}

static void token_bytes(const struct logprobs_form *form, int32_t token, struct buf *bytes) {
    buf_clear(bytes);
    tokenizer_decode(form->tokenizer, token, true, bytes);
}

static void write_text(struct buf *out, struct str bytes) {
    json_write_string(out, bytes.bytes ? bytes : STR(""));
}

/* Appends the token as a JSON string; overwrites `scratch`. */
static void write_token(struct buf *out, const struct logprobs_form *form, int32_t token,
                        struct buf *scratch) {
    if (form->as_ids) {
        buf_printf(out, "\"token_id:%d\"", token);
        return;
    }
    token_bytes(form, token, scratch);
    write_text(out, buf_str(scratch));
}

/* ---- chat ---- */

/* Appends `"token":…,"logprob":…,"bytes":[…]`. */
static void write_chat_token(struct buf *out, const struct logprobs_form *form, int32_t token,
                             float logprob, struct buf *scratch) {
    buf_add_text(out, "\"token\":");
    write_token(out, form, token, scratch);
    buf_add_text(out, ",\"logprob\":");
    write_number(out, logprob);
    buf_add_text(out, ",\"bytes\":");
    token_bytes(form, token, scratch);
    for (size_t i = 0; i < scratch->bytes; i++)
        buf_printf(out, "%c%u", i ? ',' : '[', (unsigned char)scratch->at[i]);
    buf_add_text(out, scratch->bytes ? "]" : "[]");
}

void logprobs_write_chat(struct buf *out, const struct logprobs_form *form,
                         const struct logprobs *logprobs, size_t first, size_t end) {
    struct buf scratch;
    buf_init(&scratch, TOKEN_BYTES_MAX);
    buf_add_text(out, "{\"content\":[");
    for (size_t i = first; i < end; i++) {
        const struct logprob_entry *entry = &logprobs->entries[i];
        buf_add_text(out, i > first ? ",{" : "{");
        write_chat_token(out, form, entry->token, entry->logprob, &scratch);
        buf_add_text(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < entry->top_count; k++) {
            const struct token_logprob *top = &logprobs->tops[entry->top_at + k];
            buf_add_text(out, k ? ",{" : "{");
            write_chat_token(out, form, top->token, top->logprob, &scratch);
            buf_add_byte(out, '}');
        }
        buf_add_text(out, "]}");
    }
    buf_add_text(out, "],\"refusal\":null}");
    buf_release(&scratch);
}

/* ---- text completions ---- */

/* Appends the item of an entry to a column. The first token of a prompt has none. */
typedef void (*item_fn)(struct buf *out, const struct logprobs_form *form,
                        const struct logprobs *logprobs, const struct logprob_entry *entry,
                        struct buf *scratch);

struct columns {
    const struct logprobs_form *form;
    const struct logprobs_prompt *prompt; /* NULL: none */
    const struct logprobs *logprobs;
    size_t first, end;
    struct buf scratch;
};

static void write_column(struct buf *out, struct columns *columns, item_fn write,
                         bool has_first_token) {
    size_t count = 0;
    if (columns->prompt && columns->prompt->count > 0) {
        if (has_first_token)
            write_token(out, columns->form, columns->prompt->ids[0], &columns->scratch);
        else
            buf_add_text(out, "null");
        count++;
        const struct logprobs *scores = columns->prompt->scores;
        for (size_t i = 0; i < scores->count; i++) {
            struct logprob_entry entry = scores->entries[i];
            entry.top_count = min_u32(entry.top_count, columns->prompt->top_max);
            buf_add_byte(out, ',');
            write(out, columns->form, scores, &entry, &columns->scratch);
        }
    }
    for (size_t i = columns->first; i < columns->end; i++) {
        if (count++ > 0) buf_add_byte(out, ',');
        write(out, columns->form, columns->logprobs, &columns->logprobs->entries[i],
              &columns->scratch);
    }
}

static void write_own_token(struct buf *out, const struct logprobs_form *form,
                            const struct logprobs *logprobs, const struct logprob_entry *entry,
                            struct buf *scratch) {
    (void)logprobs;
    write_token(out, form, entry->token, scratch);
}

static void write_own_logprob(struct buf *out, const struct logprobs_form *form,
                              const struct logprobs *logprobs, const struct logprob_entry *entry,
                              struct buf *scratch) {
    (void)form;
    (void)logprobs;
    (void)scratch;
    write_number(out, entry->logprob);
}

static void write_member(struct buf *out, const struct logprobs_form *form, int32_t token,
                         float logprob, struct buf *scratch) {
    write_token(out, form, token, scratch);
    buf_add_byte(out, ':');
    write_number(out, logprob);
}

static void write_tops(struct buf *out, const struct logprobs_form *form,
                       const struct logprobs *logprobs, const struct logprob_entry *entry,
                       struct buf *scratch) {
    bool has_own = false;
    buf_add_byte(out, '{');
    for (uint32_t k = 0; k < entry->top_count; k++) {
        const struct token_logprob *top = &logprobs->tops[entry->top_at + k];
        has_own = has_own || top->token == entry->token;
        if (k > 0) buf_add_byte(out, ',');
        write_member(out, form, top->token, top->logprob, scratch);
    }
    if (!has_own) {
        if (entry->top_count > 0) buf_add_byte(out, ',');
        write_member(out, form, entry->token, entry->logprob, scratch);
    }
    buf_add_byte(out, '}');
}

static void write_offsets(struct buf *out, const struct columns *columns, size_t before_count,
                          struct buf *scratch) {
    size_t count = 0, offset = 0;
    const struct logprobs_prompt *prompt = columns->prompt;
    for (size_t i = 0; prompt && i < prompt->count; i++) {
        buf_printf(out, "%s%zu", count++ > 0 ? "," : "", offset);
        buf_clear(scratch);
        tokenizer_decode(columns->form->tokenizer, prompt->ids[i], prompt->shows_special, scratch);
        offset += logprobs_characters(buf_str(scratch));
    }
    for (size_t i = columns->first; i < columns->end; i++)
        buf_printf(out, "%s%zu", count++ > 0 ? "," : "",
                   before_count + columns->logprobs->entries[i].offset);
}

void logprobs_write_text(struct buf *out, const struct logprobs_form *form,
                         const struct logprobs_prompt *prompt, const struct logprobs *logprobs,
                         size_t first, size_t end, size_t before_count) {
    struct columns columns = {
        .form = form, .prompt = prompt, .logprobs = logprobs, .first = first, .end = end};
    buf_init(&columns.scratch, TOKEN_BYTES_MAX);
    buf_add_text(out, "{\"tokens\":[");
    write_column(out, &columns, write_own_token, true);
    buf_add_text(out, "],\"token_logprobs\":[");
    write_column(out, &columns, write_own_logprob, false);
    buf_add_text(out, "],\"top_logprobs\":[");
    write_column(out, &columns, write_tops, false);
    buf_add_text(out, "],\"text_offset\":[");
    write_offsets(out, &columns, before_count, &columns.scratch);
    buf_add_text(out, "]}");
    buf_release(&columns.scratch);
}

/* ---- prompts ---- */

static void write_ranked(struct buf *out, const struct logprobs_form *form, int32_t token,
                         float logprob, uint32_t rank, struct buf *scratch) {
    buf_printf(out, "\"%d\":{\"logprob\":", token);
    write_number(out, logprob);
    buf_printf(out, ",\"rank\":%u,\"decoded_token\":", rank);
    token_bytes(form, token, scratch);
    write_text(out, buf_str(scratch));
    buf_add_byte(out, '}');
}

void logprobs_write_prompt(struct buf *out, const struct logprobs_form *form,
                           const struct logprobs_prompt *prompt) {
    struct buf scratch;
    buf_init(&scratch, TOKEN_BYTES_MAX);
    buf_add_text(out, "[null");
    for (size_t i = 0; i < prompt->scores->count; i++) {
        const struct logprob_entry *entry = &prompt->scores->entries[i];
        buf_add_text(out, ",{");
        write_ranked(out, form, entry->token, entry->logprob, entry->rank, &scratch);
        for (uint32_t k = 0; k < min_u32(entry->top_count, prompt->top_max); k++) {
            const struct token_logprob *top = &prompt->scores->tops[entry->top_at + k];
            if (top->token == entry->token) continue;
            buf_add_byte(out, ',');
            write_ranked(out, form, top->token, top->logprob, k + 1, &scratch);
        }
        buf_add_byte(out, '}');
    }
    buf_add_byte(out, ']');
    buf_release(&scratch);
}
