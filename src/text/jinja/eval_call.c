/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/cursor.h"
#include "jinja/dict.h"
#include "jinja/eval.h"
#include "jinja/text.h"

#include <assert.h>
#include <string.h>

static enum err star_length(struct render *render, const struct list *star, struct value star_star,
                            size_t *ret_values, size_t *ret_named) {
    if (star) *ret_values += star->count;
    if (star_star.kind == VALUE_ABSENT) return OK;
    if (star_star.kind != VALUE_DICT)
        return render_fail(render, "what follows ** is of type %s, not a dict",
                           value_type(star_star));
    *ret_named += star_star.dict->count;
    return OK;
}

/* Adds the members of **mapping. */
static enum err add_star_star(struct render *render, const struct dict *dict,
                              struct arguments *args) {
    for (size_t i = 0; i < dict->count; i++) {
        struct value key = dict->entries[i].key;
        if (!value_is_text(key)) return render_fail(render, "keywords must be strings");
        args->named[args->named_count++] =
            (struct named){value_str(key), dict->entries[i].value, text_is_given(key)};
    }
    return OK;
}

enum err eval_arguments(struct render *render, struct scope *scope, const struct call *call,
                        struct value caller, struct arguments *ret_args) {
    struct arguments args = {0};
    struct list *star = NULL;
    struct value star_value, star_star = value_absent();
    size_t value_room = call->value_count;
    size_t named_room = call->keyword_count + (caller.kind != VALUE_ABSENT);
    enum err err = OK;
    if (call->star) err = eval_expr(render, scope, call->star, &star_value);
    if (!err && call->star) err = cursor_list(render, star_value, &star);
    if (!err && call->star_star) err = eval_expr(render, scope, call->star_star, &star_star);
    if (!err) err = star_length(render, star, star_star, &value_room, &named_room);
    if (err) return err;
    args.values = value_room ? render_array(render, value_room, sizeof *args.values) : NULL;
    args.named = named_room ? render_array(render, named_room, sizeof *args.named) : NULL;
    if ((value_room && !args.values) || (named_room && !args.named)) return ERR_LIMIT;
    for (const struct expr_item *item = call->values; item; item = item->next) {
        assert(args.count < value_room);
        err = eval_expr(render, scope, item->expr, &args.values[args.count++]);
        if (err) return err;
    }
    if (star && star->count > 0) {
        assert(args.count + star->count <= value_room);
        memcpy(args.values + args.count, star->items, star->count * sizeof *star->items);
        args.count += star->count;
    }
    for (const struct keyword *keyword = call->keywords; keyword; keyword = keyword->next) {
        assert(args.named_count < named_room);
        struct named *named = &args.named[args.named_count++];
        named->name = keyword->name;
        err = eval_expr(render, scope, keyword->value, &named->value);
        if (err) return err;
    }
    if (caller.kind != VALUE_ABSENT) {
        assert(args.named_count < named_room);
        args.named[args.named_count++] = (struct named){.name = STR("caller"), .value = caller};
    }
    if (star_star.kind == VALUE_DICT) err = add_star_star(render, star_star.dict, &args);
    if (!err) *ret_args = args;
    return err;
}

/* Takes the keyword argument of that name out of the list; absent when it is not there. */
static struct value take_named(struct arguments *args, struct str name) {
    for (size_t i = 0; i < args->named_count; i++) {
        if (!str_equals(args->named[i].name, name)) continue;
        struct value value = args->named[i].value;
        for (size_t j = i + 1; j < args->named_count; j++) args->named[j - 1] = args->named[j];
        args->named_count--;
        return value;
    }
    return value_absent();
}

static enum err bind_param(struct render *render, struct scope *inner, const struct param *param,
                           size_t index, struct arguments *args) {
    struct value value = take_named(args, param->name);
    if (index < args->count) {
        if (value.kind != VALUE_ABSENT)
            return render_fail(render, "argument '%.*s' of a macro is given twice",
                               (int)(param->name.bytes < 60 ? param->name.bytes : 60),
                               param->name.at);
        value = args->values[index];
    }
    enum err err = OK;
    if (value.kind == VALUE_ABSENT && param->fallback)
        err = eval_expr(render, inner, param->fallback, &value);
    else if (value.kind == VALUE_ABSENT)
        err = value_undefined(render, UNDEFINED_NAME, param->name, NULL, &value);
    return err ? err : scope_set(render, inner, param->symbol, value);
}

/* Adds varargs, kwargs and caller for macros that use them; an error for arguments that a macro
 * does not take. */
