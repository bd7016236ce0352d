/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/number.h"

#include "base/mem.h"
#include "grammar/number_grid.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most digits of a number whose bounds do not need more: as a 64-bit integer has, and as the
 * fraction of a double has. Without a limit a model could write digits without end. */
#define WHOLE_DIGITS 19
#define FRACTION_DIGITS 17
/* A multiple is a whole number below MULTIPLE_MAX over a power of ten. */
#define MULTIPLE_MAX 100000000u
#define MULTIPLE_PLACES_MAX 16

enum comparison { IS_BELOW, IS_ABOVE, IS_BELOW_OR_EQUAL, IS_ABOVE_OR_EQUAL };

struct bound {
    struct decimal decimal;
    enum comparison comparison;
};

struct multiple {
    uint32_t of;     /* the multiple times 10^places */
    uint32_t places; /* digits of its fraction */
};

struct number_table {
    struct bound *bounds;
    size_t bound_count, bound_capacity;
    struct multiple *multiples;
    size_t multiple_count, multiple_capacity;
};

struct number_table *number_table_open(void) {
    return mem_new(1, sizeof(struct number_table));
}

void number_table_close(struct number_table *table) {
    if (!table) return;
    free(table->bounds);
    free(table->multiples);
    free(table);
}

/* --- decimals --- */

/* Fills in a decimal from digits whose point stands after the first `point` of them. */
static enum err fill(struct decimal *decimal, const char *digits, size_t count, long point,
                     struct error *error) {
    while (count > 0 && *digits == '0') digits++, count--, point--;
    while (count > 0 && digits[count - 1] == '0') count--;
    if (count == 0) decimal->is_negative = false;
    if (count == 0) return OK;
    long whole = point > 0 ? point : 0;
    long fraction = (long)count - point;
    if (fraction < 0) fraction = 0;
    if (whole > DECIMAL_DIGITS_MAX || fraction > DECIMAL_DIGITS_MAX)
        return err_set(error, ERR_LIMIT, "a number with more than %d digits", DECIMAL_DIGITS_MAX);
    decimal->whole_count = (uint16_t)whole;
    decimal->fraction_count = (uint16_t)fraction;
    for (long i = 0; i < whole; i++)
        decimal->whole[i] = (uint8_t)((size_t)i < count ? digits[i] - '0' : 0);
    for (long i = 0; i < fraction; i++) {
        long at = point + i;
        decimal->fraction[i] = (uint8_t)(at < 0 ? 0 : digits[at] - '0');
    }
    return OK;
}

enum err decimal_read(const json_t *number, struct decimal *ret_decimal, struct error *error) {
    char text[64], digits[64];
    *ret_decimal = (struct decimal){0};
    if (json_is_integer(number)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(number));
    } else {
        double value = json_real_value(number);
        for (int places = 1; places <= 17; places++) {
            snprintf(text, sizeof text, "%.*e", places - 1, value);
            if (strtod(text, NULL) == value) break;
        }
    }
    const char *at = text;
    ret_decimal->is_negative = *at == '-';
    if (*at == '-') at++;
    size_t count = 0;
    long point = 0;
    bool has_point = false;
    for (; *at && *at != 'e'; at++) {
        if (*at == '.') {
            has_point = true;
            continue;
        }
        digits[count++] = *at;
        if (!has_point) point++;
    }
    if (*at == 'e') point += strtol(at + 1, NULL, 10);
    return fill(ret_decimal, digits, count, point, error);
}

static int compare_digits(const uint8_t *a, size_t a_count, const uint8_t *b, size_t b_count) {
    for (size_t i = 0; i < a_count || i < b_count; i++) {
        int x = i < a_count ? a[i] : 0, y = i < b_count ? b[i] : 0;
        if (x != y) return x < y ? -1 : 1;
    }
    return 0;
}

static int compare_sizes(const struct decimal *a, const struct decimal *b) {
    if (a->whole_count != b->whole_count) return a->whole_count < b->whole_count ? -1 : 1;
    int order = compare_digits(a->whole, a->whole_count, b->whole, b->whole_count);
    return order ? order
                 : compare_digits(a->fraction, a->fraction_count, b->fraction, b->fraction_count);
}

int decimal_compare(const struct decimal *a, const struct decimal *b) {
    if (a->is_negative != b->is_negative) return a->is_negative ? -1 : 1;
    return a->is_negative ? compare_sizes(b, a) : compare_sizes(a, b);
}

void decimal_write(const struct decimal *decimal, struct buf *buf) {
    if (decimal->is_negative) buf_add_byte(buf, '-');
    if (decimal->whole_count == 0) buf_add_byte(buf, '0');
    for (size_t i = 0; i < decimal->whole_count; i++)
        buf_add_byte(buf, (char)('0' + decimal->whole[i]));
    if (decimal->fraction_count > 0) buf_add_byte(buf, '.');
    for (size_t i = 0; i < decimal->fraction_count; i++)
        buf_add_byte(buf, (char)('0' + decimal->fraction[i]));
}

