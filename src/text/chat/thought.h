/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* thought: the part of an answer in which a model thinks, before it answers.
 *
 *     <think>…</think>   [THINK]…[/THINK]   <seed:think>…</seed:think>
 *                        <|channel>thought…<channel|> (Gemma 4)
 *     <|START_THINKING|>…<|END_THINKING|>   (Command-R7B)
 *     <|inner_prefix|>…<|inner_suffix|>     (Apertus; a call of tools inside ends the thought)
 *     <think>…</think><answer>…</answer>    (Hunyuan; the marks of the answer are dropped)
 *     <|channel|>analysis<|message|>…<|end|>   (gpt-oss; harmony.h)
 *
 * The template tells which marks a model was taught, and the end of the prompt whether the answer
 * begins inside a thought. An answer has one thought, at its beginning. Newlines next to the marks
 * belong to neither the thought nor the answer. Without a closing mark, all of the text is the
 * thought.
 *
 * A thought may lack its opening mark: the prompt of some templates has it in a form that is not
 * seen, and some models leave it out. So where the model may open a thought and did not, its text
 * is held back until a closing mark makes it a thought, or an opening mark or the end makes it the
 * answer. A stream says then what the whole answer says.
 *
 * With channels (gpt-oss) an answer is several messages, and each of the channel analysis is
 * thought. Here their tokens are counted; tool_calls.h has the text of all messages.
 *
 * Thread: one per struct.
 * Memory: plain structs.
 * Invariant: the spans do not depend on how the text was cut into feeds. */

#include "base/buf.h"
#include "chat/harmony.h"

#include <jansson.h>

struct jinja_template;

struct thought_marks {
    const char *begin, *end; /* NULL: the model does not think */
    bool has_channels;       /* these are marks of harmony.h */
    bool may_lack_begin;     /* a thought without the opening mark is looked for */
    bool wraps_answer;       /* the answer may have marks of its own */
    const char *call;        /* a mark that ends a thought, and begins the answer; NULL: none */
};
extern const struct thought_marks thought_channels;
struct thought_marks thought_marks_of(const struct jinja_template *template);

/* The marks as a set (tool_format.h); with channels those of all headers. */
uint64_t thought_mark_set(struct thought_marks marks);

enum thought_start {
    THOUGHT_NONE, /* the prompt has closed the thought, or the model does not think */
    THOUGHT_MAY,  /* the model may open a thought */
    THOUGHT_OPEN, /* the prompt has opened it */
};
/* `prompt` is the text that the answer follows. */
enum thought_start thought_start_of(struct thought_marks marks, struct str prompt);

#define THOUGHT_STARTS 32 /* tokens that a closing mark may be spelled with */

/* The marks that close a thought at the end of a prompt, and begin its answer. */
void thought_close(struct thought_marks marks, enum thought_start start, struct buf *prompt);

/* Zero is an answer without a thought. */
struct thought {
    struct thought_marks marks;
    enum { THOUGHT_AFTER, THOUGHT_BEFORE, THOUGHT_INSIDE, THOUGHT_HELD } state;
    bool has_begun;       /* there is a thought */
    size_t begin, end;    /* range of its text, so far; not with channels */
    size_t answer;        /* where the answer begins, with channels 0; SIZE_MAX: not known */
    size_t answer_end;    /* where it ends before its mark; SIZE_MAX: with the text, so far */
    uint32_t token_count; /* tokens of the thought, without the marks */

    /* private */
    struct harmony messages;       /* with channels */
    bool is_opened;                /* by its mark */
    bool is_wrapped;               /* the answer has begun with its mark */
    size_t after;                  /* end of the closing mark; 0: there is no thought */
    size_t searched;               /* no closing mark begins before this */
    size_t answer_searched;        /* nor the one of the answer before this */
    size_t starts[THOUGHT_STARTS]; /* starts of the latest tokens, a ring */
};

void thought_init(struct thought *thought, struct thought_marks marks, enum thought_start start);
/* Notes that a token was added at `start`; `text` is the whole text with it. */
void thought_add(struct thought *thought, struct str text, size_t start);
/* Reads the rest when no more tokens come. */
void thought_end(struct thought *thought, struct str text);

/* Bytes at the end of a text that may become the mark behind the answer, and newlines before it. */
size_t thought_held(const struct thought *thought, struct str text);

/* The format of an answer that may begin with a thought, or continues one, and whose rest is
 * `answer`, which is taken over. With channels `answer` is messages. `marks`: as in tag_words.h. */
json_t *thought_format(struct thought_marks names, enum thought_start start, uint64_t marks,
                       json_t *answer);