static enum err bind_rest(struct render *render, struct scope *inner, const struct macro_def *def,
                          struct arguments *args) {
    enum err err = OK;
    if (def->uses & USES_CALLER) {
        struct value caller = take_named(args, STR("caller"));
        if (caller.kind == VALUE_ABSENT)
            err =
                value_undefined(render, UNDEFINED_REASON, STR("no caller defined"), NULL, &caller);
        if (!err) err = scope_set(render, inner, def->caller_symbol, caller);
    }
    if (!err && (def->uses & USES_KWARGS)) {
        struct dict *dict;
        err = dict_new(render, args->named_count, &dict);
        for (size_t i = 0; !err && i < args->named_count; i++) {
            struct value key;
            err = arg_name(render, &args->named[i], &key);
            if (!err) err = dict_put(render, dict, key, args->named[i].value);
        }
        if (!err) err = scope_set(render, inner, def->kwargs_symbol, value_of_dict(dict));
    } else if (!err && args->named_count > 0) {
        struct str name = args->named[0].name;
        return render_fail(render, "the macro takes no keyword argument '%.*s'",
                           (int)(name.bytes < 60 ? name.bytes : 60), name.at);
    }
    size_t given = args->count < def->param_count ? args->count : def->param_count;
    if (!err && (def->uses & USES_VARARGS)) {
        struct list *list;
        err = list_new(render, args->count - given, &list);
        for (size_t i = given; !err && i < args->count; i++)
            err = list_add(render, list, args->values[i]);
        if (!err) err = scope_set(render, inner, def->varargs_symbol, value_of_list(list, true));
    } else if (!err && args->count > def->param_count) {
        return render_fail(render, "the macro takes at most %zu arguments", def->param_count);
    }
    return err;
}

static enum err call_macro(struct render *render, const struct macro *macro,
                           const struct arguments *given, struct value *ret_value) {
    struct arguments args = *given;
    struct scope *inner;
    if (render->macro_depth == JINJA_DEPTH_MAX) return render_limit(render, "calls within calls");
    enum err err = scope_new(render, macro->scope, &inner);
    if (err) return err;
    /* Taking named arguments out changes the list, which the caller may use again. */
    if (args.named_count > 0) {
        args.named = render_array(render, args.named_count, sizeof *args.named);
        if (!args.named) return ERR_LIMIT;
        memcpy(args.named, given->named, args.named_count * sizeof *args.named);
    }
    render->macro_depth++;
    size_t index = 0, start = render->out->bytes;
    for (const struct param *param = macro->def->params; !err && param; param = param->next)
        err = bind_param(render, inner, param, index++, &args);
    if (!err) err = bind_rest(render, inner, macro->def, &args);
    if (!err) err = eval_body(render, inner, macro->def->body);
    render->macro_depth--;
    return err ? err : text_take(render, start, ret_value);
}

/* loop(children) in a recursive loop. */
static enum err call_loop(struct render *render, const struct loop *loop,
                          const struct arguments *args, struct value *ret_value) {
    if (!loop->stmt->recursive)
        return render_fail(render, "the loop must be marked recursive to be called");
    if (args->count != 1 || args->named_count > 0)
        return render_fail(render, "a loop is called with one argument");
    if (render->macro_depth == JINJA_DEPTH_MAX) return render_limit(render, "calls within calls");
    size_t start = render->out->bytes;
    render->macro_depth++;
    enum err err = eval_for(render, loop->scope, loop->stmt, args->values[0], loop->depth0 + 1);
    render->macro_depth--;
    return err ? err : text_take(render, start, ret_value);
}

static enum err call_joiner(struct render *render, struct joiner *joiner, struct value *ret_value) {
    if (joiner->used) {
        *ret_value = joiner->separator;
        return OK;
    }
    joiner->used = true;
    return text_copy(render, STR(""), ret_value);
}

enum err eval_call(struct render *render, struct value callee, const struct arguments *args,
                   struct value *ret_value) {
    switch (callee.kind) {
    case VALUE_UNDEFINED: return arith_fail_undefined(render, callee);
    case VALUE_FUNCTION:
        return builtin_call(render, callee.function, value_absent(), args, ret_value);
    case VALUE_METHOD:
        return builtin_call(render, callee.method->builtin, callee.method->self, args, ret_value);
    case VALUE_MACRO: return call_macro(render, callee.macro, args, ret_value);
    case VALUE_LOOP: return call_loop(render, callee.loop, args, ret_value);
    case VALUE_JOINER: return call_joiner(render, callee.joiner, ret_value);
    default: return render_fail(render, "a value of type %s cannot be called", value_type(callee));
    }
}

struct str macro_name(const struct macro *macro) {
    return macro->def->name;
}

enum err macro_attribute(struct render *render, const struct macro *macro, struct str name,
                         struct value *ret_value) {
    const struct macro_def *def = macro->def;
    if (str_is(name, "name") && def->name.at) return text_borrow(render, def->name, ret_value);
    if (str_is(name, "name")) *ret_value = value_none();
    if (str_is(name, "caller")) *ret_value = value_bool(def->uses & USES_CALLER);
    if (str_is(name, "catch_kwargs")) *ret_value = value_bool(def->uses & USES_KWARGS);
    if (str_is(name, "catch_varargs")) *ret_value = value_bool(def->uses & USES_VARARGS);
    if (!str_is(name, "arguments")) return OK;
    struct list *list;
    enum err err = list_new(render, def->param_count, &list);
    for (const struct param *param = def->params; !err && param; param = param->next) {
        struct value item;
        err = text_borrow(render, param->name, &item);
        if (!err) err = list_add(render, list, item);
    }
    if (!err) *ret_value = value_of_list(list, true);
    return err;
}