/* --- bounds --- */

/* The state of a bound: the order of the digits so far, their number, and whether the point has
 * been written. More whole digits than the bound has are counted as one more. */
enum { ORDER_EQUAL, ORDER_BELOW, ORDER_ABOVE };
#define STATE(order, is_fraction, count)                                                           \
    ((uint32_t)(order) | (uint32_t)(is_fraction) << 2 | (uint32_t)(count) << 3)

static unsigned order_of(const struct decimal *bound, uint32_t state) {
    unsigned order = state & 3;
    size_t count = state >> 3;
    if (state >> 2 & 1) {
        if (order == ORDER_EQUAL && count < bound->fraction_count) return ORDER_BELOW;
        return order;
    }
    if (count < bound->whole_count) return ORDER_BELOW;
    if (count > bound->whole_count) return ORDER_ABOVE;
    return order == ORDER_EQUAL && bound->fraction_count > 0 ? ORDER_BELOW : order;
}

static bool holds(const struct bound *bound, uint32_t state) {
    unsigned order = order_of(&bound->decimal, state);
    switch (bound->comparison) {
    case IS_BELOW: return order == ORDER_BELOW;
    case IS_ABOVE: return order == ORDER_ABOVE;
    case IS_BELOW_OR_EQUAL: return order != ORDER_ABOVE;
    case IS_ABOVE_OR_EQUAL: return order != ORDER_BELOW;
    }
    return false;
}

static uint32_t make_bound(struct exprs *exprs, uint32_t index, uint32_t state) {
    return expr_leaf(exprs, KIND_BOUND, index, state, holds(&exprs->numbers->bounds[index], state));
}

static unsigned order_after(unsigned order, unsigned digit, unsigned other) {
    if (order != ORDER_EQUAL || digit == other) return order;
    return digit < other ? ORDER_BELOW : ORDER_ABOVE;
}

static uint32_t derive_bound(struct exprs *exprs, uint32_t index, uint32_t state,
                             unsigned char byte) {
    const struct decimal *bound = &exprs->numbers->bounds[index].decimal;
    bool is_fraction = state >> 2 & 1;
    unsigned order = state & 3;
    uint32_t count = state >> 3;
    if (byte == '.' && !is_fraction) {
        /* A zero before the point is no digit of the bound, which has none. */
        unsigned whole = count < bound->whole_count   ? ORDER_BELOW
                         : count > bound->whole_count ? ORDER_ABOVE
                                                      : order;
        return make_bound(exprs, index, STATE(whole, true, 0));
    }
    if (byte < '0' || byte > '9') return EXPR_NEVER;
    unsigned digit = byte - '0';
    if (is_fraction) {
        unsigned other = count < bound->fraction_count ? bound->fraction[count] : 0;
        if (count < bound->fraction_count) count++;
        return make_bound(exprs, index, STATE(order_after(order, digit, other), true, count));
    }
    if (count == 0 && digit == 0) return make_bound(exprs, index, state);
    if (count >= bound->whole_count)
        return make_bound(exprs, index, STATE(ORDER_ABOVE, false, bound->whole_count + 1u));
    order = order_after(order, digit, bound->whole[count]);
    return make_bound(exprs, index, STATE(order, false, count + 1));
}

static uint32_t bound_expr(struct exprs *exprs, const struct decimal *decimal,
                           enum comparison comparison) {
    struct number_table *table = exprs->numbers;
    table->bounds =
        vec_grow(table->bounds, table->bound_count, &table->bound_capacity, sizeof *table->bounds);
    table->bounds[table->bound_count] = (struct bound){*decimal, comparison};
    return make_bound(exprs, (uint32_t)table->bound_count++, STATE(ORDER_EQUAL, false, 0));
}

/* --- multiples --- */

/* The state of a multiple: the remainder so far, shifted over the number of digits after the point,
 * plus one; 0 before the point. */
#define PLACES_SHIFT 27
static_assert(MULTIPLE_MAX < 1u << PLACES_SHIFT, "a remainder fits");
static_assert(MULTIPLE_PLACES_MAX + 1 < 1u << (32 - PLACES_SHIFT), "places fit");

static bool is_multiple(const struct multiple *multiple, uint32_t state) {
    uint64_t remainder = state & ((1u << PLACES_SHIFT) - 1);
    uint32_t places = state >> PLACES_SHIFT;
    for (uint32_t i = places ? places - 1 : 0; i < multiple->places; i++)
        remainder = remainder * 10 % multiple->of;
    return remainder == 0;
}

