/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/builtin.h"
#include "jinja/cursor.h"
#include "jinja/dict.h"
#include "jinja/print.h"
#include "jinja/text.h"

#include <stdio.h>
#include <string.h>

/* The longest range that Jinja's sandbox allows. */
#define RANGE_MAX 100000

static enum err call_range(struct render *render, struct value self, const struct arguments *args,
                           struct value *ret_value) {
    (void)self;
    struct value_range *range = render_alloc(render, sizeof *range);
    if (!range) return ERR_LIMIT;
    bool one = args->values[1].kind == VALUE_ABSENT;
    enum err err = arg_int(render, args, one ? 1 : 0, 0, &range->start);
    if (!err) err = arg_int(render, args, one ? 0 : 1, 0, &range->stop);
    if (!err) err = arg_int(render, args, 2, 1, &range->step);
    if (err) return err;
    if (range->step == 0) return render_fail(render, "the step of a range is zero");
    if (range_length(range) > RANGE_MAX)
        return render_fail(render, "a range is longer than %d", RANGE_MAX);
    *ret_value = (struct value){.kind = VALUE_RANGE, .range = range};
    return OK;
}

/* The entries of dict(pairs, k=v, …) and of namespace(…). */
static enum err dict_from_args(struct render *render, const struct arguments *args,
                               struct dict **ret_dict) {
    struct dict *dict;
    if (args->count > 1) return render_fail(render, "a dict takes at most one argument");
    enum err err = dict_new(render, args->named_count, &dict);
    if (!err && args->count == 1 && args->values[0].kind == VALUE_DICT) {
        const struct dict *from = args->values[0].dict;
        for (size_t i = 0; !err && i < from->count; i++)
            err = dict_put(render, dict, from->entries[i].key, from->entries[i].value);
    } else if (!err && args->count == 1) {
        struct list *pairs, *pair;
        err = cursor_list(render, args->values[0], &pairs);
        for (size_t i = 0; !err && i < pairs->count; i++) {
            err = cursor_list(render, pairs->items[i], &pair);
            if (!err && pair->count != 2)
                return render_fail(render, "a dict is made of pairs, not of %zu values",
                                   pair->count);
            if (!err) err = dict_put(render, dict, pair->items[0], pair->items[1]);
        }
    }
    for (size_t i = 0; !err && i < args->named_count; i++) {
        struct value key;
        err = arg_name(render, &args->named[i], &key);
        if (!err) err = dict_put(render, dict, key, args->named[i].value);
    }
    if (!err) *ret_dict = dict;
    return err;
}

static enum err call_dict(struct render *render, struct value self, const struct arguments *args,
                          struct value *ret_value) {
    (void)self;
    struct dict *dict;
    enum err err = dict_from_args(render, args, &dict);
    if (!err) *ret_value = value_of_dict(dict);
    return err;
}

static enum err call_namespace(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    (void)self;
    struct dict *dict;
    enum err err = dict_from_args(render, args, &dict);
    if (!err) *ret_value = (struct value){.kind = VALUE_NAMESPACE, .dict = dict};
    return err;
}

static enum err call_cycler(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    (void)self;
    if (args->count == 0 || args->named_count > 0)
        return render_fail(render, "a cycler needs at least one item");
    struct list *items;
    struct cycler *cycler = render_alloc(render, sizeof *cycler);
    if (!cycler) return ERR_LIMIT;
    enum err err = list_new(render, args->count, &items);
    for (size_t i = 0; !err && i < args->count; i++) err = list_add(render, items, args->values[i]);
    if (err) return err;
    cycler->items = items;
    *ret_value = (struct value){.kind = VALUE_CYCLER, .cycler = cycler};
    return OK;
}

static enum err call_joiner(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    (void)self;
    struct joiner *joiner = render_alloc(render, sizeof *joiner);
    if (!joiner) return ERR_LIMIT;
    joiner->separator = args->values[0];
    *ret_value = (struct value){.kind = VALUE_JOINER, .joiner = joiner};
    if (joiner->separator.kind != VALUE_ABSENT) return OK;
    return text_copy(render, STR(", "), &joiner->separator);
}

/* The message is the error's text, cut to its room between characters. */
static enum err call_raise_exception(struct render *render, struct value self,
                                     const struct arguments *args, struct value *ret_value) {
    (void)self;
    (void)ret_value;
    struct value text;
    enum err err = arg_text_of(render, args, 0, "", &text);
    if (err) return err;
    struct str message = value_str(text);
    if (message.bytes > ERROR_TEXT_BYTES - 1) {
        message.bytes = ERROR_TEXT_BYTES - 1;
        while (message.bytes > 0 && ((unsigned char)message.at[message.bytes] & 0xC0) == 0x80)
            message.bytes--;
    }
    return err_set(render->error, ERR_INVALID, "%.*s", STR_ARGS(message));
}

static enum err call_strftime_now(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    (void)self;
    struct value format;
    size_t start = render->out->bytes;
    enum err err = arg_text(render, args, 0, "", &format);
    if (!err)
        err = print_time(render, value_str(format), render->now_unix_s + render->utc_offset_s);
    if (!err) err = text_claim(render, start, format);
    return err ? err : text_take(render, start, ret_value);
}

static const struct builtin functions[] = {
    {"range", call_range, 1, false, {"start", "stop", "step"}},
    {"dict", call_dict, 0, true, {NULL}},
    {"namespace", call_namespace, 0, true, {NULL}},
    {"cycler", call_cycler, 0, true, {NULL}},
    {"joiner", call_joiner, 0, false, {"sep"}},
    {"raise_exception", call_raise_exception, 1, false, {"message"}},
    {"strftime_now", call_strftime_now, 1, false, {"format"}},
};
const struct builtin_table function_table = {functions, sizeof functions / sizeof *functions};
