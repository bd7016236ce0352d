/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* eval: walks the ast: expressions, statements, loops and calls. The one internal header of the
 * files eval_*.c.
 *
 * Thread: as render.
 * Memory: as render.
 * Invariant: recursion is bounded by JINJA_EVAL_DEPTH_MAX. */

#include "jinja/ast.h"
#include "jinja/cursor.h"

/* The value `loop` of a loop that is running. */
struct loop {
    const struct stmt *stmt;
    struct scope *scope; /* the scope around the loop */
    struct cursor cursor;
    struct value source;
    struct value previous, current, ahead; /* ahead: the next turn's item, fetched early */
    struct value changed;                  /* argument of the last loop.changed() */
    size_t turns;                          /* turns begun */
    size_t length;
    bool has_length;
    unsigned depth0; /* depth of a recursive loop, from 0 on */
};

struct macro {
    const struct macro_def *def;
    struct scope *scope; /* the scope of its definition */
};

enum err eval_expr(struct render *render, struct scope *scope, const struct expr *expr,
                   struct value *ret_value);
/* Runs statements, which write to the output; render->flow says how they ended. */
enum err eval_body(struct render *render, struct scope *scope, const struct stmt *body);
enum err eval_assign(struct render *render, struct scope *scope, const struct target *target,
                     struct value value);
enum err eval_for(struct render *render, struct scope *scope, const struct stmt *stmt,
                  struct value source, unsigned depth0);

/* Evaluates the arguments of a call; `caller`, unless it is absent, is added under its name. */
enum err eval_arguments(struct render *render, struct scope *scope, const struct call *call,
                        struct value caller, struct arguments *ret_args);
enum err eval_call(struct render *render, struct value callee, const struct arguments *args,
                   struct value *ret_value);

/* The number of the turn, from 0 on. */
size_t loop_index(const struct loop *loop);
enum err loop_length(struct render *render, struct loop *loop, size_t *ret_length);
/* The attribute of a loop; absent when loops have no such attribute. */
enum err loop_attribute(struct render *render, struct loop *loop, struct str name,
                        struct value *ret_value);
struct str macro_name(const struct macro *macro);
enum err macro_attribute(struct render *render, const struct macro *macro, struct str name,
                         struct value *ret_value);
