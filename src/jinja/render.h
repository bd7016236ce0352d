/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* render: one rendering: its memory, its output, its limits, and how it fails.
 *
 * Knows no syntax and no built-in. The end of the output also serves as the scratch pad on which
 * texts are built (text_take), so nothing but the arena and the output holds memory.
 *
 * Thread: one.  Memory: everything a rendering makes lies in `arena`.
 * Invariant: whoever writes scratch text to `out` takes it off again before returning OK. */

#include "jinja/jinja.h"
#include "jinja/value.h"

/* Calls of macros within one another, and nesting of a template's text. */
#define JINJA_DEPTH_MAX 64
/* Evaluations within one another; what JINJA_DEPTH_MAX levels of both kinds need of a stack. */
#define JINJA_EVAL_DEPTH_MAX 1200
/* How deep a value may nest where it is printed or compared. */
#define JINJA_VALUE_DEPTH_MAX 200
/* A step pays for this many bytes or items. */
#define UNITS_PER_STEP 64
#define JINJA_SOURCE_BYTES_MAX ((size_t)256 * 1024)

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct variable {
    uint32_t symbol;
    struct value value;
};

/* The names of one turn of a loop, one call of a macro, …; the names of the outermost level lie
 * in render.top. */
struct scope {
    struct scope *parent;
    struct variable *variables;
    uint32_t count;
    uint32_t capacity;
};

struct render {
    const struct jinja_template *template;
    json_t *context;
    json_t *model_context; /* what is not in `context`, and the model's own; may be NULL */
    int64_t now_unix_s;
    int32_t utc_offset_s;
    struct arena arena;
    struct buf *out;
    struct origin origin; /* of the bytes in `out` */
    struct error *error;
    struct value *top;  /* by symbol; absent until it is set or first asked for */
    struct value input; /* what a filter block feeds its filters */
    size_t units_left;  /* a step is UNITS_PER_STEP of them */
    uint32_t line;      /* of the construct being evaluated */
    unsigned depth;
    unsigned macro_depth;
    enum flow flow;
};

/* ERR_INVALID with "line N: " in front. */
enum err render_fail(struct render *render, const char *format, ...) PRINTF_LIKE(2, 3);
#define render_fail(...) err_not_ok((render_fail)(__VA_ARGS__))
/* ERR_LIMIT with "line N: " in front. */
enum err render_limit(struct render *render, const char *what);
#define render_limit(...) err_not_ok((render_limit)(__VA_ARGS__))
/* Counts work that one step does not cover: `amount` bytes or items touched. */
enum err render_charge(struct render *render, size_t amount) MUST_CHECK;
/* NULL when the memory limit would be passed; the error is then set and is ERR_LIMIT. */
void *render_alloc(struct render *render, size_t bytes);
void *render_array(struct render *render, size_t count, size_t bytes_each);
/* ERR_LIMIT when more was written to the output than fits. */
enum err render_check(struct render *render) MUST_CHECK;

enum err scope_new(struct render *render, struct scope *parent, struct scope **ret_scope);
/* Sets in this scope; NULL is the outermost. */
enum err scope_set(struct render *render, struct scope *scope, uint32_t symbol, struct value value);
/* Absent when no scope, no member of the context and no global has the name. */
enum err scope_get(struct render *render, const struct scope *scope, uint32_t symbol,
                   struct value *ret_value);