static uint32_t make_multiple(struct exprs *exprs, uint32_t index, uint32_t state) {
    bool is_nullable = is_multiple(&exprs->numbers->multiples[index], state);
    return expr_leaf(exprs, KIND_MULTIPLE, index, state, is_nullable);
}

static uint32_t derive_multiple(struct exprs *exprs, uint32_t index, uint32_t state,
                                unsigned char byte) {
    const struct multiple *multiple = &exprs->numbers->multiples[index];
    uint64_t remainder = state & ((1u << PLACES_SHIFT) - 1);
    uint32_t places = state >> PLACES_SHIFT;
    if (byte == '.' && places == 0)
        return make_multiple(exprs, index, (uint32_t)remainder | 1u << PLACES_SHIFT);
    if (byte < '0' || byte > '9') return EXPR_NEVER;
    if (places == multiple->places + 1) /* further digits must be zeros */
        return byte == '0' && remainder == 0 ? make_multiple(exprs, index, state) : EXPR_NEVER;
    remainder = (remainder * 10 + (byte - '0')) % multiple->of;
    if (places > 0) places++;
    return make_multiple(exprs, index, (uint32_t)remainder | places << PLACES_SHIFT);
}

static enum err multiple_expr(struct exprs *exprs, const struct decimal *decimal,
                              uint32_t *ret_expr, struct error *error) {
    uint64_t of = 0;
    for (size_t i = 0; i < decimal->whole_count && of < MULTIPLE_MAX; i++)
        of = of * 10 + decimal->whole[i];
    for (size_t i = 0; i < decimal->fraction_count && of < MULTIPLE_MAX; i++)
        of = of * 10 + decimal->fraction[i];
    if (of >= MULTIPLE_MAX || decimal->fraction_count > MULTIPLE_PLACES_MAX)
        return err_set(error, ERR_LIMIT, "multipleOf has more than %d digits", 8);
    struct number_table *table = exprs->numbers;
    table->multiples = vec_grow(table->multiples, table->multiple_count, &table->multiple_capacity,
                                sizeof *table->multiples);
    table->multiples[table->multiple_count] =
        (struct multiple){(uint32_t)of, decimal->fraction_count};
    *ret_expr = make_multiple(exprs, (uint32_t)table->multiple_count++, 0);
    return OK;
}

uint32_t number_derive(struct exprs *exprs, enum expr_kind kind, uint32_t a, uint32_t b,
                       unsigned char byte) {
    return kind == KIND_BOUND ? derive_bound(exprs, a, b, byte)
                              : derive_multiple(exprs, a, b, byte);
}

/* --- numbers --- */

static uint32_t digits(struct exprs *exprs, uint32_t min, uint32_t max) {
    return expr_repeat(exprs, expr_range(exprs, '0', '9'), min, max);
}

/* Texts of unsigned numbers of the form, without bounds. An integer with a minus sign is not 0. */
static uint32_t unsigned_expr(struct exprs *exprs, enum number_form form, bool is_negative,
                              uint32_t whole_digits, uint32_t fraction_digits) {
    uint32_t point = expr_byte(exprs, '.');
    uint32_t many =
        expr_cat(exprs, expr_range(exprs, '1', '9'), digits(exprs, 0, whole_digits - 1));
    uint32_t whole = expr_alt2(exprs, expr_byte(exprs, '0'), many);
    uint32_t zeros = expr_repeat(exprs, expr_byte(exprs, '0'), 1, EXPR_NO_MAX);
    uint32_t fraction = expr_cat(exprs, point, digits(exprs, 1, fraction_digits));
    switch (form) {
    case NUMBER_INTEGER: return is_negative ? many : whole;
    case NUMBER_INTEGER_OR_ZEROS:
        return expr_cat(exprs, whole, expr_optional(exprs, expr_cat(exprs, point, zeros)));
    case NUMBER_DECIMAL: return expr_cat(exprs, whole, expr_optional(exprs, fraction));
    case NUMBER_ANY: break;
    }
    /* One digit before the point and an exponent below 308: no text is beyond the doubles. */
    struct byte_set signs = {{0}}, e = {{0}};
    byte_set_add(&signs, '+');
    byte_set_add(&signs, '-');
    byte_set_add(&e, 'e');
    byte_set_add(&e, 'E');
    uint32_t hundreds = expr_cat(exprs, expr_range(exprs, '1', '2'), digits(exprs, 2, 2));
    uint32_t below = expr_cat(exprs, expr_bytes(exprs, STR("30")), expr_range(exprs, '0', '7'));
    uint32_t exponent =
        expr_alt(exprs, (const uint32_t[]){digits(exprs, 1, 2), hundreds, below}, 3);
    exponent = expr_cat(exprs, expr_optional(exprs, expr_set(exprs, &signs)), exponent);
    exponent = expr_cat(exprs, expr_set(exprs, &e), exponent);
    uint32_t mantissa = expr_cat(exprs, digits(exprs, 1, 1), expr_optional(exprs, fraction));
    uint32_t plain = expr_cat(exprs, whole, expr_optional(exprs, fraction));
    return expr_alt2(exprs, plain, expr_cat(exprs, mantissa, exponent));
}

