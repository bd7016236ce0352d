/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* value: the values of a template: Python's values, as far as chat templates see them.
 *
 * It knows no syntax. A struct value has two words and is passed by value.
 *
 * Thread: one per rendering; constants are never written to.
 * Memory: pointers lead into the arena of the rendering, those of constants into the template's.
 * Invariant: text is valid UTF-8. Texts, lists, tuples and dicts do not change once a template can
 *     see them; namespaces, iterators, cyclers and joiners do. */

#include "base/arena.h"
#include "base/err.h"
#include "jinja/origin.h"

#include <jansson.h>

struct render;
struct builtin;
struct loop;
struct macro;
struct scope;
struct stmt;

enum value_kind {
    VALUE_ABSENT, /* no value: an argument not given, a variable not set */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_RANGE,
    VALUE_KEYS,     /* d.keys(), … */
    VALUE_VALUES,   /* d.values() */
    VALUE_ITEMS,    /* d.items() */
    VALUE_ITERATOR, /* can be walked once and has no length: results of map, select, … */
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_METHOD,   /* a method with the value it belongs to */
    VALUE_FUNCTION, /* range, dict, raise_exception, … */
    VALUE_CYCLER,
    VALUE_JOINER,
};

struct value {
    enum value_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct text *text;
        struct list *list; /* list and tuple */
        struct dict *dict; /* dict, its views, and namespace */
        struct value_range *range;
        struct iterator *iterator;
        const struct undefined *undefined;
        struct loop *loop;
        struct macro *macro;
        struct method *method;
        const struct builtin *function;
        struct cycler *cycler;
        struct joiner *joiner;
    };
};

/* Memory that a text or list shares with the values it was extended from. The value that ends at
 * `used` may grow in place, which makes building by repeated `+` linear. */
struct backing {
    size_t used;
    size_t capacity;
};

#define POINTS_UNKNOWN SIZE_MAX

struct text {
    const char *at;
    size_t bytes;
    size_t points; /* code points; POINTS_UNKNOWN until text_points counts them */
    struct backing *backing;
    const struct origin *origin; /* NULL: all bytes are the template's */
    size_t origin_from;          /* place of the text in its origin */
    bool markup;                 /* the result of `escape` or `safe`: text added to it is escaped */
};

struct list {
    struct value *items;
    size_t count;
    struct backing *backing;
    bool group; /* a pair of groupby: its items also have the names grouper and list */
};

struct dict_entry {
    struct value key;
    struct value value;
};

struct dict {
    struct dict_entry *entries; /* in order of insertion */
    size_t count;
    size_t capacity;
    uint32_t *sorted; /* entry numbers by key bytes, while every key is a text; may be NULL */
    bool other_keys;  /* a key is no text */
};

struct value_range {
    int64_t start, stop, step;
};

struct iterator {
    const struct list *list;
    size_t next;
};

enum undefined_cause {
    UNDEFINED_NAME,      /* a variable */
    UNDEFINED_ATTRIBUTE, /* an attribute or item of `owner` */
    UNDEFINED_UNSAFE,    /* an attribute that the sandbox hides */
    UNDEFINED_REASON,    /* `name` is the sentence */
};

struct undefined {
    enum undefined_cause cause;
    struct str name;
    const char *owner;
};

struct method {
    const struct builtin *builtin;
    struct value self;
};

struct cycler {
    const struct list *items;
    size_t position;
};

struct joiner {
    struct value separator;
    bool used;
};

static inline struct value value_absent(void) {
    return (struct value){.kind = VALUE_ABSENT};
}
static inline struct value value_none(void) {
    return (struct value){.kind = VALUE_NONE};
}
static inline struct value value_bool(bool boolean) {
    return (struct value){.kind = VALUE_BOOL, .boolean = boolean};
}
static inline struct value value_int(int64_t integer) {
    return (struct value){.kind = VALUE_INT, .integer = integer};
}
static inline struct value value_size(size_t size) {
    return value_int((int64_t)size);
}
static inline struct value value_float(double real) {
    return (struct value){.kind = VALUE_FLOAT, .real = real};
}
static inline struct value value_of_list(struct list *list, bool tuple) {
    return (struct value){.kind = tuple ? VALUE_TUPLE : VALUE_LIST, .list = list};
}
static inline struct value value_of_dict(struct dict *dict) {
    return (struct value){.kind = VALUE_DICT, .dict = dict};
}
/* d.keys(), d.values() or d.items(). */
static inline struct value value_view(enum value_kind kind, struct dict *dict) {
    return (struct value){.kind = kind, .dict = dict};
}
static inline bool value_is_text(struct value value) {
    return value.kind == VALUE_TEXT;
}
static inline bool value_is_list(struct value value) { /* or a tuple */
    return value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}
/* Python's bool is an int. */
static inline bool value_is_integer(struct value value) {
    return value.kind == VALUE_INT || value.kind == VALUE_BOOL;
}
static inline bool value_is_number(struct value value) {
    return value_is_integer(value) || value.kind == VALUE_FLOAT;
}
/* The number of an int or a bool. */
static inline int64_t value_integer(struct value value) {
    return value.kind == VALUE_BOOL ? value.boolean : value.integer;
}
/* The number of an int, a bool or a float. */
static inline double value_real(struct value value) {
    return value.kind == VALUE_FLOAT ? value.real : (double)value_integer(value);
}
static inline struct str value_str(struct value text) {
    return (struct str){text.text->at, text.text->bytes};
}

/* True when Python's `if` takes the value for true. */
bool value_is_true(struct value value);
/* Python's name of the value's type: "str", "dict", … */
const char *value_type(struct value value);
/* The result of len(); false for a value without a length. */
bool value_length(struct value value, size_t *ret_length);
size_t range_length(const struct value_range *range);

/* Make a new value in the arena of the rendering; ERR_LIMIT when the arena is full. */
enum err value_undefined(struct render *render, enum undefined_cause cause, struct str name,
                         const char *owner, struct value *ret_value);
enum err value_method(struct render *render, const struct builtin *builtin, struct value self,
                      struct value *ret_value);
/* An iterator over the items of a list that no longer changes. */
enum err value_iterator(struct render *render, const struct list *list, struct value *ret_value);

/* How a rendering treats a value that comes from JSON. */
struct json_origin {
    bool copies; /* true: the value has copies; false: `json` must outlive it */
    bool given;  /* its texts came with the request */
    /* It is the list of messages. Roles that are plain words do not count as given, because
     * templates build control tokens of them ("<|" + role + "|>"). */
    bool messages;
};
enum err value_from_json(struct render *render, const json_t *json, struct json_origin origin,
                         struct value *ret_value);

/* An empty list with room for `capacity` items. */
enum err list_new(struct render *render, size_t capacity, struct list **ret_list);
/* Adds to a list that is still being built, growing it. */
enum err list_add(struct render *render, struct list *list, struct value item);
/* `left` followed by `right`; shares left's memory where possible. */
enum err list_concat(struct render *render, const struct list *left, const struct list *right,
                     struct list **ret_list);
enum err list_pair(struct render *render, struct value first, struct value second,
                   struct value *ret_tuple);
