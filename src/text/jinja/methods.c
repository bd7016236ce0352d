/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/builtin.h"
#include "jinja/compare.h"
#include "jinja/dict.h"
#include "jinja/eval.h"

#include <math.h>

static enum err method_get(struct render *render, struct value self, const struct arguments *args,
                           struct value *ret_value) {
    struct dict_entry *entry;
    enum err err = dict_find(render, self.dict, args->values[0], &entry);
    if (err) return err;
    *ret_value = entry                                  ? entry->value
                 : args->values[1].kind == VALUE_ABSENT ? value_none()
                                                        : args->values[1];
    return OK;
}

static enum err method_keys(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    (void)render;
    (void)args;
    *ret_value = value_view(VALUE_KEYS, self.dict);
    return OK;
}

static enum err method_values(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    (void)render;
    (void)args;
    *ret_value = value_view(VALUE_VALUES, self.dict);
    return OK;
}

static enum err method_items(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    (void)render;
    (void)args;
    *ret_value = value_view(VALUE_ITEMS, self.dict);
    return OK;
}

/* Nothing can change a dict or list, so a copy is the thing itself. */
static enum err method_copy(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    (void)render;
    (void)args;
    *ret_value = self;
    return OK;
}

static enum err method_list_index(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    for (size_t i = 0; i < self.list->count; i++) {
        bool equal;
        enum err err = compare_equal(render, self.list->items[i], args->values[0], &equal);
        if (err) return err;
        if (!equal) continue;
        *ret_value = value_size(i);
        return OK;
    }
    return render_fail(render, "the value is not in the list");
}

static enum err method_list_count(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    int64_t count = 0;
    for (size_t i = 0; i < self.list->count; i++) {
        bool equal;
        enum err err = compare_equal(render, self.list->items[i], args->values[0], &equal);
        if (err) return err;
        count += equal;
    }
    *ret_value = value_int(count);
    return OK;
}

static enum err method_is_integer(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    (void)render;
    (void)args;
    *ret_value = value_bool(self.kind != VALUE_FLOAT ||
                            (isfinite(self.real) && self.real == trunc(self.real)));
    return OK;
}

static enum err method_bit_length(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    (void)args;
    if (self.kind == VALUE_FLOAT) return render_fail(render, "a float has no bit_length");
    int64_t integer = value_integer(self), bits = 0;
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    for (; magnitude > 0; magnitude >>= 1) bits++;
    *ret_value = value_int(bits);
    return OK;
}

static enum err method_cycle(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    if (args->count == 0) return render_fail(render, "no items for cycling given");
    *ret_value = args->values[loop_index(self.loop) % args->count];
    return OK;
}

static enum err method_changed(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    struct list *list;
    bool equal = false;
    enum err err = list_new(render, args->count, &list);
    for (size_t i = 0; !err && i < args->count; i++) err = list_add(render, list, args->values[i]);
    if (err) return err;
    struct value seen = value_of_list(list, true);
    if (self.loop->changed.kind != VALUE_ABSENT)
        err = compare_equal(render, self.loop->changed, seen, &equal);
    if (err) return err;
    self.loop->changed = seen;
    *ret_value = value_bool(!equal);
    return OK;
}

static enum err method_next(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    (void)render;
    (void)args;
    struct cycler *cycler = self.cycler;
    *ret_value = cycler->items->items[cycler->position];
    cycler->position = (cycler->position + 1) % cycler->items->count;
    return OK;
}

static enum err method_reset(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    (void)render;
    (void)args;
    self.cycler->position = 0;
    *ret_value = value_none();
    return OK;
}

static const struct builtin dict_methods[] = {
    {"get", method_get, 1, false, {"key", "default"}}, {"items", method_items, 0, false, {NULL}},
    {"keys", method_keys, 0, false, {NULL}},           {"values", method_values, 0, false, {NULL}},
    {"copy", method_copy, 0, false, {NULL}},
};
static const struct builtin list_methods[] = {
    {"index", method_list_index, 1, false, {"value"}},
    {"count", method_list_count, 1, false, {"value"}},
    {"copy", method_copy, 0, false, {NULL}},
};
static const struct builtin number_methods[] = {
    {"is_integer", method_is_integer, 0, false, {NULL}},
    {"bit_length", method_bit_length, 0, false, {NULL}},
};
static const struct builtin loop_methods[] = {
    {"cycle", method_cycle, 0, true, {NULL}},
    {"changed", method_changed, 0, true, {NULL}},
};
static const struct builtin cycler_methods[] = {
    {"next", method_next, 0, false, {NULL}},
    {"reset", method_reset, 0, false, {NULL}},
};
const struct builtin_table method_table_dict = {dict_methods,
                                                sizeof dict_methods / sizeof *dict_methods};
const struct builtin_table method_table_list = {list_methods,
                                                sizeof list_methods / sizeof *list_methods};
const struct builtin_table method_table_number = {number_methods,
                                                  sizeof number_methods / sizeof *number_methods};
const struct builtin_table method_table_loop = {loop_methods,
                                                sizeof loop_methods / sizeof *loop_methods};
const struct builtin_table method_table_cycler = {cycler_methods,
                                                  sizeof cycler_methods / sizeof *cycler_methods};