/* The sizes of the numbers with one sign: `min` and `max` bound the number, not the size. */
static uint32_t signed_expr(struct exprs *exprs, const struct number_rules *rules, uint32_t size,
                            bool is_negative) {
    const struct decimal *low = is_negative ? rules->max : rules->min;
    const struct decimal *high = is_negative ? rules->min : rules->max;
    bool above = is_negative ? rules->below_max : rules->above_min;
    bool below = is_negative ? rules->above_min : rules->below_max;
    /* `low` bounds the size only if it lies on this side of 0; `high` leaves nothing if not. */
    const struct decimal zero = {0};
    if (low && (low->is_negative == is_negative || decimal_compare(low, &zero) == 0))
        size = expr_and2(exprs, size, bound_expr(exprs, low, above ? IS_ABOVE : IS_ABOVE_OR_EQUAL));
    if (high) {
        bool is_zero = decimal_compare(high, &zero) == 0;
        if (!is_zero && high->is_negative != is_negative) return EXPR_NEVER;
        size =
            expr_and2(exprs, size, bound_expr(exprs, high, below ? IS_BELOW : IS_BELOW_OR_EQUAL));
    }
    if (size != EXPR_NEVER && !expr_is_alive(exprs, size)) return EXPR_NEVER;
    return is_negative ? expr_cat(exprs, expr_byte(exprs, '-'), size) : size;
}

static uint32_t most(uint32_t count, const struct decimal *a, const struct decimal *b,
                     bool of_fraction) {
    const struct decimal *both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (!both[i]) continue;
        uint32_t own = of_fraction ? both[i]->fraction_count + 1u : both[i]->whole_count;
        if (own > count) count = own;
    }
    return count;
}

/* Multiples that are too large for remainders. False if they are not. */
static bool grid_expr(struct exprs *exprs, const struct number_rules *rules, bool is_negative,
                      uint32_t *ret_expr) {
    const struct decimal zero = {0}, *low = is_negative ? rules->max : rules->min,
                         *high = is_negative ? rules->min : rules->max;
    struct number_sizes sizes = {.high = high,
                                 .above_low = is_negative ? rules->below_max : rules->above_min,
                                 .below_high = is_negative ? rules->above_min : rules->below_max,
                                 .has_zero = !is_negative || rules->form >= NUMBER_DECIMAL};
    bool is_low_here = low && (low->is_negative == is_negative || !decimal_compare(low, &zero));
    if (is_low_here) sizes.low = low;
    uint32_t size;
    if (!number_grid_expr(exprs, rules, &sizes, &size)) return false;
    if (high && decimal_compare(high, &zero) && high->is_negative != is_negative) size = EXPR_NEVER;
    if (size != EXPR_NEVER && is_negative) size = expr_cat(exprs, expr_byte(exprs, '-'), size);
    *ret_expr = size;
    return true;
}

/* The numbers with one sign. */
static enum err sign_expr(struct exprs *exprs, const struct number_rules *rules, bool is_negative,
                          uint32_t *ret_expr, struct error *error) {
    enum number_form form = rules->form;
    bool has_rules = rules->min || rules->max || rules->multiple_count > 0;
    if (grid_expr(exprs, rules, is_negative, ret_expr)) return OK;
    if (form == NUMBER_ANY && has_rules) form = NUMBER_DECIMAL;
    uint32_t size =
        unsigned_expr(exprs, form, is_negative, most(WHOLE_DIGITS, rules->min, rules->max, false),
                      most(FRACTION_DIGITS, rules->min, rules->max, true));
    for (size_t i = 0; i < rules->multiple_count; i++) {
        uint32_t multiple;
        enum err err = multiple_expr(exprs, &rules->multiples[i], &multiple, error);
        if (err != OK) return err;
        size = expr_and2(exprs, size, multiple);
    }
    *ret_expr = signed_expr(exprs, rules, size, is_negative);
    return OK;
}

enum err number_expr(struct exprs *exprs, const struct number_rules *rules, uint32_t *ret_expr,
                     struct error *error) {
    uint32_t positive, negative;
    enum err err = sign_expr(exprs, rules, false, &positive, error);
    if (err == OK) err = sign_expr(exprs, rules, true, &negative, error);
    if (err == OK) *ret_expr = expr_alt2(exprs, positive, negative);
    return err;
}
