/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/render.h"

#include "jinja/builtin.h"
#include "jinja/template.h"

#include <stdio.h>
#include <string.h>

/* Scopes over this size are charged for being searched. */
#define FREE_VARIABLES 16

enum err(render_fail)(struct render *render, const char *format, ...) {
    char sentence[ERROR_TEXT_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return err_set(render->error, ERR_INVALID, "line %u: %s", render->line, sentence);
}

enum err(render_limit)(struct render *render, const char *what) {
    return err_set(render->error, ERR_LIMIT, "line %u: the template passed the limit on %s",
                   render->line, what);
}

enum err render_charge(struct render *render, size_t amount) {
    if (amount > render->units_left) {
        render->units_left = 0;
        return render_limit(render, "its steps");
    }
    render->units_left -= amount;
    return OK;
}

void *render_alloc(struct render *render, size_t bytes) {
    void *memory = NULL;
    if (render_charge(render, bytes) == OK) {
        memory = arena_alloc(&render->arena, bytes);
        if (!memory) (void)render_limit(render, "its memory");
    }
    return memory;
}

void *render_array(struct render *render, size_t count, size_t bytes_each) {
    size_t bytes;
    if (__builtin_mul_overflow(count, bytes_each, &bytes)) {
        (void)render_limit(render, "its memory");
        return NULL;
    }
    return render_alloc(render, bytes);
}

enum err render_check(struct render *render) {
    if (render->out->overflowed) return render_limit(render, "its output");
    return OK;
}

enum err scope_new(struct render *render, struct scope *parent, struct scope **ret_scope) {
    struct scope *scope = render_alloc(render, sizeof *scope);
    if (!scope) return ERR_LIMIT;
    scope->parent = parent;
    *ret_scope = scope;
    return OK;
}

static struct variable *scope_find(const struct scope *scope, uint32_t symbol) {
    for (uint32_t i = 0; i < scope->count; i++)
        if (scope->variables[i].symbol == symbol) return &scope->variables[i];
    return NULL;
}

enum err scope_set(struct render *render, struct scope *scope, uint32_t symbol,
                   struct value value) {
    if (!scope) {
        render->top[symbol] = value;
        return OK;
    }
    struct variable *variable = scope_find(scope, symbol);
    if (scope->count > FREE_VARIABLES) {
        enum err err = render_charge(render, scope->count);
        if (err) return err;
    }
    if (!variable) {
        if (scope->count == scope->capacity) {
            uint32_t capacity = scope->capacity ? scope->capacity * 2 : 4;
            struct variable *grown = render_array(render, capacity, sizeof *grown);
            if (!grown) return ERR_LIMIT;
            if (scope->count > 0) memcpy(grown, scope->variables, scope->count * sizeof *grown);
            scope->variables = grown;
            scope->capacity = capacity;
        }
        variable = &scope->variables[scope->count++];
        variable->symbol = symbol;
    }
    variable->value = value;
    return OK;
}

enum err scope_get(struct render *render, const struct scope *scope, uint32_t symbol,
                   struct value *ret_value) {
    for (; scope; scope = scope->parent) {
        if (scope->count > FREE_VARIABLES) {
            enum err err = render_charge(render, scope->count);
            if (err) return err;
        }
        const struct variable *variable = scope_find(scope, symbol);
        if (variable) {
            *ret_value = variable->value;
            return OK;
        }
    }
    struct value *top = &render->top[symbol];
    if (top->kind == VALUE_ABSENT) {
        struct str name = render->template->symbols[symbol];
        const json_t *member = json_object_getn(render->context, name.at, name.bytes);
        struct json_origin origin = {.given = member, .messages = str_is(name, "messages")};
        if (!member) member = json_object_getn(render->model_context, name.at, name.bytes);
        const struct builtin *function = member ? NULL : function_find(name);
        if (member) {
            enum err err = value_from_json(render, member, origin, top);
            if (err) return err;
        } else if (function) {
            *top = (struct value){.kind = VALUE_FUNCTION, .function = function};
        }
    }
    *ret_value = *top;
    return OK;
}
