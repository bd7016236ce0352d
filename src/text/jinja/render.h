/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* render: one rendering: its memory, its output, its limits, and how it fails.
 *
 * It knows no syntax and no built-in. Texts are built at the end of the output and then taken off
 * (text_take), so that only the arena and the output hold memory.
 *
 * Thread: one.
 * Memory: everything that a rendering makes lies in `arena`.
 * Invariant: a function that writes scratch text to `out` takes it off before it returns OK. */

#include "jinja/jinja.h"
#include "jinja/value.h"

/* Depth of macro calls, and of nesting in a template's text. */
#define JINJA_DEPTH_MAX 64
/* Depth of evaluations, enough for JINJA_DEPTH_MAX levels of both kinds; bounds the stack. */
#define JINJA_EVAL_DEPTH_MAX 1200
/* Depth of a value that is printed or compared. */
#define JINJA_VALUE_DEPTH_MAX 200
/* Bytes or items that one step pays for. */
#define UNITS_PER_STEP 64
#define JINJA_SOURCE_BYTES_MAX ((size_t)256 * 1024)

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct variable {
    uint32_t symbol;
    struct value value;
};

/* The names of one turn of a loop, one call of a macro and so on. The outermost names are in
 * render.top. */
struct scope {
    struct scope *parent;
    struct variable *variables;
    uint32_t count;
    uint32_t capacity;
};

struct render {
    const struct jinja_template *template;
    json_t *context;
    json_t *model_context; /* the model's own variables, behind `context`; may be NULL */
    int64_t now_unix_s;
    int32_t utc_offset_s;
    bool is_strict;
    struct arena arena;
    struct buf *out;
    struct origin origin; /* origin of the bytes in `out` */
    struct error *error;
    struct value *top;  /* outermost names by symbol; absent until set or first used */
    struct value input; /* the text that a filter block gives to its filters */
    size_t units_left;  /* UNITS_PER_STEP per step left */
    uint32_t line;      /* line of the construct being evaluated */
    unsigned depth;
    unsigned macro_depth;
    enum flow flow;
};

/* Fails with ERR_INVALID and a sentence behind "line N: ". */
enum err render_fail(struct render *render, const char *format, ...) PRINTF_LIKE(2, 3);
#define render_fail(...) err_not_ok((render_fail)(__VA_ARGS__))
/* Fails with ERR_LIMIT and a sentence behind "line N: ". */
enum err render_limit(struct render *render, const char *what);
#define render_limit(...) err_not_ok((render_limit)(__VA_ARGS__))
/* Charges for work beyond one step: `amount` bytes or items. */
enum err render_charge(struct render *render, size_t amount) MUST_CHECK;
/* NULL, with the error set to ERR_LIMIT, above the memory limit. */
void *render_alloc(struct render *render, size_t bytes);
void *render_array(struct render *render, size_t count, size_t bytes_each);
/* ERR_LIMIT when the output is above its limit. */
enum err render_check(struct render *render) MUST_CHECK;

enum err scope_new(struct render *render, struct scope *parent, struct scope **ret_scope);
/* Sets a name in this scope; NULL is the outermost. */
enum err scope_set(struct render *render, struct scope *scope, uint32_t symbol, struct value value);
/* The value of a name; absent when no scope, no member of the context and no global has it. */
enum err scope_get(struct render *render, const struct scope *scope, uint32_t symbol,
                   struct value *ret_value);
