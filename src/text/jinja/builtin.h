/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* builtin: the tables of filters, tests, methods and functions, and how their arguments are bound.
 *
 * Thread: any; the tables are constant.
 * Memory: the arena of the rendering.
 * Invariant: a function that is not variadic has args->values[i] for each of its parameters: absent
 *     where the caller gave none, and never absent for a required one. */

#include "jinja/render.h"

#define BUILTIN_PARAMS_MAX 5

struct named {
    struct str name;
    struct value value;
    bool given; /* the name is the request's (origin.h) */
};

struct arguments {
    struct value *values;
    size_t count;
    struct named *named;
    size_t named_count;
};

typedef enum err (*builtin_fn)(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value);

struct builtin {
    const char *name;
    builtin_fn call;
    uint8_t required;
    bool variadic; /* gets its arguments unbound, in the order of the call */
    const char *params[BUILTIN_PARAMS_MAX];
};

struct builtin_table {
    const struct builtin *items;
    size_t count;
};

extern const struct builtin_table filter_table_text, filter_table_list, filter_table_number,
    filter_table_other, test_table, method_table_text, method_table_search, method_table_class,
    method_table_list, method_table_dict, method_table_number, method_table_loop,
    method_table_cycler, function_table;

/* The filter, test or global function of that name, or NULL. */
const struct builtin *filter_find(struct str name);
const struct builtin *test_find(struct str name);
const struct builtin *function_find(struct str name);
/* The method of that name for values of this kind, or NULL. */
const struct builtin *method_find(enum value_kind kind, struct str name);

/* Binds the arguments and calls. ERR_INVALID for missing, surplus and unknown arguments. */
enum err builtin_call(struct render *render, const struct builtin *builtin, struct value self,
                      const struct arguments *args, struct value *ret_value);

/* Argument number `index` as an int; `fallback` when absent. ERR_INVALID for another type. */
enum err arg_int(struct render *render, const struct arguments *args, size_t index,
                 int64_t fallback, int64_t *ret_value);
/* arg_int that takes none for absent. */
enum err arg_int_or_none(struct render *render, const struct arguments *args, size_t index,
                         int64_t fallback, int64_t *ret_value);
/* The truth of argument number `index`; `fallback` when absent. */
bool arg_true(const struct arguments *args, size_t index, bool fallback);
/* Argument number `index` as the bytes of a text. ERR_INVALID for another type. */
enum err arg_str(struct render *render, const struct arguments *args, size_t index,
                 const char *fallback, struct str *ret_text);
/* arg_str that gives the text as a value, with its origin. */
enum err arg_text(struct render *render, const struct arguments *args, size_t index,
                  const char *fallback, struct value *ret_text);
/* str() of argument number `index`. */
enum err arg_text_of(struct render *render, const struct arguments *args, size_t index,
                     const char *fallback, struct value *ret_text);
/* The name of a keyword argument as a text. */
enum err arg_name(struct render *render, const struct named *named, struct value *ret_text);
