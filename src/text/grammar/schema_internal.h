/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* schema_internal: a schema while it becomes an expression; for schema*.c only.
 *
 * Schemas that apply to one value are a list of atoms. Compiling a list gives the expression of the
 * values that keep all of its atoms.
 *
 * Thread: as schema.h.
 * Memory: a compiler owns its memo. */

#include "base/map.h"
#include "grammar/charset.h"
#include "grammar/number.h"
#include "grammar/schema.h"

#define ATOMS_MAX 48           /* schemas that apply to one value */
#define SCHEMA_STEPS_MAX 20000 /* lists of atoms compiled, and branches of anyOf and oneOf */
#define SCHEMA_DEPTH_MAX 200

enum atom_kind {
    ATOM_BASE,  /* keywords of a schema, but for the next two */
    ATOM_ANY,   /* an anyOf */
    ATOM_ONE,   /* a oneOf */
    ATOM_TYPES, /* only values of these types; an enum type */
};

/* A fraction is a number that is no integer. */
enum type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127,
    /* Not types: every spelling of a number, and no look at enum and const. */
    TYPE_EVERY_SPELLING = 128,
    TYPE_NO_ENUM = 256,
};

struct atom {
    uint64_t kind;
    uint64_t what; /* a json_t *, or types */
};

struct atoms {
    struct atom at[ATOMS_MAX];
    size_t count;
    bool is_false; /* no value keeps them */
};

/* A list of atoms that is compiled, or under way. */
struct compiled {
    uint32_t expr; /* while it is under way: its rule */
    uint32_t level;
    bool is_under_way, is_used;
};

struct compiler {
    struct exprs *exprs;
    const json_t *root;
    struct map memo; /* atoms → index of `compiled` */
    struct compiled *compiled;
    size_t compiled_count, compiled_capacity;
    uint32_t any_char; /* one character of a string */
    uint32_t any_name; /* any quoted string */
    uint32_t level;    /* values inside values on the way here */
    uint32_t steps, depth;
    bool is_quiet; /* refusals have no place and no sentence, which take a walk over the root */
    struct error *error;
};

/* ERR_LIMIT past SCHEMA_STEPS_MAX and when the expressions have overflowed. */
enum err schema_take_steps(struct compiler *compiler, size_t count);
enum err schema_compile(struct compiler *compiler, const struct atoms *atoms, uint32_t *ret_expr);
/* Adds a schema, and the schemas that its $ref and allOf make apply to the same value. */
enum err schema_add(struct compiler *compiler, struct atoms *atoms, const json_t *schema);
/* Adds an atom that the list lacks. */
enum err schema_add_atom(struct compiler *compiler, struct atoms *atoms, struct atom atom);

/* Fails with the place of `node`, a value inside the schema, and of its member `keyword` (or
 * NULL). */
enum err schema_refuse(struct compiler *compiler, const json_t *node, const char *keyword,
                       const char *format, ...) PRINTF_LIKE(4, 5);
/* Refuses keywords of a schema that are not known or not supported. */
enum err schema_check_keywords(struct compiler *compiler, const json_t *schema);
/* True if the schema has a keyword that can refuse a value. */
bool schema_has_keywords(const json_t *schema);
/* The schema that a $ref names. */
enum err schema_resolve(struct compiler *compiler, const json_t *schema, const json_t **ret_target);

/* The keywords of the n-th atom that has any; NULL at the end. Begin with *at = 0. */
const json_t *schema_next_base(const struct atoms *atoms, size_t *at);
unsigned schema_types(const struct atoms *atoms);
/* A count of a keyword such as maxItems; *ret_count stays as it is if the schema lacks it. Counts
 * above COUNT_MOST count as none. */
#define COUNT_MOST 1000000000u
enum err schema_count(struct compiler *compiler, const json_t *schema, const char *keyword,
                      uint32_t *ret_count);
/* The largest of the minima and the smallest of the maxima over all atoms. */
enum err schema_counts(struct compiler *compiler, const struct atoms *atoms,
                       const char *min_keyword, const char *max_keyword, uint32_t *ret_min,
                       uint32_t *ret_max);

/* Values of one type that keep the atoms, which have neither anyOf nor oneOf. */
enum err schema_number(struct compiler *compiler, const struct atoms *atoms, unsigned types,
                       uint32_t *ret_expr);
enum err schema_string(struct compiler *compiler, const struct atoms *atoms, uint32_t *ret_expr);
enum err schema_array(struct compiler *compiler, const struct atoms *atoms, uint32_t *ret_expr);
enum err schema_object(struct compiler *compiler, const struct atoms *atoms, uint32_t *ret_expr);
/* The texts of the single values that an enum or a const leaves, without equal ones being told
 * apart. *ret_has is false if the atoms have neither. The caller frees *ret_parts in any case. */
enum err schema_enum_values(struct compiler *compiler, const struct atoms *atoms, bool *ret_has,
                            uint32_t **ret_parts, size_t *ret_count);
/* *ret_has is false if the atoms have no enum and no const. */
enum err schema_enum(struct compiler *compiler, const struct atoms *atoms, bool *ret_has,
                     uint32_t *ret_expr);
/* Lists of different values between brackets, such as arrays with uniqueItems and members: at most
 * SCHEMA_ANY_ORDER_MAX values come in any order, more of them in the given one. */
#define SCHEMA_ANY_ORDER_MAX 6 /* 64 sets of values that are left */
enum err schema_unique(struct compiler *compiler, const char brackets[2], const uint32_t *values,
                       size_t count, uint32_t min, uint32_t max, uint32_t *ret_expr);
enum err schema_one_of(struct compiler *compiler, const struct atoms *atoms, const json_t *list,
                       uint32_t *ret_expr);

/* A quoted string of this text; of any text of this content. */
uint32_t schema_literal(struct compiler *compiler, struct str text);
uint32_t schema_quoted(struct compiler *compiler, uint32_t content);
/* A pattern found anywhere in the content of a string. */
enum err schema_pattern(struct compiler *compiler, const json_t *schema, const char *keyword,
                        struct str pattern, uint32_t *ret_content);
/* A comma or a colon, with a space or not. */
uint32_t schema_mark(struct compiler *compiler, char mark);

#define FORMAT_PATTERNS_MAX 4
/* The regular expressions of a format; its strings match all of them as a whole. */
struct string_format {
    const char *patterns[FORMAT_PATTERNS_MAX]; /* NULL after the last one; none: unknown format */
};
struct string_format schema_format(struct str name);
