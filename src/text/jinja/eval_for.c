/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/eval.h"
#include "jinja/text.h"

/* The values of a target's names, as a tuple. */
static enum err regroup(struct render *render, struct scope *scope, const struct target *target,
                        struct value *ret_value) {
    struct list *list;
    if (target->kind == TARGET_NAME) return scope_get(render, scope, target->symbol, ret_value);
    enum err err = list_new(render, target->item_count, &list);
    for (const struct target *at = target->items; !err && at; at = at->next) {
        struct value item;
        err = regroup(render, scope, at, &item);
        if (!err) err = list_add(render, list, item);
    }
    if (!err) *ret_value = value_of_list(list, true);
    return err;
}

/* The next item that the loop's condition lets pass; absent at the end. As in Jinja, such a loop
 * goes over the names of its target, so an item that was taken apart becomes a tuple. */
static enum err fetch(struct render *render, struct loop *loop, struct value *ret_item) {
    for (;;) {
        bool more = false;
        struct value item = value_absent(), passes;
        enum err err = cursor_next(render, &loop->cursor, &more, &item);
        if (err) return err;
        if (!more || !loop->stmt->condition) {
            *ret_item = more ? item : value_absent();
            return OK;
        }
        struct scope *scope;
        err = scope_new(render, loop->scope, &scope);
        if (!err) err = eval_assign(render, scope, loop->stmt->target, item);
        if (!err) err = eval_expr(render, scope, loop->stmt->condition, &passes);
        if (err) return err;
        if (value_is_true(passes) && loop->stmt->target->kind == TARGET_TUPLE)
            return regroup(render, scope, loop->stmt->target, ret_item);
        if (value_is_true(passes)) {
            *ret_item = item;
            return OK;
        }
    }
}

/* Looks one item ahead. */
static enum err peek(struct render *render, struct loop *loop) {
    if (loop->ahead.kind != VALUE_ABSENT) return OK;
    return fetch(render, loop, &loop->ahead);
}

size_t loop_index(const struct loop *loop) {
    return loop->turns - 1;
}

enum err loop_length(struct render *render, struct loop *loop, size_t *ret_length) {
    if (!loop->has_length) {
        /* An iterator without length is walked to its end, and the rest is kept for the turns to
         * come. */
        bool known = !loop->stmt->condition && value_length(loop->source, &loop->length);
        struct list *rest;
        enum err err = known ? OK : list_new(render, 0, &rest);
        for (bool more = !known; !err && more;) {
            struct value item;
            err = fetch(render, loop, &item);
            more = !err && item.kind != VALUE_ABSENT;
            if (more) err = list_add(render, rest, item);
        }
        if (err) return err;
        if (!known) {
            loop->length = loop->turns + (loop->ahead.kind != VALUE_ABSENT) + rest->count;
            loop->cursor = (struct cursor){value_of_list(rest, false), 0};
            loop->source = loop->cursor.over;
        }
        loop->has_length = true;
    }
    *ret_length = loop->length;
    return OK;
}

static enum err neighbour(struct render *render, struct value item, const char *reason,
                          struct value *ret_value) {
    if (item.kind == VALUE_ABSENT)
        return value_undefined(render, UNDEFINED_REASON, str_from(reason), NULL, ret_value);
    *ret_value = item;
    return OK;
}

/* The attributes that need to know how long the loop is. */
static enum err length_attribute(struct render *render, struct loop *loop, struct str name,
                                 struct value *ret_value) {
    size_t length;
    enum err err = loop_length(render, loop, &length);
    if (err) return err;
    if (str_is(name, "length")) *ret_value = value_size(length);
    if (str_is(name, "revindex"))
        *ret_value = value_int((int64_t)length - (int64_t)loop->turns + 1);
    if (str_is(name, "revindex0")) *ret_value = value_int((int64_t)length - (int64_t)loop->turns);
    return OK;
}

enum err loop_attribute(struct render *render, struct loop *loop, struct str name,
                        struct value *ret_value) {
    enum err err;
    if (str_is(name, "index")) {
        *ret_value = value_size(loop->turns);
    } else if (str_is(name, "index0")) {
        *ret_value = value_size(loop_index(loop));
    } else if (str_is(name, "first")) {
        *ret_value = value_bool(loop->turns == 1);
    } else if (str_is(name, "last")) {
        err = peek(render, loop);
        if (err) return err;
        *ret_value = value_bool(loop->ahead.kind == VALUE_ABSENT);
    } else if (str_is(name, "depth")) {
        *ret_value = value_int((int64_t)loop->depth0 + 1);
    } else if (str_is(name, "depth0")) {
        *ret_value = value_int(loop->depth0);
    } else if (str_is(name, "previtem")) {
        return neighbour(render, loop->previous, "there is no previous item", ret_value);
    } else if (str_is(name, "nextitem")) {
        err = peek(render, loop);
        return err ? err : neighbour(render, loop->ahead, "there is no next item", ret_value);
    } else {
        return length_attribute(render, loop, name, ret_value);
    }
    return OK;
}

/* Moves to the next item; *ret_more is false at the end. */
static enum err advance(struct render *render, struct loop *loop, bool *ret_more) {
    enum err err = peek(render, loop);
    if (err) return err;
    *ret_more = loop->ahead.kind != VALUE_ABSENT;
    if (!*ret_more) return OK;
    loop->previous = loop->current;
    loop->current = loop->ahead;
    loop->ahead = value_absent();
    loop->turns++;
    return OK;
}

static enum err turn(struct render *render, struct loop *loop, struct scope *scope) {
    struct value value = {.kind = VALUE_LOOP, .loop = loop};
    enum err err = scope_set(render, scope, loop->stmt->loop_symbol, value);
    if (!err) err = eval_assign(render, scope, loop->stmt->target, loop->current);
    if (!err) err = render_charge(render, UNITS_PER_STEP);
    return err ? err : eval_body(render, scope, loop->stmt->body);
}

enum err eval_for(struct render *render, struct scope *scope, const struct stmt *stmt,
                  struct value source, unsigned depth0) {
    struct loop *loop = render_alloc(render, sizeof *loop);
    if (!loop) return ERR_LIMIT;
    loop->stmt = stmt;
    loop->scope = scope;
    loop->source = source;
    loop->depth0 = depth0;
    struct scope *inner = NULL;
    bool completed = false; /* a turn reached its end, so that Jinja does not run `else` */
    enum err err = cursor_open(render, source, &loop->cursor);
    for (bool more = true; !err;) {
        err = advance(render, loop, &more);
        if (err || !more) break;
        if (!inner || stmt->keeps_scope) {
            err = scope_new(render, scope, &inner);
            if (err) return err;
        }
        inner->count = 0;
        err = turn(render, loop, inner);
        bool stop = render->flow == FLOW_BREAK;
        completed |= render->flow == FLOW_ON;
        render->flow = FLOW_ON;
        if (stop) break;
    }
    if (err || completed || !stmt->otherwise) return err;
    err = scope_new(render, scope, &inner);
    return err ? err : eval_body(render, inner, stmt->otherwise);
}
