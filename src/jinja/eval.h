/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* eval: walks the ast: expressions, statements, loops and calls.
 * Thread: as render.  Invariant: recursion is bounded by JINJA_EVAL_DEPTH_MAX. */

#include "jinja/ast.h"
#include "jinja/cursor.h"

/* The value `loop` of a loop that is running. */
struct loop {
    const struct stmt *stmt;
    struct scope *scope; /* the one around the loop */
    struct cursor cursor;
    struct value source;
    struct value previous, current, ahead; /* ahead: fetched but not yet its turn */
    struct value changed;                  /* what loop.changed() saw last */
    size_t turns;                          /* begun */
    size_t length;
    bool has_length;
    unsigned depth0; /* of recursive loops */
};

struct macro {
    const struct macro_def *def;
    struct scope *scope; /* where it was defined */
};

enum err eval_expr(struct render *render, struct scope *scope, const struct expr *expr,
                   struct value *ret_value);
/* Statements write to the output; render->flow says how they ended. */
enum err eval_body(struct render *render, struct scope *scope, const struct stmt *body);
enum err eval_assign(struct render *render, struct scope *scope, const struct target *target,
                     struct value value);
enum err eval_for(struct render *render, struct scope *scope, const struct stmt *stmt,
                  struct value source, unsigned depth0);

/* The arguments of a call, evaluated; `caller` (absent: none) is added under its name. */
enum err eval_arguments(struct render *render, struct scope *scope, const struct call *call,
                        struct value caller, struct arguments *ret_args);
enum err eval_call(struct render *render, struct value callee, const struct arguments *args,
                   struct value *ret_value);

/* 0-based number of the turn. */
size_t loop_index(const struct loop *loop);
enum err loop_length(struct render *render, struct loop *loop, size_t *ret_length);
/* Absent when loops have no such attribute. */
enum err loop_attribute(struct render *render, struct loop *loop, struct str name,
                        struct value *ret_value);
struct str macro_name(const struct macro *macro);
enum err macro_attribute(struct render *render, const struct macro *macro, struct str name,
                         struct value *ret_value);
