/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/harmony.h"

/* Most bytes of a header; OpenAI's names of functions have 64. A longer one is text. */
#define HEADER_BYTES_MAX ((size_t)256)

#define START STR("<|start|>")
#define CHANNEL STR("<|channel|>")
#define MESSAGE STR(HARMONY_BODY)
#define TO STR("to=")
#define FUNCTIONS STR("functions.")

/* The marks behind a body. */
static const char *const ends[] = {HARMONY_END, "<|return|>", "<|call|>"};
#define END_COUNT (sizeof ends / sizeof *ends)

void harmony_init(struct harmony *harmony, enum harmony_kind kind) {
    *harmony = (struct harmony){.state = HARMONY_IN_BODY, .kind = kind};
}

static bool is_space(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static struct str between(struct str text, size_t begin, size_t end) {
    return (struct str){text.at + begin, end - begin};
}

/* --- between messages --- */

/* Whether a text begins with a word; *ret_may_come if more text is needed to tell. */
static bool begins(struct str text, struct str word, bool *ret_may_come) {
    if (str_starts_with(text, word)) return true;
    if (text.bytes < word.bytes && str_starts_with(word, text)) *ret_may_come = true;
    return false;
}

/* Bytes of the mark behind a body that the text begins with; 0: none. *ret_may_come: as in
 * begins. */
static size_t end_at(struct str text, bool *ret_may_come) {
    if (begins(text, START, ret_may_come)) return START.bytes;
    for (size_t i = 0; i < END_COUNT; i++)
        if (begins(text, str_from(ends[i]), ret_may_come)) return str_from(ends[i]).bytes;
    return 0;
}

static void begin_header(struct harmony *harmony, size_t header, bool has_mark) {
    harmony->state = HARMONY_IN_HEADER;
    harmony->at = harmony->header = header;
    harmony->has_mark = has_mark;
}

static void begin_body(struct harmony *harmony, size_t body, enum harmony_kind kind) {
    harmony->state = HARMONY_IN_BODY;
    harmony->kind = kind;
    harmony->at = harmony->body = body;
    harmony->has_begun = false;
}

/* Reads up to the header of a message, or to a text that has none. False: more text is needed. */
static bool read_between(struct harmony *harmony, struct str text, bool is_end) {
    static const char *const marks[] = {"<|channel|>", HARMONY_BODY, "<|constrain|>"};
    bool is_answer = harmony->header == 0, may_come = false;
    while (harmony->at < text.bytes && is_space(text.at[harmony->at])) harmony->at++;
    struct str rest = str_skip(text, harmony->at);
    if (rest.bytes == 0) return false;
    if (begins(rest, START, &may_come)) {
        begin_header(harmony, harmony->at + START.bytes, true);
        return true;
    }
    size_t end = end_at(rest, &may_come);
    harmony->at += end;
    if (end > 0) return true;
    bool has_mark = false, has_recipient = is_answer && begins(rest, TO, &may_come);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (begins(rest, str_from(marks[i]), &may_come)) has_mark = true;
    if (has_mark || has_recipient)
        begin_header(harmony, harmony->at, has_mark);
    else if (may_come && !is_end)
        return false;
    else
        begin_body(harmony, harmony->at, HARMONY_TEXT);
    return true;
}

/* --- headers --- */

/* The word at `at`: up to a space or a mark. */
static struct str word_at(struct str header, size_t at) {
    size_t end = at;
    while (end < header.bytes && !is_space(header.at[end]) && header.at[end] != '<') end++;
    return between(header, at, end);
}

static struct str recipient_of(struct str header) {
    for (size_t at = 0; (at = str_find(header, TO, at)) != SIZE_MAX; at += TO.bytes)
        if (at == 0 || is_space(header.at[at - 1]) || header.at[at - 1] == '>')
            return word_at(header, at + TO.bytes);
    return (struct str){NULL, 0};
}

static void read_header(struct harmony *harmony, struct str text, size_t end) {
    struct str header = between(text, harmony->header, end), to = recipient_of(header);
    size_t channel = str_find(header, CHANNEL, 0);
    bool is_analysis =
        channel != SIZE_MAX && str_is(word_at(header, channel + CHANNEL.bytes), "analysis");
    bool is_function = str_starts_with(to, FUNCTIONS);
    enum harmony_kind kind = is_analysis ? HARMONY_THOUGHT : HARMONY_TEXT;
    if (is_function || (to.bytes > 0 && !is_analysis)) kind = HARMONY_CALL;
    if (is_function) to = str_skip(to, FUNCTIONS.bytes);
    harmony->name = to.at ? (size_t)(to.at - text.at) : 0;
    harmony->name_bytes = to.bytes;
    begin_body(harmony, end + MESSAGE.bytes, kind);
}

/* Reads up to the body of a message. False: more text is needed. */
static bool read_to_body(struct harmony *harmony, struct str text, bool is_end) {
    struct str rest = str_skip(text, harmony->header);
    size_t most = HEADER_BYTES_MAX + MESSAGE.bytes;
    bool is_long = rest.bytes >= most;
    if (is_long) rest.bytes = most;
    size_t body = str_find(rest, MESSAGE, 0), stop = str_find(rest, START, 0);
    for (size_t i = 0; i < END_COUNT; i++) {
        size_t end = str_find(rest, str_from(ends[i]), 0);
        if (end < stop) stop = end;
    }
    if (body < stop) {
        read_header(harmony, text, harmony->header + body);
    } else if (stop != SIZE_MAX) {
        harmony->state = HARMONY_BETWEEN;
        harmony->at = harmony->header + stop;
    } else if (is_long || (is_end && !harmony->has_mark)) {
        begin_body(harmony, harmony->header, HARMONY_TEXT);
    } else {
        return false;
    }
    return true;
}

/* --- bodies --- */

/* Where a body ends: true with the place of the mark, false with that of the bytes that may
 * begin one. */
static bool find_end(struct str text, size_t from, size_t *ret_end) {
    for (size_t at = from; (at = str_find_byte(text, '<', at)) != SIZE_MAX; at++) {
        bool may_come = false;
        *ret_end = at;
        if (end_at(str_skip(text, at), &may_come) > 0) return true;
        if (may_come) return false;
    }
    *ret_end = text.bytes;
    return false;
}

/* True if there is a piece. */
static bool read_body(struct harmony *harmony, struct str text, bool is_end,
                      struct harmony_piece *ret_piece) {
    size_t begin = harmony->at, end;
    bool is_found = find_end(text, begin, &end);
    if (!is_found && is_end) end = text.bytes;
    *ret_piece = (struct harmony_piece){
        .kind = harmony->kind,
        .is_first = !harmony->has_begun,
        .is_last = is_found || is_end,
        .is_cut = !is_found && is_end,
        .bytes = between(text, begin, end),
        .body = between(text, harmony->body, end),
        .name = between(text, harmony->name, harmony->name + harmony->name_bytes),
    };
    harmony->at = end;
    if (ret_piece->is_last) harmony->state = HARMONY_BETWEEN;
    bool is_piece = ret_piece->is_first || ret_piece->is_last || end > begin;
    harmony->has_begun = true;
    return is_piece;
}

bool harmony_next(struct harmony *harmony, struct str text, bool is_end,
                  struct harmony_piece *ret_piece) {
    for (bool goes_on = harmony->at <= text.bytes; goes_on;) {
        switch (harmony->state) {
        case HARMONY_BETWEEN: goes_on = read_between(harmony, text, is_end); break;
        case HARMONY_IN_HEADER: goes_on = read_to_body(harmony, text, is_end); break;
        case HARMONY_IN_BODY: return read_body(harmony, text, is_end, ret_piece);
        }
    }
    return false;
}
